"""What schemathesis cannot know: names that are there, and that long waits are only long."""

import schemathesis

# As `schemathesis.sh` has made them.
TARGETS = ["known", "ended", "reserved", "parked"]
NAMES = ["go", "add"]
LONGEST_MS = 30


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Half of the requests are about something that is there."""
    if isinstance(path_parameters, dict):
        for field, there in (("target", TARGETS), ("name", NAMES)):
            value = path_parameters.get(field)
            if isinstance(value, str) and value.isprintable() and len(value) % 2 == 0 and value:
                path_parameters[field] = there[len(value) // 2 % len(there)]
    return path_parameters


def shortened(fields):
    if isinstance(fields, dict):
        value = fields.get("wait_ms")
        if isinstance(value, int) and not isinstance(value, bool) and LONGEST_MS < value <= 60_000:
            fields["wait_ms"] = LONGEST_MS
        if isinstance(value, str) and value.isdigit() and LONGEST_MS < int(value) <= 60_000:
            fields["wait_ms"] = str(LONGEST_MS)
    return fields


@schemathesis.hook
def before_call(context, case, kwargs):
    shortened(case.body)
    shortened(case.query)


def agreeing(start):
    """What to start, without what contradicts something else in it."""
    if isinstance(start, dict) and start.get("machine") is not None:
        for field in ("graph", "input"):
            start.pop(field, None)
        if start.get("due_at") is not None:
            start.pop("delay_ms", None)
        if start.get("reserve"):
            start.pop("reserve")
    return start


@schemathesis.hook
def map_body(context, body):
    """Most of what is made up contradicts itself; two thirds of it does not any more."""
    if isinstance(body, dict) and len(str(body)) % 3:
        agreeing(body)
        agreeing(body.get("start"))
    return body


@schemathesis.hook
def map_query(context, query):
    """Half of the cursors are left out: those that are made up are refused, and then nothing else is seen."""
    if isinstance(query, dict):
        cursor = query.get("cursor")
        if isinstance(cursor, str) and len(cursor) % 2 == 0:
            del query["cursor"]
    return query
