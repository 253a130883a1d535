//! The state of the demo, tick by tick: the workers, what has happened, and the steps of dead workers.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use abide::model::{Instance, WorkerId};
use abide::store::Filter;
use abide::{Abide, Error, InstanceId, Status};
use serde::Serialize;
use tokio::sync::mpsc;

use super::death::{Death, Held, several};
use super::{Audit, Crew, Open, Traffic, WorkerChange, called, name_of};

/// The period over which the steps per second are counted.
const WINDOW: Duration = Duration::from_secs(5);
/// Maximum number of running instances that are read.
const RUNNING_MAX: usize = 1_000;

/// Something that has happened, as text.
#[derive(Clone, Debug)]
pub enum Event {
    /// A worker died.
    Died(String),
    /// The steps of a dead worker continue.
    WentOn(String),
    /// A worker was restarted.
    Back(String),
    /// An instance has ended.
    Ended(String),
}

impl Event {
    /// The text.
    pub fn text(&self) -> &str {
        match self {
            Self::Died(text) | Self::WentOn(text) | Self::Back(text) | Self::Ended(text) => text,
        }
    }
}

/// The current state of a worker process.
#[derive(Clone, Debug, Serialize)]
pub struct Member {
    /// Its number.
    pub number: u32,
    /// Its process id; `None` while it is dead.
    pub pid: Option<u32>,
    /// `true` if it has begun to run steps.
    pub is_ready: bool,
    /// Number of steps that it is running.
    pub running: u64,
    /// Seconds since it was started, or since it died.
    pub since_s: u64,
    /// Number of times it was killed.
    pub killed: u64,
    #[serde(skip)]
    since: Instant,
    #[serde(skip)]
    committed: u64,
}

/// The current state of the demo.
#[derive(Clone, Debug, Serialize)]
pub struct Shown {
    /// The workers.
    pub workers: Vec<Member>,
    /// Number of running instances, including children.
    pub running: u64,
    /// Number of instances that a worker could claim.
    pub ready: u64,
    /// Number of instances that wait for a signal, an event, a child or a time.
    pub waiting: u64,
    /// Commands for the user, to be written after `abide --store URL`.
    pub for_you: Vec<String>,
    /// Number of instances that were started.
    pub began: u64,
    /// Number of instances that have ended.
    pub ended: u64,
    /// Steps per second that workers commit.
    pub steps_per_second: f64,
}

/// The result of the demo.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Number of instances that were started.
    pub began: u64,
    /// Number of instances that existed before.
    pub found: u64,
    /// Number of instances that have ended.
    pub ended: u64,
    /// Number of instances that have not ended.
    pub open: u64,
    /// Number of times a worker was killed.
    pub killed: u64,
    /// Number of steps that were running at those times.
    pub cut: u64,
    /// Number of steps that the ended instances and their children have committed.
    pub steps: u64,
    /// Number of those steps that ran again because a worker died.
    pub again: u64,
    /// The problems, each with the name of the instance.
    pub wrong: Vec<String>,
}

/// The running demo.
pub struct Scene {
    abide: Abide,
    crew: Crew,
    changes: mpsc::Receiver<(u32, WorkerChange)>,
    traffic: Traffic,
    audit: Audit,
    found: u64,
    members: Vec<Member>,
    /// All worker ids that were ever registered, and the number of the worker process for each.
    known: BTreeMap<WorkerId, u32>,
    deaths: Vec<Death>,
    killed: u64,
    cut: u64,
    commits: VecDeque<(Instant, u64)>,
}

impl Scene {
    /// Makes a demo with these workers and this traffic.
    pub fn new(
        abide: &Abide,
        (crew, changes): (Crew, mpsc::Receiver<(u32, WorkerChange)>),
        workers: u32,
        traffic: Traffic,
    ) -> Self {
        let members = (1..=workers).map(|number| Member {
            number,
            pid: None,
            is_ready: false,
            running: 0,
            since_s: 0,
            killed: 0,
            since: Instant::now(),
            committed: 0,
        });
        Self {
            abide: abide.clone(),
            crew,
            changes,
            found: (traffic.open().len() as u64).saturating_sub(traffic.began()),
            traffic,
            audit: Audit::default(),
            members: members.collect(),
            known: BTreeMap::new(),
            deaths: Vec::new(),
            killed: 0,
            cut: 0,
            commits: VecDeque::new(),
        }
    }

