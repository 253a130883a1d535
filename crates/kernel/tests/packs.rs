//! Packs and consumption against a model that knows nothing of rows: a list of what is pending, and a set of what was
//! handed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abide_kernel::memory::Memory;
use abide_kernel::model::{
    Claim, Commit, Committed, Instance, InstanceId, Json, Lane, Limits, Name, NewCommand, Outcome,
    Start, Started, Status, Timestamp, Wait, WorkerId,
};
use abide_kernel::{Answer, ClaimRequest, Filter, ManualClock, NewWorker, Op, Store};
use futures_util::FutureExt;
use proptest::prelude::*;
use proptest::sample::subsequence;

const NAMES: [&str; 3] = ["a", "b", "c"];
const TIMEOUT: Duration = Duration::from_secs(60);

/// An action of the test.
#[derive(Clone, Debug)]
enum Happens {
    /// A signal of that name comes.
    Send(usize),
    /// The step answers: go on.
    Next,
    /// The step answers: wait for these.
    Wait(Vec<usize>),
    /// The step answers: again.
    Retry,
    /// The step answers: on with a new run.
    Continue,
    /// A worker takes it.
    Claim,
    /// Its worker loses it.
    GiveBack,
    /// The time of a wait is up.
    TimeOut,
}

fn some_happening() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => (0..NAMES.len()).prop_map(Happens::Send),
        2 => Just(Happens::Next),
        5 => subsequence((0..NAMES.len()).collect::<Vec<_>>(), 1..=NAMES.len())
            .prop_map(Happens::Wait),
        1 => Just(Happens::Retry),
        1 => Just(Happens::Continue),
        7 => Just(Happens::Claim),
        1 => Just(Happens::GiveBack),
        2 => Just(Happens::TimeOut),
    ]
}

/// The status of the instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stands {
    Parked,
    Runnable,
    Executing,
}

/// The expected state.
#[derive(Debug)]
struct Model {
    /// The sequence and name of each message that is pending.
    pending: Vec<(i64, usize)>,
    sequence: i64,
    cursor: i64,
    stands: Stands,
    awaits: Vec<usize>,
    handed: BTreeSet<i64>,
    timed_out: bool,
}

impl Model {
    fn new() -> Self {
        Self {
            pending: Vec::new(),
            sequence: 0,
            cursor: 0,
            stands: Stands::Runnable,
            awaits: Vec::new(),
            handed: BTreeSet::new(),
            timed_out: false,
        }
    }

    fn matching(&self) -> BTreeSet<i64> {
        let waited_for = |(_, name): &&(i64, usize)| self.awaits.contains(name);
        self.pending
            .iter()
            .filter(waited_for)
            .map(|(seq, _)| *seq)
            .collect()
    }

    fn send(&mut self, name: usize) {
        self.sequence += 1;
        self.pending.push((self.sequence, name));
        let takes = self.awaits.contains(&name);
        match self.stands {
            Stands::Parked if takes => self.wake(),
            Stands::Runnable if takes && !self.timed_out => self.handed = self.matching(),
            _ => {}
        }
    }

    fn wake(&mut self) {
        self.stands = Stands::Runnable;
        self.handed = self.matching();
    }

    fn consume(&mut self) {
        self.pending.retain(|(seq, _)| !self.handed.contains(seq));
        self.cursor = self.handed.iter().copied().fold(self.cursor, i64::max);
        self.begin(Vec::new());
        self.stands = Stands::Runnable;
    }

    fn begin(&mut self, awaits: Vec<usize>) {
        self.awaits = awaits;
        self.handed.clear();
        self.timed_out = false;
    }

    fn wait(&mut self, names: Vec<usize>) {
        let seen = std::mem::take(&mut self.handed);
        self.begin(names);
        match self.matching().is_subset(&seen) {
            true => self.stands = Stands::Parked,
            false => self.wake(),
        }
    }
}

/// The store, and the one chain in it.
struct Subject {
    store: Memory,
    clock: ManualClock,
    worker: WorkerId,
    id: InstanceId,
    claim: Option<Claim>,
}

impl Subject {
    fn new() -> Self {
        let clock = ManualClock::at(Timestamp::from_micros(1_767_225_600_000_000));
        let store = Memory::new(Arc::new(clock.clone()), Limits::default());
        let worker = NewWorker {
            name: name("w"),
            lease: Duration::from_secs(3600 * 24 * 365),
            queues: vec![name("default")],
            lanes: vec![lane()],
            build: None,
        };
        let start = Start::of(name("m"), Json::null());
        let ops = [Op::Register(worker), Op::Start(vec![start])];
        let answers = store.run(ops.into()).now_or_never().unwrap().unwrap();
        let [Answer::Registered(worker), Answer::Started(started)] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        let Ok(Started::New(id)) = started[0] else {
            panic!("{started:?}")
        };
        Self {
            worker: worker.id,
            id,
            store,
            clock,
            claim: None,
        }
    }

    fn run(&self, op: Op) -> Answer {
        let answers = self.store.run([op].into()).now_or_never().unwrap();
        answers.unwrap().pop().unwrap()
    }

