//! Requests and replies survive serialization, also where JSON makes two values look alike.

use std::mem::discriminant;
use std::time::Duration;

use abide_core::model::{
    Answered, Arguments, Cancel, Child, Children, CommandId, CommandKind, Commit, Committed,
    Delivered, DocumentKind, Fingerprint, Inbox, InstanceId, Json, Key, Name, NewCommand, Offer,
    Operated, Outcome, Refusal, Rejection, RequestId, Start, Started, Status, Target, Then,
    UniqueKey, Verdict, When, WorkflowTurn,
};

use super::*;
use crate::memory::Memory;
use crate::{ClaimRequest, Effects, Ending, Error, NewWorker, Once};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Serializes a value, parses it, and serializes the result again.
fn twice<T: Serialize + serde::de::DeserializeOwned>(value: &T) -> (T, String, String) {
    let text = serde_json::to_string(value).unwrap();
    let read: T = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let again = serde_json::to_string(&read).unwrap();
    (read, text, again)
}

fn same<T: Serialize + serde::de::DeserializeOwned + PartialEq + std::fmt::Debug>(value: T) {
    let (read, text, _) = twice(&value);
    assert_eq!(read, value, "{text}");
}

fn raw(text: &str) -> Json {
    Json::parse(text.into()).unwrap()
}

#[test]
fn json_is_kept_byte_by_byte() {
    for text in [
        "null",
        "{\"b\": 1,  \"a\":\"\\u0000é\"}",
        "1e400",
        "[1.0, 1]",
    ] {
        same(raw(text));
        let state = Some(raw(text));
        let outcome = Outcome::Answer {
            updates: vec![Answered {
                update_id: CommandId(1),
                result: raw(text),
                error: None,
            }],
            state: state.clone(),
            then: Some(Box::new(Outcome::Done { result: raw(text) })),
        };
        same(outcome);
        same(WorkflowTurn {
            operations: Vec::new(),
            takes: Vec::new(),
            updates: Vec::new(),
            held: 0,
            children: Vec::new(),
            state,
            then: Then::GoOn { running: true },
        });
    }
}

#[test]
fn a_result_that_is_null_is_not_none() {
    for (status, result) in [
        (Status::Done, Some(Json::null())),
        (Status::Done, Some(raw("1"))),
        (Status::Failed, None),
        (Status::Executing, None),
    ] {
        same(Ending {
            id: InstanceId(1),
            status,
            result: result.clone(),
            last_error: None,
        });
        same(Child {
            id: InstanceId(1),
            key: None,
            machine: name("m"),
            status,
            state: Json::null(),
            result,
            last_error: None,
        });
    }
    let keep = Op::Keep(vec![
        (DocumentKind::Graph, name("null"), Some(Json::null())),
        (DocumentKind::Token, name("none"), None),
    ]);
    let (read, ..) = twice(&keep);
    let Op::Keep(documents) = read else {
        panic!("{read:?}");
    };
    assert_eq!(documents[0].2, Some(Json::null()));
    assert_eq!(documents[1].2, None);
}

#[test]
fn times_keys_and_decisions_come_back_as_they_were() {
    for micros in [i64::MIN, -1, 0, 1, 1_700_000_000_123_456, i64::MAX] {
        same(Timestamp::from_micros(micros));
    }
    same(UniqueKey::new(vec![0, 255, 34]).unwrap());
    for bad in ["[]", &format!("{:?}", [1u8; 256])] {
        assert!(serde_json::from_str::<UniqueKey>(bad).is_err(), "{bad}");
    }
    for rejection in Rejection::ALL {
        same(Verdict::Rejected(rejection));
    }
    for verdict in [
        Verdict::NoTarget,
        Verdict::Held,
        Verdict::Received,
        Verdict::Accepted,
    ] {
        same(Delivered {
            verdict,
            record: None,
            duplicate: true,
            started: false,
            current: Some(InstanceId(2)),
            offer: Some(Offer {
                names: vec![name("paid")],
                more: 3,
            }),
            limit: None,
            similar: Some(name("paid")),
        });
    }
    let (id, children) = (InstanceId(7), 3);
    for operated in [
        Operated::NoTarget,
        Operated::Cancelled { id, children },
        Operated::Restarted { id, run_number: 2 },
        Operated::RepairNotNeeded,
        Operated::NotActive(Status::Done),
        Operated::KeyTaken(id),
    ] {
        same(operated);
    }
    same(Committed::Moved(Status::AwaitingSignal));
    same(Committed::Stale);
    same(Committed::Refused(Refusal::LimitExceeded {
        limit: "state_bytes".into(),
        most: 1,
        met: 2,
    }));
    same(Committed::Kept(claim(), Inbox::default()));
    same(Ok::<_, Refusal>(Started::Duplicate(id)));
    same(Err::<Started, _>(Name::new("").unwrap_err()));
    same(Effects::default());
    same(Effects {
        ended: vec![id],
        due: Some(Timestamp::MAX),
        ..Effects::anything()
    });
    assert_eq!(serde_json::to_string(&Effects::default()).unwrap(), "{}");
}

