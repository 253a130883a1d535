"""What an application calls, each against the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest
from conftest import collected, eventually
from servers import Server

from abide import (
    Abide,
    Duplicate,
    Invalid,
    NoTarget,
    NotDone,
    NotYet,
    Problem,
    Rejected,
    Start,
    Unavailable,
)

Unique = Callable[[str], str]

PAID = {
    "signals": [{"name": "paid", "parameters": [{"name": "amount", "type": "int"}]}],
    "updates": [{"name": "rename", "parameters": [{"name": "to", "type": "string"}]}],
}


async def test_a_start_answers_its_id_key_and_run(abide: Abide, unique: Unique) -> None:
    key = unique("order")
    order = await abide.start(unique("m"), {"item": "kettle"}, key=key)
    assert (order.key, order.run, order.is_new) == (key, 1, True)
    seen = await abide.get(key)
    assert seen.id == order.id
    assert seen.state == {"item": "kettle"}
    assert (seen.status, seen.step, seen.liveness) == ("runnable", "start", "waiting_for_worker")
    assert (seen.liveness_code, seen.liveness_command_id) == ("no_worker", None)
    assert seen.liveness_reason is not None
    assert "no live worker" in seen.liveness_reason
    assert seen.created_at is not None
    assert datetime.now(timezone.utc) - seen.created_at < timedelta(minutes=1)


@pytest.mark.parametrize("key", ["a/b?c#d%2F", "ключ ☃ 'x'", ".", ".."])
async def test_any_key_can_be_addressed(abide: Abide, unique: Unique, key: str) -> None:
    order = await abide.start(unique("m"), key=key)
    assert (await abide.get(key)).id == order.id
    assert (await abide.signal(key, key, 1)).instance_id == order.id
    await abide.cancel(key)


async def test_a_key_that_is_taken_is_a_duplicate_that_names_its_holder(abide: Abide, unique: Unique) -> None:
    machine, key = unique("m"), unique("order")
    first = await abide.start(machine, key=key)
    with pytest.raises(Duplicate) as taken:
        await abide.start(machine, key=key)
    assert taken.value.holder == first.id
    again = await abide.start(machine, key=key, or_existing=True)
    assert (again.id, again.is_new) == (first.id, False)


async def test_all_that_a_start_can_say_is_taken(abide: Abide, unique: Unique) -> None:
    machine = unique("m")
    later = datetime.now(timezone.utc) + timedelta(hours=1)
    one = await abide.start(
        machine,
        version=3,
        step="pack",
        queue="slow",
        priority=5,
        partition_key="p",
        unique_key=unique("u"),
        scope=["runnable", "done"],
        unique_scope=["runnable"],
        due_at=later,
    )
    seen = await abide.get(one)
    assert (seen.version, seen.step, seen.queue, seen.priority) == (3, "pack", "slow", 5)
    assert (seen.partition_key, seen.status) == ("p", "scheduled")
    assert seen.due_at is not None
    assert abs(seen.due_at - later) < timedelta(seconds=1)
    delayed = await abide.start(machine, delay=3600)
    assert (await abide.get(delayed)).status == "scheduled"


async def test_a_batch_answers_for_each_in_order(abide: Abide, unique: Unique) -> None:
    machine, key = unique("m"), unique("k")
    results = await abide.start_all([Start(machine, n, key=f"{key}-{n % 2}") for n in range(3)])
    assert results[0].id is not None
    assert results[1].id is not None
    assert results[2].duplicate_of == results[0].id


async def test_a_reserved_key_is_opened_by_its_start(abide: Abide, unique: Unique) -> None:
    machine, key = unique("m"), unique("k")
    reserved = await abide.reserve(machine, key)
    with pytest.raises(Rejected) as refused:
        await abide.signal(key, "paid")
    assert (refused.value.outcome, refused.value.reason) == ("rejected_not_started", "instance_not_started")
    assert (await abide.start(machine, key=key)).id == reserved.id


async def test_lists_are_followed_over_their_pages(abide: Abide, unique: Unique) -> None:
    machine = unique("m")
    await abide.start_all([Start(machine, n) for n in range(25)])
    seen = await collected(abide.list(machine=machine, page=10))
    assert sorted(one.state for one in seen) == list(range(25))
    assert await collected(abide.list(machine=machine, status="done")) == []


async def test_what_is_not_there_is_no_target(abide: Abide, unique: Unique) -> None:
    with pytest.raises(NoTarget):
        await abide.get(unique("nobody"))
    with pytest.raises(NoTarget):
        await abide.signal(unique("nobody"), "paid", 1)
    with pytest.raises(NoTarget):
        await abide.result(987654321987)


async def test_a_signal_is_answered_by_its_record(abide: Abide, unique: Unique) -> None:
    machine = unique("m")
    await abide.put_machine(machine, 1, PAID)
    order = await abide.start(machine)
    first = await abide.signal(order, "paid", arguments={"amount": 5}, dedup="evt-1")
    assert (first.outcome, first.duplicate, first.message_sequence) == ("signal_received", False, 1)
    again = await abide.signal(order, "paid", 5, dedup="evt-1")
    assert (again.command_id, again.duplicate) == (first.command_id, True)
    with pytest.raises(Rejected) as conflict:
        await abide.signal(order, "paid", 6, dedup="evt-1")
    assert conflict.value.reason == "dedup_conflict"
    with pytest.raises(Rejected) as wrong:
        await abide.signal(order, "paid", arguments={"amount": "five", "colour": "red"})
    codes = {field: problems[0].code for field, problems in wrong.value.validation_errors.items()}
    assert codes == {"amount": "wrong_type", "colour": "unknown"}
    assert "amount" in str(wrong.value)
    with pytest.raises(Rejected) as unknown:
        await abide.signal(order, "shout")
    assert (unknown.value.outcome, unknown.value.status) == ("rejected_unknown_signal", 404)
    records = await collected(abide.signals(order))
    assert [one.status for one in records].count("rejected") == 3
    assert {(one.source, one.claimed_source) for one in records} == {("http", None)}
    [record] = [one for one in records if one.id == wrong.value.command_id]
    assert record.reason == "invalid_signal_arguments"
    assert record.validation_errors == wrong.value.validation_errors
    assert record.validation_errors["amount"] == [Problem("wrong_type", "must be int, not a string")]
    assert record.validation_errors["colour"][0].code == "unknown"
    assert {one.id for one in records if one.validation_errors} == {record.id}
    everywhere = [one async for one in abide.signals(name="paid", status="received") if one.instance_id == order.id]
    assert [one.arguments for one in everywhere] == [{"amount": 5}]


async def test_a_held_signal_waits_for_who_starts_under_the_key(abide: Abide, unique: Unique) -> None:
    key = unique("later")
    held = await abide.signal(key, "paid", {"amount": 1}, hold_for=60)
    assert held.outcome == "signal_held"
    order = await abide.start(unique("m"), key=key)
    assert [one.name async for one in abide.signals(order)] == ["paid"]


async def test_signal_with_start_starts_once(abide: Abide, unique: Unique) -> None:
    machine, key = unique("m"), unique("cart")
    first = await abide.signal_with_start(Start(machine, {"n": 1}, key=key), "add", "kettle", dedup="1")
    second = await abide.signal_with_start(Start(machine, {"n": 2}, key=key), "add", "cup", dedup="2")
    assert (first.started, second.started) == (True, False)
    assert first.instance_id == second.instance_id
    assert (await abide.get(first)).state == {"n": 1}


async def test_an_update_is_accepted_and_can_be_asked_for(abide: Abide, unique: Unique) -> None:
    machine = unique("m")
    await abide.put_machine(machine, 1, PAID)
    order = await abide.start(machine)
    record = await abide.send_update(order, "rename", {"to": "x"}, request_id="r1")
    assert record.update_status == "accepted"
    assert (await abide.send_update(order, "rename", ["x"], request_id="r1")).update_id == record.update_id
    with pytest.raises(NotYet):
        await abide.update(order, "rename", {"to": "x"}, request_id="r1", wait=0.05)
    with pytest.raises(Rejected) as unknown:
        await abide.update(order, "explode")
    assert unknown.value.reason == "unknown_update"
    with pytest.raises(Rejected) as wrong:
        await abide.update(order, "rename", {"to": 5})
    assert wrong.value.validation_errors == {"to": [Problem("wrong_type", "must be string, not an int")]}
    records = {one.update_id: one async for one in abide.updates(order)}
    assert (record.validation_errors, records[record.update_id].validation_errors) == ({}, {})
    assert wrong.value.command_id is not None
    refused = await abide.update_record(wrong.value.command_id)
    assert (refused.update_status, refused.reason) == ("rejected", "invalid_update_arguments")
    assert refused.validation_errors == wrong.value.validation_errors
    assert records[refused.update_id].validation_errors["to"][0].code == "wrong_type"
    await abide.cancel(order, "not wanted")
    assert (await abide.update_record(record.update_id)).update_status == "failed"


async def test_cancel_restart_and_repair(abide: Abide, unique: Unique) -> None:
    order = await abide.start(unique("m"), {"n": 1})
    assert await abide.repair(order) is False
    with pytest.raises(Rejected) as early:
        await abide.restart(order)
    assert early.value.outcome == "rejected_not_restartable"
    await abide.cancel(order, "changed my mind")
    with pytest.raises(NotDone) as ended:
        await abide.result(order)
    assert (ended.value.ended, ended.value.last_error) == ("cancelled", "changed my mind")
    with pytest.raises(Rejected) as late:
        await abide.cancel(order, "again")
    assert late.value.outcome == "rejected_not_active"
    run = await abide.restart(order, step="pack")
    assert run.run == 2
    assert (await abide.get(run)).step == "pack"
    with pytest.raises(Rejected) as old:
        await abide.signal(order, "hello")
    assert old.value.current_id == run.id
    assert {one.run async for one in abide.runs(run)} == {1, 2}


async def test_a_result_is_waited_for_only_so_long(abide: Abide, unique: Unique) -> None:
    order = await abide.start(unique("m"))
    with pytest.raises(NotYet):
        await abide.result(order, wait=0.05)
    assert (await abide.ended(order)).over is False


async def test_events_are_published_once_and_kept(abide: Abide, unique: Unique) -> None:
    kind = unique("payment")
    first = await abide.publish(kind, {"n": 1}, event_id="e1")
    assert (first.event_id, first.matched, first.duplicate) == ("e1", 0, False)
    assert (await abide.publish(kind, {"n": 1}, event_id="e1")).duplicate
    results = await abide.publish_all([(kind, {"n": 2}, "e2"), (kind, {"n": 3})])
    assert [one.duplicate for one in results] == [False, False]
    kept = await collected(abide.events(type=kind))
    assert sorted(one.payload["n"] for one in kept) == [1, 2, 3]


async def test_history_tells_what_happened(abide: Abide, unique: Unique) -> None:
    order = await abide.start(unique("m"))
    await abide.signal(order, "hello")
    await abide.cancel(order, "enough")
    kinds = [one.kind async for one in abide.history(order)]
    assert kinds[0] == "started"
    assert {"signal_received", "cancelled"} <= set(kinds)


async def test_figures_of_the_store_can_be_read(abide: Abide, unique: Unique) -> None:
    await abide.start(unique("m"), queue="figures")
    assert isinstance(await abide.stats(), dict)
    assert "figures" in str(await abide.queues())
    assert await abide.workers() is not None
    assert isinstance(await collected(abide.waits()), list)


async def test_unicode_goes_there_and_back(abide: Abide, unique: Unique) -> None:
    key = unique("Bestellung/ß? 注文 #1%20")
    state = {"näme": "Łódź 🫖", "null\u0001": "\u2028"}
    await abide.start(unique("m"), state, key=key)
    assert (await abide.get(key)).state == state
    sent = await abide.signal(key, "größe/✓", "🫖")
    assert sent.outcome == "signal_received"
    assert [one.name async for one in abide.signals(key)] == ["größe/✓"]


async def test_what_is_wrong_with_a_request_is_told(abide: Abide, unique: Unique) -> None:
    with pytest.raises(Invalid, match="key"):
        await abide.start(unique("m"), key="12345")
    with pytest.raises(Invalid, match="sginals"):
        await abide.put_machine(unique("m"), 1, {"sginals": []})


async def test_the_stream_of_an_instance_is_its_history_to_the_end(abide: Abide, unique: Unique) -> None:
    order = await abide.start(unique("m"))
    kinds = []
    async for change in abide.stream(instance=order.id):
        kinds.append(change.type)
        if change.type == "started":
            assert change.id == "1"
            await abide.signal(order, "hello")
        if change.type == "signal_received":
            await abide.cancel(order, "enough")
    assert kinds[0] == "started"
    assert kinds[-2:] == ["cancelled", "end"]
    later = [change.type async for change in abide.stream(instance=order.id, last="1", types=["signal_received"])]
    assert later == ["signal_received", "end"]


async def test_the_stream_of_the_server_tells_what_changes(abide: Abide, unique: Unique) -> None:
    stream = abide.stream(types=["cancelled", "ended"])
    following = asyncio.ensure_future(anext(stream))
    for _ in range(200):  # the line is up a little after it is asked for: tell until it is heard
        await abide.cancel(await abide.start(unique("m")), "enough")
        done, _ = await asyncio.wait([following], timeout=0.05)
        if done:
            break
    change = await asyncio.wait_for(following, 10)
    assert change.id
    assert change.type in ("cancelled", "ended", "reset")
    await stream.aclose()  # type: ignore[attr-defined]


async def test_a_server_that_is_not_there_is_told_in_words(unique: Unique) -> None:
    async with Abide("http://127.0.0.1:9", patience=0.2) as abide:
        with pytest.raises(Unavailable, match="abide serve"):
            await abide.get(1)


async def test_another_server_is_asked_when_one_is_away(server: Server, unique: Unique) -> None:
    async with Abide(["http://127.0.0.1:9", server.url]) as abide:
        order = await abide.start(unique("m"))
        assert (await abide.get(order)).id == order.id


async def test_an_update_without_a_worker_is_not_lost(abide: Abide, unique: Unique) -> None:
    machine = unique("m")
    await abide.put_machine(machine, 1, PAID)
    order = await abide.start(machine)
    await abide.send_update(order, "rename", {"to": "x"})

    async def pending() -> bool:
        return (await abide.get(order)).updates_pending == 1

    await eventually(pending)
