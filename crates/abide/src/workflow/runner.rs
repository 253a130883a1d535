//! Runs workflows for the engine: one turn at a time, each committed as a whole.

use std::sync::Arc;

use abide_core::model::{
    Blocked, Contract, Declared, Entry, Json, Limits, Name, Outcome, Refusal, Then, WorkflowTurn,
};
use abide_kernel::{Backoff, Clock, OwnTransaction, Store};
use futures_util::future::BoxFuture;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::Workflow;
use super::cache::Cache;
use super::flow::{Flow, Program, Typed, WorkflowCode};
use super::journal::{About, Fresh, Journal};
use super::live::{Live, Stand};
use super::recorded::Recorded;
use super::run_history::{self, RunHistory};
use super::turn::Turn;
use crate::engine::{Ran, Runner, Settings, Task};
use crate::machine::{Definition, Fault};

pub(crate) struct WorkflowRunner {
    declared: Result<(Declared, Option<Contract>), Refusal>,
    program: Arc<dyn Program>,
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    limits: Arc<Limits>,
    cache: Cache,
}

impl WorkflowRunner {
    pub fn new<I, O>(
        flow: Flow<I, O>,
        code: impl WorkflowCode<I, O>,
        store: Arc<dyn Store>,
        limits: Limits,
    ) -> Self
    where
        I: Serialize + DeserializeOwned + 'static,
        O: Serialize + DeserializeOwned + Send + 'static,
    {
        let declared = flow.declared().and_then(|declared| {
            let contract = flow
                .agreement()?
                .map(|agreement| agreement.contract.clone());
            Ok((declared, contract))
        });
        Self::of(declared, Arc::new(Typed::new(code)), store, limits)
    }

    /// Creates a runner for code whose types are hidden.
    pub fn of(
        declared: Result<(Declared, Option<Contract>), Refusal>,
        program: Arc<dyn Program>,
        store: Arc<dyn Store>,
        limits: Limits,
    ) -> Self {
        Self {
            declared,
            program,
            clock: store.clock(),
            store,
            limits: Arc::new(limits),
            cache: Cache::new(0),
        }
    }

    /// Runs one turn of the code, until it waits for input, must be committed, or ends. An operation that was refused
    /// before is not requested again.
    async fn turn(&self, task: &Task, refused: Option<&Refusal>) -> Ran {
        let mut live = match self.cache.take(task.id, task.step_seq, task.generation) {
            Some(live) => live,
            None => match self.revive(task).await {
                Ok(live) => live,
                Err(blocked) => return ran(block(blocked), None),
            },
        };
        let mut turn = Turn::new(self, task, &mut live, refused);
        match turn.take(&mut live).await {
            Ok(then) => {
                // A run that was cancelled by force does not continue, and its steps may hold resources that others
                // wait for.
                let goes_on = matches!(then, Then::GoOn { .. } | Then::Park(_))
                    && live.is_well()
                    && !task.cancelled.is_cancelled();
                let running = matches!(then, Then::GoOn { running: true });
                let held = if goes_on { live.held() } else { 0 };
                let (fresh, within) = (live.take_fresh(), live.take_own());
                let outcome = commit(fresh, held, then);
                if goes_on {
                    let next = task.step_seq.saturating_add(1);
                    self.cache.keep(live, next, task.generation, running);
                }
                ran(outcome, within)
            }
            Err(blocked) => ran(block(blocked), None),
        }
    }

    /// Returns the code, replayed to the end of its history.
    async fn revive(&self, task: &Task) -> Result<Live, Blocked> {
        let history = self.history(task).await?;
        let mut live = begin(
            &*self.program,
            About {
                id: task.id,
                key: task.key.clone(),
                clock: self.clock.clone(),
                limits: self.limits.clone(),
                store: Some(self.store.clone()),
            },
            &task.state,
            history,
        )?;
        if task.is_kept() {
            // The code is new, and does not know of children that ended before.
            live.children_ended = task.children_ended;
            live.check_children = true;
        }
        // If the code has returned, the turn handles that later: it can only end the run.
        match live.replay() {
            Stand::Blocked(blocked) => Err(blocked),
            Stand::Returned(returned) => {
                live.returned = Some(returned);
                Ok(live)
            }
            Stand::Waits => Ok(live),
        }
    }

    /// Reads the run's history, and waits as long as the database is unavailable.
    pub(super) async fn history(&self, task: &Task) -> Result<Vec<Entry>, Blocked> {
        const ROWS: usize = 1_000;
        let mut entries: Vec<Entry> = Vec::new();
        if task.step_seq == 1 {
            // No turn was committed yet.
            return Ok(entries);
        }
        loop {
            // Event 1 is derived from the row.
            let after = entries.last().map_or(1, |entry| entry.seq);
            let rows = self
                .read(|| self.store.history(task.id, after, ROWS))
                .await?;
            let full = abide_kernel::is_full(&rows, ROWS);
            for row in &rows {
                let unpacked = row.unpack().map_err(|error| unreadable(&error))?;
                entries.extend(unpacked);
            }
            if !full {
                return Ok(entries);
            }
        }
    }

