//! Rows that were broken by hand: all readers and the doctor see the same in them, and repair puts just that right.

use abide::client::new_start;
use abide::history::HistoryEvent;
use abide::machine::Messages;
use abide::model::{CommandId, Instance, Liveness, Reason, ReasonCode};
use abide::store::Filter;
use abide::time::hours;
use abide::{Context, InstanceId, Machine, Outcome, Signal, Status, Step, done};
use serde_json::{Value, json};

use crate::common::Lab;
use crate::operating::GO;

const NOTE: Signal<String> = Signal::new("note");

/// Runs a test on every store, and does not check its invariants afterwards: the damage stays.
macro_rules! by_hand {
    (async fn $name:ident($lab:ident: Lab) $body:block) => {
        mod $name {
            use super::*;

            async fn test($lab: Lab) $body

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn memory() {
                test(Lab::memory().await).await;
            }

            #[cfg(feature = "sqlite")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                test(Lab::sqlite().await).await;
            }

            #[cfg(feature = "postgres")]
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                test(Lab::postgres().await).await;
            }
        }
    };
}

#[derive(Step, Debug, PartialEq, Eq)]
pub enum Park {
    Begin,
    End,
}

/// Waits, sleeps or joins as its state prescribes, and then ends.
#[derive(Clone)]
pub struct Parks;

impl Machine for Parks {
    const NAME: &'static str = "parks";
    type Step = Park;
    type State = Value;
    type Output = Value;

    fn messages() -> Messages {
        Messages::new().signal(GO).signal(NOTE)
    }

    async fn step(&self, at: Park, ctx: &mut Context<Self>) -> Outcome<Self> {
        match (at, ctx.state().as_str().unwrap_or_default()) {
            (Park::Begin, "waits") => ctx.wait_for(GO).then(Park::End),
            (Park::Begin, "sleeps") => ctx.sleep(hours(1)).then(Park::End),
            (Park::Begin, "joins") => ctx.spawn([new_start(Self, json!("waits"))]).then(Park::End),
            _ => done(json!([ctx.got(GO), ctx.children().len()])),
        }
    }
}

/// The kinds of damage to the tables.
#[derive(Clone, Copy, Debug)]
enum Hand {
    /// The signals of the instance get the name that it waits for.
    Rename,
    /// They become updates, and are counted so.
    Update,
    /// They are deleted.
    Forget,
    /// It executes under a worker that never was.
    Hold,
    /// It is due at no time.
    Never,
    /// It waits for no name.
    Nothing,
    /// It waits for a name that its contract does not have.
    Misname,
    /// Its children are deleted.
    Orphan,
    /// The instance is deleted.
    Delete,
}

