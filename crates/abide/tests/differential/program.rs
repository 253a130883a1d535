//! The workflow that runs the program that is its input.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abide::client::new_start;
use abide::machine::Messages;
use abide::prelude::*;
use abide::workflow::{Attempt, OperationError, Saga, State, WorkflowCode};
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::plan::{Op, Program};

pub const SIGNALS: [Signal<u32>; 3] = [Signal::new("a"), Signal::new("b"), Signal::new("c")];
/// Raises the level by so much; what is above 100 is refused.
pub const RAISE: Update<u32, u32> = Update::new("raise");
/// Raises the level by one, after a step and so much time; what is divisible by 7 fails then.
pub const SLOW: Update<u32, u32> = Update::new("slow");
/// Returns the level, when the first operation is done.
pub const LATE: Update<(), u32> = Update::new("late");
pub const RUN: Flow<Program, Value> = Flow::new("random")
    .messages(|| {
        let [a, b, c] = SIGNALS;
        let messages = Messages::new().signal(a).signal(b).signal(c);
        messages.update(RAISE).update(SLOW).update(LATE)
    })
    .max_deaths(0);
pub const JOB: Job<u32, u32> = Job::new("job").max_deaths(0);

/// The code of [`JOB`].
pub async fn job(input: u32) -> Result<u32, BoxError> {
    if input % 5 == 4 {
        return Err(format!("{input} is too much").into());
    }
    Ok(input * 10)
}

/// The number of times that code of steps ran, and that a workflow's code was begun.
#[derive(Clone, Default)]
pub struct Runs(Arc<AtomicU64>, Arc<AtomicU64>);

impl Runs {
    pub fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

/// The code of [`RUN`].
pub fn code(runs: &Runs) -> impl WorkflowCode<Program, Value> + Clone {
    let runs = runs.clone();
    move |wf: Workflow, program: Program| {
        let runs = runs.clone();
        runs.1.fetch_add(1, Ordering::SeqCst);
        async move {
            let level = wf.state(0);
            wf.on_update(RAISE, {
                let level = level.clone();
                move |by: u32| {
                    level.update(|level| *level += by);
                    if by > 100 {
                        return Err("too much".into());
                    }
                    Ok(level.get())
                }
            });
            let slowly = (level.clone(), runs.clone());
            wf.on_update_async(SLOW, move |wf, time| {
                let (level, runs) = slowly.clone();
                async move {
                    let step = wf.step("raise", || async {
                        runs.0.fetch_add(1, Ordering::SeqCst);
                        Ok::<_, BoxError>(1)
                    });
                    let by = step.await?;
                    wf.sleep(millis(time)).await?;
                    level.update(|level| *level += by);
                    if time % 7 == 0 {
                        return Err("too slow".into());
                    }
                    Ok(level.get())
                }
            });
            let actor = Actor { wf, level, runs };
            let (first, rest) = program.split_at(program.len().min(1));
            let mut results = actor.play(first).await?;
            let level = actor.level.clone();
            actor.wf.on_update(LATE, move |()| Ok(level.get()));
            results.extend(actor.play(rest).await?);
            Ok(json!({"results": results, "level": actor.level.get()}))
        }
    }
}

#[derive(Clone)]
struct Actor {
    wf: Workflow,
    level: State<u32>,
    runs: Runs,
}

type Results = Result<Vec<Value>, BoxError>;

impl Actor {
    /// Runs one operation after the other, and returns their results. An error is a result as well, and does no harm; but a
    /// cancellation ends the program.
    fn play<'a>(&'a self, program: &'a [Op]) -> BoxFuture<'a, Results> {
        Box::pin(async move {
            let mut results = Vec::new();
            for op in program {
                results.push(self.act(op).await?);
            }
            Ok(results)
        })
    }