fn claim() -> abide_core::model::Claim {
    abide_core::model::Claim::granted(
        InstanceId(1),
        abide_core::model::Epoch(2),
        abide_core::model::WorkerId(3),
        Some(Key::new("p").unwrap()),
        None,
    )
}

#[test]
fn operations_are_read_as_they_were_written() {
    let start = Start {
        key: Some(Key::new("order:42").unwrap()),
        unique_key: Some(UniqueKey::new(vec![9]).unwrap()),
        when: When::After(Duration::from_micros(1_500)),
        ..Start::of(name("m"), raw("{ }"))
    };
    let worker = NewWorker {
        name: name("w"),
        lease: Duration::from_millis(30_001),
        queues: vec![name("q")],
        lanes: Vec::new(),
        build: None,
    };
    let delivery = NewCommand {
        kind: CommandKind::Update,
        arguments: Arguments::default(),
        hold_for: Some(Duration::MAX),
        start: Some(Box::new(start.clone())),
        ..NewCommand::signal(InstanceId(1), name("s"))
    };
    let commit = Commit {
        claim: claim(),
        outcome: Outcome::Done {
            result: Json::null(),
        },
        keep: true,
        took: Duration::from_nanos(1),
        error: Some("no".into()),
    };
    let ops = [
        Op::Start(vec![start]),
        Op::Deliver(vec![delivery]),
        Op::Register(worker),
        Op::GiveBack(vec![claim()]),
        Op::Commit {
            commits: vec![commit],
            serves: vec![(name("q"), Vec::new())],
        },
        Op::Fire { limit: 7 },
    ];
    for op in ops {
        let (read, text, again) = twice(&op);
        assert_eq!(text, again);
        assert_eq!(format!("{read:?}"), format!("{op:?}"));
    }
}