/// Writes to the tables behind the engine's back.
async fn tamper(lab: &Lab, id: InstanceId, hand: Hand) {
    if let Some(memory) = lab.in_memory() {
        let filter = abide::store::CommandFilter {
            instance: Some(id),
            ..abide::store::CommandFilter::default()
        };
        let commands = lab.list_commands(&filter, None, 10).await.unwrap().items;
        let of_parent = Filter {
            parent: Some(id),
            ..Filter::default()
        };
        let children = lab.list(&of_parent, None, 10).await.unwrap().items;
        let name = |text: &str| abide::model::Name::new(text).unwrap();
        for command in commands {
            let change = |command: &mut abide::model::Command| match hand {
                Hand::Rename => {
                    command.name = name("go");
                    true
                }
                Hand::Update => {
                    command.kind = abide::model::CommandKind::Update;
                    true
                }
                Hand::Forget => false,
                _ => true,
            };
            memory.tamper_with_command(command.id, change).unwrap();
        }
        for child in children {
            let is_kept = !matches!(hand, Hand::Orphan);
            memory.tamper(child.id, |_| is_kept).unwrap();
        }
        let change = |row: &mut abide_kernel::model::Row| {
            match hand {
                Hand::Update => (row.inbox.signals, row.inbox.updates) = (0, 1),
                Hand::Hold => {
                    row.status = Status::Executing;
                    row.worker = Some(abide_kernel::model::WorkerId(4711));
                }
                Hand::Never => row.due_at = None,
                Hand::Nothing => row.awaits.as_mut().unwrap().names.clear(),
                Hand::Misname => row.awaits.as_mut().unwrap().names = vec![name("nothing")],
                Hand::Rename | Hand::Forget | Hand::Orphan | Hand::Delete => {}
            }
            !matches!(hand, Hand::Delete)
        };
        return memory.tamper(id, change).unwrap();
    }
    #[cfg(feature = "sqlite")]
    if lab.url().starts_with("sqlite:") {
        let mine =
            abide::sqlite::rusqlite::Connection::open(lab.url().trim_start_matches("sqlite:"));
        let mine = mine.unwrap();
        mine.busy_timeout(abide::time::secs(10)).unwrap();
        let statements = match hand {
            Hand::Rename => vec![format!(
                "update abide_signals set name = 'go' where pending_in = {id}"
            )],
            Hand::Update => vec![
                format!("update abide_signals set kind = 1 where pending_in = {id}"),
                format!(
                    "update abide_instances set extra = json_set(extra, '$.inbox.signals', 0, '$.inbox.updates', 1) where id = {id}"
                ),
            ],
            Hand::Forget => vec![format!("delete from abide_signals where pending_in = {id}")],
            Hand::Hold => vec![format!(
                "update abide_instances set status = 3, wake_at = null, worker = 4711 where id = {id}"
            )],
            Hand::Never => vec![format!(
                "update abide_instances set due_at = null, wake_at = null where id = {id}"
            )],
            Hand::Nothing => vec![format!(
                "update abide_instances set extra = json_remove(extra, '$.awaits.names') where id = {id}"
            )],
            Hand::Misname => vec![format!(
                "update abide_instances set extra = json_replace(extra, '$.awaits.names[0]', 'nothing') where id = {id}"
            )],
            Hand::Orphan => vec![format!(
                "delete from abide_instances where parent_id = {id}"
            )],
            Hand::Delete => vec![format!("delete from abide_instances where id = {id}")],
        };
        for sql in statements {
            assert!(mine.execute(&sql, []).unwrap() > 0, "{sql}");
        }
        return;
    }
    #[cfg(feature = "postgres")]
    {
        use abide::postgres::tokio_postgres::{NoTls, connect};
        let (mine, driver) = connect(lab.url(), NoTls).await.unwrap();
        tokio::spawn(driver);
        let statements = match hand {
            Hand::Rename => vec![format!(
                "update abide.signals set name = 'go' where instance_id = {id}"
            )],
            Hand::Update => vec![
                format!("update abide.signals set kind = 1 where instance_id = {id}"),
                format!(
                    "update abide.instances set extra = jsonb_set(jsonb_set(extra::jsonb, '{{inbox,signals}}', '0'), '{{inbox,updates}}', '1') where id = {id}"
                ),
            ],
            Hand::Forget => vec![format!(
                "delete from abide.signals where instance_id = {id}"
            )],
            Hand::Hold => vec![format!(
                "update abide.instances set status = 3, worker = 4711 where id = {id}"
            )],
            Hand::Never => vec![format!(
                "update abide.instances set due_at = null where id = {id}"
            )],
            Hand::Nothing => vec![format!(
                "update abide.instances set extra = extra::jsonb #- '{{awaits,names}}' where id = {id}"
            )],
            Hand::Misname => vec![format!(
                "update abide.instances set extra = jsonb_set(extra::jsonb, '{{awaits,names}}', '[\"nothing\"]') where id = {id}"
            )],
            Hand::Orphan => vec![format!(
                "delete from abide.instances where parent_id = {id}"
            )],
            Hand::Delete => vec![format!("delete from abide.instances where id = {id}")],
        };
        for sql in statements {
            assert!(mine.execute(&sql, &[]).await.unwrap() > 0, "{sql}");
        }
    }
}

