//! The outcome of a step as JSON, in the form that workers over HTTP send.

use std::collections::BTreeMap;
use std::time::Duration;

use abide::model::{CommandId, Condition, Json, Name, Start};
use abide::outbox::{StartRequest, Wanted};
use abide_kernel::model::{Answered, EventWait, Join, Outcome, Wait};
use serde::Deserialize;
use serde::de::IgnoredAny;
use utoipa::ToSchema;

use crate::http::dto::{Graphs, Millis, given, wanted};
use crate::http::{App, Problem, unfit};

/// The outcome of a step: an object with one field, which names the outcome.
#[derive(Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[schema(as = Outcome)]
pub enum OutcomeRequest {
    /// Go to another step, now or after a delay.
    Next {
        /// The step to run.
        step: Name,
        /// The state to run it with.
        state: Json,
        /// The delay.
        #[schema(value_type = Option<i64>, minimum = 0, maximum = 3_153_600_000_000_i64)]
        delay_ms: Option<Millis>,
    },
    /// Run the same step again after a delay, as the next attempt.
    Retry {
        /// The state to run it with.
        state: Json,
        /// The delay.
        #[schema(value_type = i64, minimum = 0, maximum = 3_153_600_000_000_i64)]
        delay_ms: Millis,
    },
    /// Park until a signal or an event arrives, or the time is up.
    Wait {
        /// The signals, any of which wakes it.
        #[serde(default)]
        signals: Vec<Name>,
        /// The events, any of which wakes it.
        #[serde(default)]
        events: Vec<EventRequest>,
        /// How long to wait at most; needed for events.
        #[schema(value_type = Option<i64>, minimum = 0, maximum = 3_153_600_000_000_i64)]
        timeout_ms: Option<Millis>,
        /// The step to run then.
        next: Name,
        /// The state to run it with.
        state: Json,
    },
    /// Start children and park until they have ended.
    Spawn {
        /// The children.
        children: Vec<StartRequest>,
        /// The step to run when they have ended.
        next: Name,
        /// The state to run it with.
        state: Json,
        /// The number of children that must end; all of them if not given.
        join: Option<JoinRequest>,
        /// How long to wait for them at most.
        #[schema(value_type = Option<i64>, minimum = 0, maximum = 3_153_600_000_000_i64)]
        timeout_ms: Option<Millis>,
    },
    /// End as `done`.
    Done {
        /// The result.
        result: Json,
    },
    /// End as `failed`.
    Stop {
        /// Why.
        reason: String,
    },
    /// The step failed: the retry policy that the instance was started with decides, else the one that its machine has
    /// declared; without one it ends badly.
    Fail {
        /// The error.
        error: String,
    },
    /// This build cannot run the step: it does not know it, or cannot read the state or what the step was handed. Nothing is
    /// consumed, and the instance waits for a worker of another build; no updates are answered with it.
    Block {
        /// The reason: the unknown step, or the field that cannot be read.
        reason: String,
    },
    /// Close this run and open the next of its chain, with all messages that are pending.
    ContinueAsNew {
        /// The step to begin at.
        step: Name,
        /// The state to begin with.
        state: Json,
        /// The version of the next run; the same if not given.
        #[schema(minimum = 1, maximum = 2_147_483_647)]
        version: Option<u32>,
    },
    /// Answer the updates that the claim came with. Then the instance returns to its previous state, or continues with `then`.
    Answer {
        /// The answers.
        updates: Vec<AnswerRequest>,
        /// The new state; if not given, the state does not change.
        #[serde(default, deserialize_with = "given")]
        state: Option<Json>,
        /// The outcome that follows; not another `answer`.
        #[schema(no_recursion)]
        then: Option<Box<OutcomeRequest>>,
    },
}

/// An event to wait for.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = EventToAwait)]
pub struct EventRequest {
    /// Its type.
    #[serde(rename = "type")]
    event_type: Name,
    /// The conditions that it must meet, all of them; the right side is a constant.
    #[serde(default)]
    conditions: Vec<Condition>,
    /// How far back to look for one that was published already.
    #[schema(value_type = Option<i64>, minimum = 0, maximum = 3_153_600_000_000_i64)]
    lookback_ms: Option<Millis>,
}

/// How many children must have ended.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = Join)]
pub struct JoinRequest {
    /// That many, or all if there are fewer.
    at_least: u32,
}

/// The answer to one update: a result or an error.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = UpdateAnswer)]
pub struct AnswerRequest {
    /// The update.
    #[schema(value_type = i64)]
    update_id: CommandId,
    /// The answer; default null.
    #[serde(default, deserialize_with = "given")]
    result: Option<Json>,
    /// The error; then the update changed nothing.
    error: Option<String>,
}