    async fn act(&self, op: &Op) -> Result<Value, BoxError> {
        let wf = &self.wf;
        Ok(match op {
            Op::Step {
                name,
                fails,
                tries,
                again,
            } => {
                let step = wf.step_with(format!("step {name}"), |attempt: Attempt| async move {
                    self.runs.0.fetch_add(1, Ordering::SeqCst);
                    if attempt.number() < *fails {
                        return Err(format!("attempt {} fails", attempt.number()));
                    }
                    Ok(name * 10 + attempt.number())
                });
                let retry = Retry::every(millis(*again)).attempts(*tries);
                result_of(step.retry(retry).await)?
            }
            Op::Slow(yields) => {
                let step = wf.step("slow", || async move {
                    for _ in 0..*yields {
                        tokio::task::yield_now().await;
                    }
                    Ok::<_, BoxError>(*yields)
                });
                result_of(step.await)?
            }
            Op::Signal { name, within } => {
                let wait = wf.signal(SIGNALS[*name as usize]);
                match within {
                    Some(time) => result_of(wait.timeout(millis(*time)).await)?,
                    None => result_of(wait.await)?,
                }
            }
            Op::Sleep(time) => result_of(wf.sleep(millis(*time)).await)?,
            Op::SleepUntil(time) => result_of(wf.sleep_until(wf.now() + millis(*time)).await)?,
            Op::Job {
                input,
                delay,
                within,
            } => {
                let child = wf.child(new_start(JOB, *input).delay(millis(*delay)));
                match within {
                    Some(time) => result_of(child.timeout(millis(*time)).await)?,
                    None => result_of(child.await)?,
                }
            }
            Op::Jobs {
                delays,
                at_least,
                within,
            } => {
                let jobs = delays.iter().zip(0..);
                let jobs = jobs.map(|(delay, input)| new_start(JOB, input).delay(millis(*delay)));
                let mut children = wf.children(jobs);
                if let Some(count) = at_least {
                    children = children.at_least(*count);
                }
                match within {
                    Some(time) => match children.timeout(millis(*time)).await {
                        Ok(Some(ended)) => all_results(ended)?,
                        other => result_of(other.map(|_| "in vain"))?,
                    },
                    None => match children.await {
                        Ok(ended) => all_results(ended)?,
                        other => result_of(other.map(|_| ()))?,
                    },
                }
            }
            Op::Nested {
                program,
                delay,
                within,
            } => {
                let child = wf.child(new_start(RUN, program.clone()).delay(millis(*delay)));
                match within {
                    Some(time) => result_of(child.timeout(millis(*time)).await)?,
                    None => result_of(child.await)?,
                }
            }
            Op::Condition { level, within } => {
                let wait = wf.condition("level", || self.level.get() >= *level);
                match within {
                    Some(time) => result_of(wait.timeout(millis(*time)).await)?,
                    None => result_of(wait.await)?,
                }
            }
            Op::Raise => {
                self.level.update(|level| *level += 1);
                json!("raised")
            }
            Op::All(branches) => {
                let branches = branches.iter().map(|branch| self.play(branch));
                let all = wf.all(branches.collect::<Vec<_>>()).await;
                json!(all.into_iter().collect::<Result<Vec<_>, _>>()?)
            }
            Op::Select(branches) => {
                let branches = branches.iter().map(|branch| self.play(branch));
                let (position, first) = wf.select(branches.collect::<Vec<_>>()).await;
                json!([position, first?])
            }
            Op::Now => {
                wf.now();
                json!("now")
            }
            Op::Random => {
                wf.random();
                json!("random")
            }
            Op::Uuid => json!(wf.uuid().len()),
            Op::SideEffect(value) => json!(wf.side_effect("value", || *value).await),
            Op::Version(change) => json!(wf.version(&format!("change {change}"), 0..=*change)),
            Op::Saga { does, fails } => {
                let undone = Arc::new(Mutex::new(Vec::new()));
                let saga = wf.saga(async |saga: Saga| {
                    let mut results = Vec::new();
                    for (op, position) in does.iter().zip(0_u32..) {
                        results.push(Box::pin(self.act(op)).await?);
                        let (runs, undone) = (self.runs.clone(), undone.clone());
                        saga.undo(format!("undo {position}"), move || {
                            runs.0.fetch_add(1, Ordering::SeqCst);
                            undone.lock().unwrap().push(position);
                            async { Ok::<_, BoxError>(()) }
                        });
                    }
                    match fails {
                        true => Err("the saga fails".into()),
                        false => Ok(results),
                    }
                });
                match saga.await {
                    Err(error) if wf.cancelled().is_some() => return Err(error),
                    Err(error) => json!(error.to_string()),
                    Ok(results) => json!(results),
                }
            }
            Op::Undetermined => json!(self.runs.1.load(Ordering::SeqCst)),
            Op::Again(program) => return wf.continue_as_new(program),
            Op::Fail => return Err("it fails".into()),
        })
    }
}

/// Returns the result of an operation. A cancellation is passed on.
fn result_of<T: serde::Serialize>(came_to: Result<T, OperationError>) -> Result<Value, BoxError> {
    match came_to {
        Ok(value) => Ok(json!(value)),
        Err(error) if error.is_cancelled() => Err(error.into()),
        Err(OperationError::Child { status, error, .. }) => {
            Ok(json!({"child": status, "error": error}))
        }
        Err(error) => Ok(json!(error.to_string())),
    }
}

fn all_results<T: serde::Serialize>(
    ended: Vec<Result<T, OperationError>>,
) -> Result<Value, BoxError> {
    let ended: Result<Vec<Value>, BoxError> = ended.into_iter().map(result_of).collect();
    Ok(json!(ended?))
}

pub fn millis(time: u32) -> Duration {
    Duration::from_millis(u64::from(time))
}