    fn send(&self, at: usize) {
        let delivery = NewCommand::signal(self.id, name(NAMES[at]));
        let Answer::Delivered(each) = self.run(Op::Deliver(vec![delivery])) else {
            panic!("an answer to a delivery")
        };
        assert_eq!(
            each[0].as_ref().unwrap().verdict.outcome(),
            "signal_received"
        );
    }

    /// Claims the instance; the sequences of what its step is handed.
    fn take(&mut self) -> Vec<i64> {
        let request = ClaimRequest {
            worker: self.worker,
            queue: name("default"),
            lanes: vec![lane()],
            limit: 9,
            lease: None,
        };
        let Answer::Claimed(mut claimed) = self.run(Op::Claim(request)) else {
            panic!("an answer to a claim")
        };
        assert_eq!(claimed.len(), 1);
        let claimed = claimed.pop().unwrap();
        self.claim = Some(claimed.claim);
        let handed = claimed.awaited.iter().map(|one| one.sequence.unwrap().0);
        handed.collect()
    }

    fn commit(&mut self, outcome: Outcome) {
        let commit = Commit {
            claim: self.claim.take().unwrap(),
            outcome,
            keep: false,
            took: Duration::ZERO,
            error: None,
        };
        let commits = vec![commit];
        let serves = Vec::new();
        let Answer::Committed(each) = self.run(Op::Commit { commits, serves }) else {
            panic!("an answer to a commit")
        };
        assert!(matches!(each[0], Committed::Moved(_)), "{each:?}");
        self.id = self.newest().id;
    }

    fn newest(&self) -> Instance {
        let all = Filter::default();
        let page = self.store.list(&all, None, 1).now_or_never().unwrap();
        page.unwrap().items.pop().unwrap()
    }

    fn pending(&self) -> Vec<i64> {
        let inbox = self.store.inbox(self.id).now_or_never().unwrap().unwrap();
        inbox.iter().map(|one| one.sequence.unwrap().0).collect()
    }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn lane() -> Lane {
    Lane {
        machine: name("m"),
        version: 1,
    }
}

/// Lets something happen to both, if it can happen now.
fn happen(what: Happens, model: &mut Model, subject: &mut Subject) {
    let state = Json::null();
    match (what, model.stands) {
        (Happens::Send(at), _) => {
            model.send(at);
            subject.send(at);
        }
        (Happens::Claim, Stands::Runnable) => {
            model.stands = Stands::Executing;
            let handed: Vec<i64> = model.handed.iter().copied().collect();
            assert_eq!(subject.take(), handed, "what the step is handed");
        }
        (Happens::Next, Stands::Executing) => {
            model.consume();
            subject.commit(Outcome::Next {
                step: name("on"),
                state,
                delay_ms: 0,
            });
        }
        (Happens::Continue, Stands::Executing) => {
            model.consume();
            subject.commit(Outcome::ContinueAsNew {
                step: name("again"),
                state,
                version: None,
            });
        }
        (Happens::Retry, Stands::Executing) => {
            model.stands = Stands::Runnable;
            subject.commit(Outcome::Retry { state, delay_ms: 0 });
        }
        (Happens::Wait(names), Stands::Executing) => {
            let signals = names.iter().map(|at| name(NAMES[*at])).collect();
            model.wait(names);
            subject.commit(Outcome::Wait(Wait {
                signals,
                events: Vec::new(),
                timeout_ms: Some(TIMEOUT.as_millis() as u64),
                next: name("woken"),
                state,
            }));
        }
        (Happens::GiveBack, Stands::Executing) => {
            model.stands = Stands::Runnable;
            let claims = subject.claim.take().into_iter().collect();
            subject.run(Op::GiveBack(claims));
        }
        (Happens::TimeOut, Stands::Parked) => {
            model.wake();
            model.timed_out = true;
            subject.clock.advance(TIMEOUT);
            subject.run(Op::Fire { limit: 9 });
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_step_is_handed_its_pack_and_consumes_exactly_that(
        happenings in prop::collection::vec(some_happening(), 1..60)
    ) {
        // rules 4.1, 7.2, 7.4, 7.5 and 7.7
        let (mut model, mut subject) = (Model::new(), Subject::new());
        for what in happenings {
            happen(what, &mut model, &mut subject);
            let found = subject.newest();
            let stands = match found.status {
                Status::AwaitingSignal => Stands::Parked,
                Status::Runnable => Stands::Runnable,
                Status::Executing => Stands::Executing,
                other => panic!("it is {other}"),
            };
            prop_assert_eq!(stands, model.stands);
            prop_assert_eq!(found.timed_out, model.timed_out);
            prop_assert_eq!(found.inbox.sequence.0, model.sequence);
            prop_assert_eq!(found.inbox.cursor.0, model.cursor);
            let pending: Vec<i64> = model.pending.iter().map(|(seq, _)| *seq).collect();
            prop_assert_eq!(subject.pending(), pending);
            prop_assert_eq!(found.inbox.signals as usize, model.pending.len());
        }
    }
}