/// Reads an outcome, or returns the problem with it.
pub async fn read(app: &App, json: &Json, graphs: &mut Graphs) -> Result<Outcome, Problem> {
    let request: OutcomeRequest = unfit::fit(json.as_str())
        .map_err(|problem| Problem::unprocessable(unfit_outcome(json, &problem)))?;
    outcome(app, request, graphs).await
}

/// Describes why the JSON is not an outcome.
fn unfit_outcome(json: &Json, problem: &str) -> String {
    let fields: Result<BTreeMap<String, IgnoredAny>, _> = serde_json::from_str(json.as_str());
    match fields {
        Ok(fields) if fields.len() == 1 => format!("invalid outcome: {problem}"),
        _ => "invalid outcome: give an object with one field that names it, like {\"done\": {\"result\": 1}}".to_owned(),
    }
}

async fn outcome(
    app: &App,
    request: OutcomeRequest,
    graphs: &mut Graphs,
) -> Result<Outcome, Problem> {
    Ok(match request {
        OutcomeRequest::Answer {
            updates,
            then: None,
            ..
        } if updates.is_empty() => {
            let detail = "it answers no update and nothing follows: answer those that the claim came with, or say what is done";
            return Err(Problem::unprocessable(detail));
        }
        OutcomeRequest::Answer {
            updates,
            state,
            then,
        } => Outcome::Answer {
            updates: updates
                .into_iter()
                .map(answered)
                .collect::<Result<_, _>>()?,
            state,
            then: match then {
                Some(then) => Some(Box::new(plain(app, *then, graphs).await?)),
                None => None,
            },
        },
        other => plain(app, other, graphs).await?,
    })
}

/// Converts all outcomes except `Answer`, which another outcome may follow.
async fn plain(
    app: &App,
    request: OutcomeRequest,
    graphs: &mut Graphs,
) -> Result<Outcome, Problem> {
    Ok(match request {
        OutcomeRequest::Next {
            step,
            state,
            delay_ms,
        } => Outcome::Next {
            step,
            state,
            delay_ms: delay_ms.map_or(0, ms),
        },
        OutcomeRequest::Retry { state, delay_ms } => Outcome::Retry {
            state,
            delay_ms: ms(delay_ms),
        },
        OutcomeRequest::Wait {
            signals,
            events,
            timeout_ms,
            next,
            state,
        } => Outcome::Wait(Wait {
            signals,
            events: events.into_iter().map(EventRequest::wait).collect(),
            timeout_ms: timeout_ms.map(ms),
            next,
            state,
        }),
        OutcomeRequest::Spawn {
            children,
            next,
            state,
            join,
            timeout_ms,
        } => Outcome::Spawn {
            children: starts(app, children, graphs).await?,
            next,
            state,
            join: Join {
                at_least: join.map(|join| join.at_least),
            },
            timeout_ms: timeout_ms.map(ms),
        },
        OutcomeRequest::Done { result } => Outcome::Done { result },
        OutcomeRequest::Stop { reason } => Outcome::Stop { reason },
        OutcomeRequest::Fail { error } => Outcome::Fail { error },
        OutcomeRequest::Block { reason } => Outcome::Block { reason },
        OutcomeRequest::ContinueAsNew {
            step,
            state,
            version,
        } => Outcome::ContinueAsNew {
            step,
            state,
            version,
        },
        OutcomeRequest::Answer { .. } => {
            let detail = "an answer cannot follow an answer: put the updates in one";
            return Err(Problem::unprocessable(detail));
        }
    })
}

async fn starts(
    app: &App,
    children: Vec<StartRequest>,
    graphs: &mut Graphs,
) -> Result<Vec<Start>, Problem> {
    app.limits().check_children(children.len())?;
    let mut starts = Vec::with_capacity(children.len());
    for (at, child) in children.into_iter().enumerate() {
        match wanted(child, app, graphs).await {
            Ok(Wanted::Start(start)) => starts.push(*start),
            Ok(Wanted::Reserve(..)) => {
                let detail = format!(
                    "children[{at}]: a child is started, not reserved: leave `reserve` out"
                );
                return Err(Problem::unprocessable(detail));
            }
            Err(problem) => {
                let detail = format!("children[{at}]: {}", problem.detail);
                return Err(Problem { detail, ..problem });
            }
        }
    }
    Ok(starts)
}

impl EventRequest {
    fn wait(self) -> EventWait {
        EventWait {
            event_type: self.event_type,
            conditions: self.conditions,
            lookback_ms: self.lookback_ms.map(ms),
        }
    }
}

fn answered(answer: AnswerRequest) -> Result<Answered, Problem> {
    if answer.result.is_some() && answer.error.is_some() {
        let update = answer.update_id;
        let detail = format!("the update {update} has a result and an error: give one of them");
        return Err(Problem::unprocessable(detail));
    }
    Ok(Answered {
        update_id: answer.update_id,
        result: answer.result.unwrap_or_default(),
        error: answer.error,
    })
}

fn ms(time: Millis) -> u64 {
    let time: Duration = time.duration();
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
