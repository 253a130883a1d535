//! A deadline and a signal that race: exactly one of them wins, and the history tells which.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::{self, Lab};
use abide::client::new_start;
use abide::history::HistoryEvent;
use abide::model::CommandStatus;
use abide::model::WaitId;
use abide::time::millis;
use abide::{Context, InstanceId, Machine, Outcome, Signal, Step};
use abide::{done, next};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

/// The number of instances that race at once.
const RACERS: usize = 100;
/// The number of races of each: ten thousand races on each store.
const ROUNDS: usize = 100;
/// The duration of a wait. The signal is sent at any moment from the opening of the wait to twice that.
const TIMEOUT: Duration = millis(8);

const OVER: Signal<()> = Signal::new("over");

/// The waits of one instance: `true` for each that a deadline ended.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Seen(Vec<bool>);

#[derive(Step)]
enum Leg {
    Race,
    Ended,
    Last,
}

/// Waits for a signal of a name of its own, again and again, each time with a deadline.
#[derive(Clone)]
struct Racer {
    /// Notified of each wait just before it opens.
    opens: mpsc::UnboundedSender<(InstanceId, usize)>,
}

fn name(round: usize) -> String {
    format!("go-{round}")
}

impl Machine for Racer {
    const NAME: &'static str = "racer";
    type Step = Leg;
    type State = Seen;
    type Output = Seen;

    async fn step(&self, at: Leg, ctx: &mut Context<Self>) -> Outcome<Self> {
        let round = ctx.state().0.len();
        match at {
            Leg::Race if round == ROUNDS => ctx.wait_for(OVER).then(Leg::Last),
            Leg::Race => {
                self.opens.send((ctx.id(), round)).unwrap();
                ctx.wait_for(name(round)).timeout(TIMEOUT).then(Leg::Ended)
            }
            Leg::Ended => {
                let (got, timed_out) = (ctx.got(name(round)), ctx.timed_out());
                assert_ne!(got, timed_out, "one of them, and never both");
                assert_eq!(ctx.signals().len(), usize::from(got));
                ctx.state_mut().0.push(timed_out);
                next(Leg::Race)
            }
            Leg::Last => done(ctx.state().clone()),
        }
    }
}

on_every_store! {
    async fn of_ten_thousand_races_each_has_one_winner(lab: Lab) {
        // rules 7.5 and 7.6
        let (opens, mut opened) = mpsc::unbounded_channel();
        let racer = Racer { opens };
        let engine = lab.engine().queue("default", RACERS).machine(racer.clone()).start().await.unwrap();
        let starts = (0..RACERS).map(|_| new_start(racer.clone(), Seen::default()));
        let ids: Vec<_> = lab.start_all(starts).await.unwrap().into_iter().map(|one| one.unwrap().id()).collect();
        // A step that is run again tells of its wait once more; it is raced once.
        let mut raced = std::collections::HashSet::new();
        let mut senders = tokio::task::JoinSet::new();
        while raced.len() < RACERS * ROUNDS {
            let (id, round) = common::soon("the next wait to open", opened.recv()).await.unwrap();
            if !raced.insert((id, round)) {
                continue;
            }
            let lab = lab.clone();
            // Spread over the whole time, and the same in every run of this test.
            let spread = (u64::try_from(id.0).unwrap() * 7 + round as u64 * 13) % 17;
            let delay = TIMEOUT.mul_f64(spread as f64 / 8.0);
            senders.spawn(async move {
                tokio::time::sleep(delay).await;
                lab.signal(id, &name(round), abide::message::Arguments::default()).await.unwrap();
            });
        }
        while let Some(sent) = senders.join_next().await {
            sent.unwrap();
        }
        for id in &ids {
            lab.signal(*id, OVER, &()).await.unwrap();
        }
        let mut late = 0;
        for id in ids {
            late += audit(&lab, id).await;
        }
        let raced = RACERS * ROUNDS;
        println!("of {raced} races the deadline won {late}, and the signal {}", raced - late);
        assert!(late > 0 && late < raced, "both win sometimes: {late}");
        engine.shutdown().await;
    }
}

/// Holds what an instance saw against its history and its records; how often the deadline won.
async fn audit(lab: &Lab, id: InstanceId) -> usize {
    let seen: Seen = lab.ended(id).await.result.unwrap().to().unwrap();
    assert_eq!(seen.0.len(), ROUNDS);
    let mut wait: Option<WaitId> = None;
    let mut ended: Vec<&str> = Vec::new();
    // The signals that were there before their wait, by the id that it adopts.
    let mut buffered: HashMap<WaitId, ()> = HashMap::new();
    let mut rounds = Vec::new();
    for entry in lab.events(id).await {
        match entry.what {
            HistoryEvent::WaitOpened { wait_id, .. } => {
                wait = wait_id;
                ended.clear();
                if buffered.remove(wait.as_ref().unwrap()).is_some() {
                    ended.push("signal");
                }
            }
            HistoryEvent::TimedOut { wait_id, .. } => {
                assert_eq!(wait_id, wait);
                ended.push("deadline");
            }
            HistoryEvent::SignalReceived { wait_id, .. } if Some(&wait_id) == wait.as_ref() => {
                ended.push("signal")
            }
            HistoryEvent::SignalReceived { wait_id, .. } => drop(buffered.insert(wait_id, ())),
            HistoryEvent::StepCompleted { step, .. } if step.as_str() == "ended" => {
                rounds.push(ended == ["deadline"]);
                assert_eq!(ended.len(), 1, "round {}: {ended:?}", rounds.len());
                wait = None;
            }
            _ => {}
        }
    }
    assert_eq!(rounds, seen.0, "the history tells what the steps saw");
    let page = lab.commands(id, None, 2 * ROUNDS).await.unwrap();
    assert_eq!(page.items.len(), ROUNDS + 1);
    for record in page.items {
        let round = record
            .name
            .as_str()
            .strip_prefix("go-")
            .map(|round| round.parse::<usize>().unwrap());
        let lost = round.is_some_and(|round| seen.0[round]);
        let expected = if lost {
            CommandStatus::Discarded
        } else {
            CommandStatus::Applied
        };
        assert_eq!(record.status, expected, "{record:?}");
    }
    rounds.into_iter().filter(|late| *late).count()
}