    /// Waits for the next change of a worker process.
    pub async fn next_change(&mut self) -> Option<(u32, WorkerChange)> {
        self.changes.recv().await
    }

    /// The workers, as they were at the last tick.
    pub fn workers(&self) -> &[Member] {
        &self.members
    }

    /// The instances that wait for the user, the oldest first.
    pub fn left(&self) -> impl Iterator<Item = &Open> {
        self.traffic.open().values().filter(|one| one.left)
    }

    /// Kills a worker. Returns `false` if there is none with this number.
    pub fn kill(&self, number: u32) -> bool {
        self.crew.kill(number)
    }

    /// Handles a change of a worker process.
    pub async fn handle(
        &mut self,
        number: u32,
        change: WorkerChange,
    ) -> Result<Option<Event>, Error> {
        let now = Instant::now();
        let index = (number as usize).saturating_sub(1);
        let Some(member) = self.members.get_mut(index) else {
            return Ok(None);
        };
        match change {
            WorkerChange::Started(pid) => {
                (member.pid, member.since, member.committed) = (Some(pid), now, 0);
                let back = format!("worker {number} was started again, as process {pid}");
                Ok((member.killed > 0).then_some(Event::Back(back)))
            }
            WorkerChange::Committed(committed) => {
                let fresh = committed.saturating_sub(member.committed);
                (member.committed, member.is_ready) = (committed, true);
                self.commits.push_back((now, fresh));
                Ok(None)
            }
            WorkerChange::Ended { killed, how } => {
                member.killed += u64::from(killed);
                self.killed += u64::from(killed);
                (member.pid, member.since, member.running) = (None, now, 0);
                member.is_ready = false;
                let held = self.held_by(number).await?;
                self.cut += held.len() as u64;
                let names: Vec<&str> = held.iter().map(|one| one.name.as_str()).collect();
                let text = match names.len() {
                    0 => format!("worker {number} {how} while it ran nothing"),
                    1 => format!("worker {number} {how} while it ran {}", several(&names)),
                    count => format!(
                        "worker {number} {how} while it ran {count} steps: {}",
                        several(&names)
                    ),
                };
                if !held.is_empty() {
                    self.deaths.push(Death::new(held));
                }
                Ok(Some(Event::Died(text)))
            }
        }
    }

    /// The steps that a worker holds.
    async fn held_by(&mut self, number: u32) -> Result<Vec<Held>, Error> {
        self.meet().await?;
        let mut held = Vec::new();
        for instance in self.running().await? {
            let holder = instance.worker.and_then(|id| self.known.get(&id));
            if holder == Some(&number) {
                let name = self.named(&instance).await?;
                held.push(Held::new(&instance, name));
            }
        }
        Ok(held)
    }

    /// The name of an instance; for a child, with the name of its parent.
    async fn named(&self, instance: &Instance) -> Result<String, Error> {
        let parent = match instance.parent {
            Some(parent) if instance.key.is_none() => self.abide.get(parent).await?,
            _ => None,
        };
        Ok(match parent {
            Some(parent) => {
                let machine = instance.machine.as_str();
                let machine = machine.strip_prefix("task/").unwrap_or(machine);
                format!("{machine} of {}", called(&parent))
            }
            None => called(instance),
        })
    }

    async fn running(&self) -> Result<Vec<Instance>, Error> {
        let filter = Filter {
            status: Some(Status::Executing),
            ..Filter::default()
        };
        Ok(self.abide.list(&filter, None, RUNNING_MAX).await?.items)
    }

    /// Records the ids under which the workers are registered.
    async fn meet(&mut self) -> Result<(), Error> {
        for worker in self.abide.workers().await? {
            // A worker whose lease has expired registers again, with a suffix after `~`.
            let name = worker.name.as_str().split('~').next().unwrap_or_default();
            let mut members = self.members.iter();
            if let Some(member) = members.find(|member| name_of(member.number) == name) {
                self.known.insert(worker.id, member.number);
            }
        }
        Ok(())
    }