/// An instance that is parked in that way, without an engine.
async fn parked(lab: &Lab, how: &str) -> InstanceId {
    let engine = lab.engine().machine(Parks).start().await.unwrap();
    let order = lab.start(Parks, json!(how)).key(how).await.unwrap();
    let status = match how {
        "waits" => Status::AwaitingSignal,
        "sleeps" => Status::Scheduled,
        _ => Status::AwaitingChildren,
    };
    lab.until_status(order.id(), status).await;
    engine.shutdown().await;
    order.id()
}

/// A signal that lies in an inbox.
async fn buffered(lab: &Lab, id: InstanceId) -> CommandId {
    let sent = lab.signal(id, NOTE, &"buffered".into()).await.unwrap();
    sent.id()
}

/// Returns the reason why an instance needs repair, which is the same for all readers and the doctor.
async fn needs_repair(lab: &Lab, id: InstanceId) -> Reason {
    let view = lab.describe(id).await.unwrap().unwrap();
    assert_eq!(view.liveness, Liveness::RepairNeeded, "{view:?}");
    let page = lab
        .describe_page(&Filter::default(), None, 100)
        .await
        .unwrap();
    let listed = page.items.into_iter().find(|one| one.instance.id == id);
    assert_eq!(listed.as_ref(), Some(&view), "the list shows the same");
    let reason = view.reason.unwrap();
    let found = lab.doctor().await.unwrap().findings;
    let found = found.iter().filter(|one| one.instance == id);
    let found: Vec<_> = found
        .map(|one| (one.code.as_str(), one.problem.as_str(), one.command_id))
        .collect();
    let expected = (reason.code.name(), reason.text.as_str(), reason.command_id);
    assert_eq!(found, [expected], "so does the doctor");
    reason
}

/// Asserts that all readers report the damage, and repairs it.
async fn mended(
    lab: &Lab,
    id: InstanceId,
    code: ReasonCode,
    command: Option<CommandId>,
) -> Instance {
    let reason = needs_repair(lab, id).await;
    assert_eq!(
        (reason.code, reason.command_id),
        (code, command),
        "{reason:?}"
    );
    if let Some(command) = command {
        assert!(reason.text.contains(&command.to_string()), "{reason:?}");
    }
    assert!(lab.repair(id).await.unwrap(), "{reason:?}");
    assert!(!lab.repair(id).await.unwrap(), "once is enough");
    let view = lab.describe(id).await.unwrap().unwrap();
    assert_ne!(view.liveness, Liveness::RepairNeeded, "{view:?}");
    let found = lab.doctor().await.unwrap().findings;
    assert!(found.iter().all(|one| one.instance != id), "{found:?}");
    let events = lab.events(id).await;
    assert!(events.iter().any(
        |entry| matches!(&entry.what, HistoryEvent::Repaired { problem } if *problem == reason.text)
    ));
    view.instance
}

/// Runs what was put right to its end.
async fn ended(lab: &Lab, id: InstanceId) -> Instance {
    let engine = lab.engine().machine(Parks).start().await.unwrap();
    let ended = lab.ended(id).await;
    engine.shutdown().await;
    ended
}

by_hand! {
    async fn a_signal_that_did_not_wake_its_waiter(lab: Lab) {
        // rules 7.1, 11.3 and 13.1. The bug: `describe` and lists showed that it waited for a signal.
        let id = parked(&lab, "waits").await;
        let signal = buffered(&lab, id).await;
        assert_eq!(lab.describe(id).await.unwrap().unwrap().reason, None, "it waits for another");
        tamper(&lab, id, Hand::Rename).await;
        mended(&lab, id, ReasonCode::MissedSignal, Some(signal)).await;
        assert_eq!(ended(&lab, id).await.result.unwrap().as_str(), "[true,0]");
    }
}