    /// Reads from the store. While the store is unavailable, it retries.
    pub(super) async fn read<'s, T>(
        &self,
        read: impl Fn() -> BoxFuture<'s, abide_kernel::Result<T>>,
    ) -> Result<T, Blocked> {
        let mut backoff = Backoff::away();
        loop {
            match read().await {
                Ok(read) => return Ok(read),
                Err(error) if error.is_passing() => {
                    tracing::warn!(%error, "a workflow waits for the database");
                    backoff.pause().await;
                }
                Err(error) => return Err(unreadable(&error)),
            }
        }
    }
}

/// Starts a workflow's code from the beginning, with its history for replay.
pub(super) fn begin(
    program: &dyn Program,
    about: About,
    input: &Json,
    history: impl IntoIterator<Item = Entry>,
) -> Result<Live, Blocked> {
    let journal = Arc::new(Journal::new(about, Recorded::of(history)));
    let workflow = Workflow {
        journal: journal.clone(),
        graph_step: None,
    };
    let made = {
        let _inside = journal.bell.enter();
        let begin = || program.begin(workflow, input);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(begin))
            .unwrap_or_else(|panic| Err(Fault::panic(&*panic)))
    };
    let code = made.map_err(|fault| Blocked {
        operation: 0,
        recorded: "its input".into(),
        requested: format!("another: {fault}"),
        cure: "deploy code that takes it; the run goes on when a worker with such code starts, or when it is repaired".into(),
    })?;
    Ok(Live::new(journal, code))
}

fn unreadable(error: &dyn std::fmt::Display) -> Blocked {
    Blocked {
        operation: 0,
        recorded: "something that cannot be read".into(),
        requested: format!("what can ({error})"),
        cure: "put the database right, and repair the run".into(),
    }
}

/// The problem of code that waits for a signal which cannot be sent to this run.
fn undeclared(signal: &Name, operation: Option<u32>) -> Blocked {
    Blocked {
        operation: operation.unwrap_or_default(),
        recorded: format!(
            "a contract that does not declare the signal {:?}",
            signal.as_str()
        ),
        requested: "a wait for it".into(),
        cure: "deploy code that waits for it only in runs whose contract has it (see `version`), or cancel this run and \
               start another; a run has the contract of the code that starts or continues it"
            .into(),
    }
}

fn ran(outcome: Outcome, within: Option<Box<dyn OwnTransaction>>) -> Ran {
    Ran {
        outcome,
        error: None,
        within,
    }
}

fn commit(fresh: Fresh, held: u32, then: Then) -> Outcome {
    let Fresh {
        operations,
        takes,
        updates,
        children,
        state,
    } = fresh;
    Outcome::Workflow(Box::new(WorkflowTurn {
        operations,
        takes,
        updates,
        held,
        children,
        state,
        then,
    }))
}

/// Blocks a run that cannot continue. It stays as it was before this turn: nothing of the turn is committed.
fn block(blocked: Blocked) -> Outcome {
    tracing::warn!(%blocked, "a workflow cannot go on");
    commit(Fresh::default(), 0, Then::Block(blocked))
}

impl Runner for WorkflowRunner {
    fn declared(&self) -> Result<(Declared, Option<Contract>), Refusal> {
        self.declared.clone()
    }

    fn for_engine(self: Arc<Self>, settings: &Settings) -> Arc<dyn Runner> {
        Arc::new(Self {
            declared: self.declared.clone(),
            program: self.program.clone(),
            store: self.store.clone(),
            clock: self.clock.clone(),
            limits: self.limits.clone(),
            cache: Cache::new(settings.workflows_kept),
        })
    }

    fn query(&self, run: &RunHistory, name: &Name, arguments: &Json) -> Result<Json, String> {
        let live = run_history::replayed(&*self.program, run)?;
        live.query(name, arguments)
    }

    fn fits(&self, run: &RunHistory, _: &Name) -> Result<(), String> {
        run_history::goes_on(&*self.program, run)
    }

    fn run(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran> {
        Box::pin(async move { self.turn(&task, None).await })
    }

    fn answer(self: Arc<Self>, task: Arc<Task>) -> BoxFuture<'static, Ran> {
        self.run(task)
    }

    fn refused(self: Arc<Self>, task: Arc<Task>, refusal: Refusal) -> BoxFuture<'static, Ran> {
        let reason = format!("the workflow's result cannot be stored: {refusal}");
        Box::pin(async move {
            let answer = match refusal {
                // rule 14.7: this wait of the code fails.
                Refusal::TooManyWaiters { .. } => self.turn(&task, Some(&refusal)).await,
                // rules 8.6 and 12.4: the code does not match the run's contract.
                Refusal::UndeclaredSignal { signal, operation } => {
                    ran(block(undeclared(&signal, operation)), None)
                }
                _ => {
                    let reason = reason.clone();
                    ran(commit(Fresh::default(), 0, Then::Stop { reason }), None)
                }
            };
            Ran {
                error: Some(reason),
                ..answer
            }
        })
    }

    fn settled(&self, task: &Task, committed: bool) {
        self.cache.settle(task.id, task.step_seq, committed);
    }
}