#[test]
fn an_invalid_request_is_reported_with_what_was_expected() {
    for (text, expected) in [
        ("", "EOF"),
        ("{\"read\":{\"get\":", "EOF"),
        (
            "{\"get\":1}",
            "unknown variant `get`, expected one of `run`, `read`",
        ),
        (
            "{\"read\":{\"gett\":1}}",
            "unknown variant `gett`, expected one of `get`, `list`",
        ),
        ("{\"run\":[{\"stop\":1}]}", "unknown variant `stop`"),
        ("{\"read\":{\"inbox\":\"x\"}}", "expected i64"),
        (
            "{\"read\":{\"list\":{\"filter\":{},\"before\":null,\"limit\":1,\"odd\":1}}}",
            "unknown field `odd`",
        ),
        ("{\"read\":{\"get\":{\"key\":\"42\"}}}", "digits only"),
        (
            "{\"run\":[{\"start\":[{\"machine\":\"\"}]}]}",
            "it is empty",
        ),
    ] {
        let error = parse(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[tokio::test]
async fn errors_keep_their_class() {
    let store = Memory::default();
    let many = vec![Start::of(name("m"), Json::null()); 100_001];
    let reply = answer(&store, Request::Run([Op::Start(many)].into())).await;
    let (Reply::Failed(failure), ..) = twice(&reply) else {
        panic!("it was taken");
    };
    let error = Error::from(failure);
    assert!(
        matches!(&error, Error::Refused(Refusal::LimitExceeded { limit, .. }) if limit == "batch_entries"),
        "{error:?}"
    );
    for error in [
        Error::Conflict("c".into()),
        Error::Unavailable("u".into()),
        Error::Unknown("k".into()),
        Error::NotSetUp("n".into()),
        Error::Broken("b".into()),
    ] {
        let (message, class) = (error.to_string(), discriminant(&error));
        let (failure, ..) = twice(&Failure::from(error));
        let error = Error::from(failure);
        assert_eq!((error.to_string(), discriminant(&error)), (message, class));
    }
}

#[test]
fn the_server_decides_the_source_of_a_command() {
    // rule 7.3
    let claimed = || (Some("http:boss".to_owned()), Some("bob".to_owned()));
    let ops = || -> Arc<[Op]> {
        let (mut delivery, (source, claimed_source)) =
            (NewCommand::signal(InstanceId(1), name("s")), claimed());
        (delivery.source, delivery.claimed_source) = (source.clone(), claimed_source.clone());
        let cancel = Cancel {
            target: Target::Id(InstanceId(1)),
            reason: String::new(),
            children: Children::Cascade,
            force: false,
            source,
            claimed_source,
        };
        Arc::from([Op::Deliver(vec![delivery]), Op::Cancel(vec![cancel])])
    };
    let id = RequestId::new("c".to_owned(), name("k"), Fingerprint::of([b"x"]));
    let once = Op::Once(vec![Once { id, ops: ops() }]);
    for ops in [ops(), Arc::from([once])] {
        let (mut request, ..) = twice(&Request::Run(ops));
        request.sent_by("http:till");
        let Request::Run(ops) = request else {
            panic!("{request:?}");
        };
        let senders = Op::each(&ops).map(|op| match op {
            Op::Deliver(each) => (each[0].source.clone(), each[0].claimed_source.clone()),
            Op::Cancel(each) => (each[0].source.clone(), each[0].claimed_source.clone()),
            other => panic!("{other:?}"),
        });
        let known = (Some("http:till".to_owned()), claimed().0);
        assert_eq!(senders.collect::<Vec<_>>(), [known.clone(), known]);
    }
}

#[test]
fn a_request_needs_all_that_its_operations_need() {
    let claim = Op::Claim(ClaimRequest {
        lease: None,
        worker: abide_core::model::WorkerId(1),
        queue: name("q"),
        lanes: Vec::new(),
        limit: 1,
    });
    let signal = || NewCommand::signal(InstanceId(1), name("s"));
    let with_start = NewCommand {
        start: Some(Box::new(Start::of(name("m"), Json::null()))),
        ..signal()
    };
    let cancel = NewCommand {
        kind: CommandKind::Cancel,
        ..signal()
    };
    let run = |ops: Vec<Op>| Request::Run(ops.into()).needs();
    assert_eq!(run(vec![claim]), [Permission::Work].into());
    assert_eq!(
        run(vec![Op::Deliver(vec![signal()])]),
        [Permission::Send].into()
    );
    assert_eq!(
        run(vec![Op::Deliver(vec![signal()]), Op::Fire { limit: 1 }]),
        [Permission::Send, Permission::Work].into()
    );
    for strong in [with_start, cancel] {
        assert!(run(vec![Op::Deliver(vec![signal(), strong])]).contains(&Permission::Operate));
    }
    assert!(run(vec![Op::Keep(Vec::new())]).contains(&Permission::Operate));
    let read = |query: Query| Request::Read(query).needs();
    assert_eq!(read(Query::Depths), [Permission::Read].into());
    let all = |kind| Query::Documents {
        kind,
        after: None,
        limit: 9,
    };
    assert_eq!(read(all(DocumentKind::Graph)), [Permission::Read].into());
    assert_eq!(read(all(DocumentKind::Token)), [Permission::Operate].into());
    let one = |kind| Query::Document {
        kind,
        name: name("n"),
    };
    assert_eq!(read(one(DocumentKind::Graph)), [Permission::Read].into());
    assert_eq!(read(one(DocumentKind::Token)), [Permission::Operate].into());
    let outbox = Query::Outbox {
        except: Vec::new(),
        limit: 1,
    };
    assert_eq!(read(outbox), [Permission::Operate].into());
}

#[test]
fn a_sender_is_notified_of_answers_and_not_of_work() {
    let effects = Effects {
        ready: [name("q")].into(),
        ended: vec![InstanceId(1)],
        answered: vec![abide_core::model::CommandId(2)],
        cancelled: vec![InstanceId(3)],
        received: vec![InstanceId(4)],
        due: Some(Timestamp::from_micros(5)),
        ..Effects::default()
    };
    for right in [Permission::Read, Permission::Work, Permission::Operate] {
        assert_eq!(right.visible_effects(&effects), effects);
    }
    let heard = Permission::Send.visible_effects(&effects);
    let answered = Effects {
        answered: effects.answered.clone(),
        ..Effects::default()
    };
    assert_eq!(heard, answered);
    let lost = Effects::anything();
    assert_eq!(Permission::Send.visible_effects(&lost), lost);
}