by_hand! {
    async fn an_update_that_did_not_wake_a_parked_instance(lab: Lab) {
        // rules 9.1, 11.3 and 13.1
        let id = parked(&lab, "sleeps").await;
        let update = buffered(&lab, id).await;
        tamper(&lab, id, Hand::Update).await;
        let now = mended(&lab, id, ReasonCode::MissedUpdate, Some(update)).await;
        assert_eq!(now.status, Status::Runnable, "it runs for the update");
    }
}

by_hand! {
    async fn an_executing_instance_that_no_worker_holds(lab: Lab) {
        // rules 5.3, 11.3 and 13.1
        let id = parked(&lab, "sleeps").await;
        tamper(&lab, id, Hand::Hold).await;
        mended(&lab, id, ReasonCode::NotHeld, None).await;
        assert_eq!(ended(&lab, id).await.status, Status::Done);
    }
}

by_hand! {
    async fn one_that_is_due_at_no_time(lab: Lab) {
        // rules 6.5, 11.3 and 13.1
        let id = parked(&lab, "sleeps").await;
        tamper(&lab, id, Hand::Never).await;
        mended(&lab, id, ReasonCode::NeverDue, None).await;
        assert_eq!(ended(&lab, id).await.status, Status::Done);
    }
}

by_hand! {
    async fn one_whose_children_are_gone(lab: Lab) {
        // rules 10.2, 11.3 and 13.1
        let id = parked(&lab, "joins").await;
        tamper(&lab, id, Hand::Orphan).await;
        mended(&lab, id, ReasonCode::MissedChildren, None).await;
        assert_eq!(ended(&lab, id).await.status, Status::Done);
    }
}

by_hand! {
    async fn one_that_waits_for_nothing(lab: Lab) {
        // rules 11.3 and 13.1
        let id = parked(&lab, "waits").await;
        tamper(&lab, id, Hand::Nothing).await;
        mended(&lab, id, ReasonCode::WaitsForNothing, None).await;
        assert_eq!(ended(&lab, id).await.result.unwrap().as_str(), "[false,0]");
    }
}

by_hand! {
    async fn one_that_waits_for_a_signal_that_cannot_be_sent(lab: Lab) {
        // rules 8.6, 11.3 and 13.1: such a row may be there from before the rule.
        let id = parked(&lab, "waits").await;
        tamper(&lab, id, Hand::Misname).await;
        let reason = needs_repair(&lab, id).await;
        assert!(reason.text.contains("\"nothing\""), "{reason:?}");
        mended(&lab, id, ReasonCode::UndeclaredSignal, None).await;
        assert_eq!(ended(&lab, id).await.result.unwrap().as_str(), "[false,0]");
    }
}

by_hand! {
    async fn one_behind_in_a_partition_that_has_no_front(lab: Lab) {
        // rules 6.3, 11.3 and 13.1
        let front = lab.start(Parks, json!("ends")).partition("p").await.unwrap();
        let behind = lab.start(Parks, json!("ends")).partition("p").await.unwrap();
        assert!(lab.describe(behind.id()).await.unwrap().unwrap().instance.behind);
        tamper(&lab, front.id(), Hand::Delete).await;
        mended(&lab, behind.id(), ReasonCode::NoFront, None).await;
        assert_eq!(ended(&lab, behind.id()).await.status, Status::Done);
    }
}

by_hand! {
    async fn one_whose_messages_are_miscounted(lab: Lab) {
        // rules 7.1, 11.3 and 13.1
        let id = parked(&lab, "waits").await;
        buffered(&lab, id).await;
        tamper(&lab, id, Hand::Forget).await;
        let now = mended(&lab, id, ReasonCode::Miscounted, None).await;
        assert_eq!((now.status, now.inbox.signals), (Status::AwaitingSignal, 0));
        lab.signal(id, GO, &()).await.unwrap();
        assert_eq!(ended(&lab, id).await.result.unwrap().as_str(), "[true,0]");
    }
}