    /// Sends the traffic that is due, and checks what has happened.
    pub async fn tick(&mut self) -> Result<Vec<Event>, Error> {
        self.traffic.tick().await?;
        self.meet().await?;
        let mut busy: BTreeMap<u32, u64> = BTreeMap::new();
        for instance in self.running().await? {
            let holder = instance.worker.and_then(|id| self.known.get(&id));
            *busy.entry(holder.copied().unwrap_or_default()).or_default() += 1;
        }
        for member in &mut self.members {
            let running = busy.get(&member.number).copied().unwrap_or_default();
            // The instances of a dead worker still name it until its lease expires.
            member.running = running * u64::from(member.pid.is_some());
        }
        let mut events = Vec::new();
        for death in &mut self.deaths {
            events.extend(
                death
                    .describe(&self.abide, &self.known)
                    .await?
                    .map(Event::WentOn),
            );
        }
        self.deaths.retain(|death| !death.is_over());
        let ended = self.settle().await?;
        events.extend(ended.into_iter().map(Event::Ended));
        Ok(events)
    }

    /// Finds and audits the instances that have ended. Returns their results as text.
    async fn settle(&mut self) -> Result<Vec<String>, Error> {
        let open: Vec<InstanceId> = self.traffic.open().keys().copied().collect();
        let (ended, missing) = self.abide.store().endings(&open).await?;
        let mut texts = Vec::new();
        for id in ended.iter().map(|one| one.id).chain(missing) {
            if let Some(instance) = self.audit.see(&self.abide, id).await? {
                texts.push(came_to(&instance));
            }
            self.traffic.ended(id);
        }
        Ok(texts)
    }

    /// Reads the current state.
    pub async fn shown(&mut self) -> Result<Shown, Error> {
        let now = Instant::now();
        while self
            .commits
            .front()
            .is_some_and(|(at, _)| now - *at > WINDOW)
        {
            self.commits.pop_front();
        }
        let steps: u64 = self.commits.iter().map(|(_, count)| count).sum();
        for member in &mut self.members {
            member.since_s = (now - member.since).as_secs();
        }
        let depths = self.abide.depths().await?;
        let sum = |wanted: &[Status]| {
            let those = depths.iter().filter(|one| wanted.contains(&one.status));
            those.map(|one| one.count).sum()
        };
        Ok(Shown {
            workers: self.members.clone(),
            running: sum(&[Status::Executing]),
            ready: sum(&[Status::Runnable]),
            waiting: sum(&[
                Status::AwaitingSignal,
                Status::AwaitingChildren,
                Status::Scheduled,
                Status::Reserved,
            ]),
            for_you: self.left().filter_map(Open::deed).collect(),
            began: self.traffic.began(),
            ended: self.audit.ended,
            steps_per_second: steps as f64 / WINDOW.as_secs_f64(),
        })
    }

    /// Ends the workers in order, and audits a last time.
    pub async fn end(mut self) -> Result<Summary, Error> {
        self.changes.close();
        let crew = std::mem::take(&mut self.crew);
        crew.end().await;
        self.settle().await?;
        Ok(Summary {
            began: self.traffic.began(),
            found: self.found,
            ended: self.audit.ended,
            open: self.traffic.open().len() as u64,
            killed: self.killed,
            cut: self.cut,
            steps: self.audit.steps,
            again: self.audit.again,
            wrong: self.audit.wrong,
        })
    }
}

/// The result of an instance as text.
fn came_to(instance: &Instance) -> String {
    let result = instance.result.as_ref();
    let result = result.and_then(|result| result.to::<serde_json::Value>().ok());
    // The result of a graph contains the results of its last steps.
    let text = match &result {
        Some(serde_json::Value::Object(steps)) => steps.values().find_map(|one| one.as_str()),
        Some(value) => value.as_str(),
        None => None,
    };
    let name = called(instance);
    match (text, &instance.last_error) {
        (Some(text), _) => format!("{name}: {text}"),
        (None, Some(error)) => format!("{name} {}: {error}", instance.status),
        (None, None) => format!("{name} is {}", instance.status),
    }
}
