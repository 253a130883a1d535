//! Carries out requests that may arrive more than once: each once, with the same answer from then on (rule 1.5).
//!
//! The store's knowledge about the requests is read before anything is locked, in one statement for the whole
//! transaction. An answer is written in the transaction that carried out the request. Requests of the same kind are
//! carried out together.

use std::collections::HashMap;

use abide_core::model::{Name, Refusal, RequestId};
use futures_util::future::BoxFuture;

use crate::run::Turn;
use crate::{Answer, Error, Once, Op, Recall, Remembered, Result, Txn, Write};

/// The maximum size of a stored answer, in bytes of JSON. A request with a larger answer is not carried out twice
/// either: it is refused from then on.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// The store's knowledge about the requests of one transaction.
#[derive(Default)]
pub(crate) struct Requests(HashMap<(String, Name, u32), Recall>);

impl Requests {
    /// Returns the operations of the requests that will be carried out. Leaves out those that were carried out before.
    pub fn to_run<'o>(&self, requests: &'o [Once]) -> impl Iterator<Item = &'o Op> {
        let new = requests.iter().filter(|one| self.is_new(&one.id));
        new.flat_map(|one| &*one.ops)
    }

    fn get(&self, id: &RequestId) -> Option<&Recall> {
        self.0.get(&identity(id))
    }

    fn is_new(&self, id: &RequestId) -> bool {
        matches!(self.get(id), Some(Recall::New))
    }

    /// Returns the answer to a request that is not carried out now.
    fn repeated(&self, id: &RequestId) -> Result<Result<Remembered, Refusal>> {
        let key = id.key.clone();
        let (fingerprint, answer) = match self.get(id) {
            Some(Recall::Done {
                fingerprint,
                answer,
            }) => (fingerprint, answer),
            Some(Recall::Running) => return Ok(Err(Refusal::RequestRunning { key })),
            Some(Recall::New) | None => {
                let problem = "requests cannot be carried out inside of requests".into();
                return Err(Error::Refused(Refusal::Denied { problem }));
            }
        };
        if *fingerprint != id.fingerprint {
            return Ok(Err(Refusal::RequestReused { key }));
        }
        let Some(answer) = answer else {
            return Ok(Err(Refusal::AnswerNotKept { key }));
        };
        let answers = serde_json::from_str(answer).map_err(|error| {
            Error::Broken(format!(
                "the answer to request {key:?} cannot be read: {error}"
            ))
        })?;
        let replayed = true;
        Ok(Ok(Remembered { answers, replayed }))
    }
}

fn identity(id: &RequestId) -> (String, Name, u32) {
    (id.caller.clone(), id.key.clone(), id.part)
}

impl<T: Txn> Turn<'_, T> {
    /// Looks up the requests of these operations; reads nothing if there are none.
    pub async fn recall(&mut self, ops: &[Op]) -> Result<()> {
        let requests = ops.iter().flat_map(|op| op.parts().requests);
        let mut distinct: Vec<&RequestId> = Vec::new();
        for one in requests {
            // A default, until the store has answered.
            if self
                .requests
                .0
                .insert(identity(&one.id), Recall::Running)
                .is_none()
            {
                distinct.push(&one.id);
            }
        }
        if distinct.is_empty() {
            return Ok(());
        }
        let known = self.txn.recall(&distinct).await?;
        for (id, known) in distinct.into_iter().zip(known) {
            self.requests.0.insert(identity(id), known);
        }
        Ok(())
    }
}

/// Carries out the new requests, and returns the stored answers of the others.
pub(crate) fn once<'t, T: Txn>(
    turn: &'t mut Turn<'_, T>,
    requests: &'t [Once],
) -> BoxFuture<'t, Result<Vec<Result<Remembered, Refusal>>>> {
    Box::pin(async move {
        turn.limits.check_batch(requests.len())?;
        let mut new: Vec<&Once> = Vec::new();
        let mut first = Vec::with_capacity(requests.len());
        for one in requests {
            let is_first = turn.requests.is_new(&one.id);
            if is_first {
                // A request that occurs twice in a batch gets the answer of the first.
                turn.requests.0.insert(identity(&one.id), Recall::Running);
                new.push(one);
            }
            first.push(is_first);
        }
        turn.bench.all_or_nothing = true;
        let answers = run(turn, &new).await;
        turn.bench.all_or_nothing = false;
        let answers = answers?;
        remember(turn, &new, &answers).await?;
        let mut answers = answers.into_iter();
        let mut each = Vec::with_capacity(requests.len());
        for (one, is_first) in requests.iter().zip(first) {
            each.push(match is_first {
                true => Ok(Remembered {
                    answers: answers.next().unwrap_or_default(),
                    replayed: false,
                }),
                false => turn.requests.repeated(&one.id)?,
            });
        }
        Ok(each)
    })
}

/// Runs the operations of new requests. Returns the answers of each request.
async fn run<T: Txn>(turn: &mut Turn<'_, T>, new: &[&Once]) -> Result<Vec<Vec<Answer>>> {
    if let Some((op, sizes)) = merged(new, turn.limits.batch_entries) {
        let answer = turn.answer(&op).await?;
        let answers = split(answer, &sizes).ok_or_else(Error::unexpected_answer)?;
        return Ok(answers.into_iter().map(|answer| vec![answer]).collect());
    }
    let mut each = Vec::with_capacity(new.len());
    for one in new {
        let mut answers = Vec::with_capacity(one.ops.len());
        for op in &*one.ops {
            answers.push(turn.answer(op).await?);
        }
        each.push(answers);
    }
    Ok(each)
}

/// Stores the answers to requests.
async fn remember<T: Txn>(
    turn: &mut Turn<'_, T>,
    new: &[&Once],
    answers: &[Vec<Answer>],
) -> Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let mut texts = Vec::with_capacity(new.len());
    for (one, answers) in new.iter().zip(answers) {
        let text = serde_json::to_string(answers)
            .map_err(|error| Error::Broken(format!("an answer cannot be written: {error}")))?;
        texts.push((
            &one.id,
            Some(text).filter(|text| text.len() <= ANSWER_BYTES_MAX),
        ));
    }
    let kept: Vec<(&RequestId, Option<&str>)> = texts
        .iter()
        .map(|(id, text)| (*id, text.as_deref()))
        .collect();
    turn.txn.write(Write::Remember(&kept, turn.now)).await?;
    for (id, answer) in texts {
        let fingerprint = id.fingerprint.clone();
        let done = Recall::Done {
            fingerprint,
            answer,
        };
        turn.requests.0.insert(identity(id), done);
    }
    Ok(())
}

/// Returns one operation for all these requests, and the number of its entries per request. Returns `None` if they are
/// of different kinds, or exceed the limit of one operation.
fn merged(new: &[&Once], most: usize) -> Option<(Op, Vec<usize>)> {
    let ops = new.iter().map(|one| match &*one.ops {
        [op] => Some(op),
        _ => None,
    });
    let ops: Vec<&Op> = ops.collect::<Option<_>>()?;
    if ops.len() < 2 {
        return None;
    }
    macro_rules! merge {
        ($($kind:ident),*) => {
            match ops.first()? {
                $(Op::$kind(_) => {
                    let lists = ops.iter().map(|op| match op {
                        Op::$kind(entries) => Some(entries),
                        _ => None,
                    });
                    let lists: Vec<&Vec<_>> = lists.collect::<Option<_>>()?;
                    let sizes: Vec<usize> = lists.iter().map(|list| list.len()).collect();
                    let fits = sizes.iter().sum::<usize>() <= most;
                    fits.then(|| (Op::$kind(lists.into_iter().flatten().cloned().collect()), sizes))
                })*
                _ => None,
            }
        };
    }
    merge!(Start, Deliver, Publish)
}

/// Splits the answer to a merged operation by request.
fn split(answer: Answer, sizes: &[usize]) -> Option<Vec<Answer>> {
    fn apart<E>(each: Vec<E>, sizes: &[usize], of: fn(Vec<E>) -> Answer) -> Vec<Answer> {
        let mut each = each.into_iter();
        let parts = sizes.iter().map(|size| each.by_ref().take(*size).collect());
        parts.map(of).collect()
    }
    match answer {
        Answer::Started(each) => Some(apart(each, sizes, Answer::Started)),
        Answer::Delivered(each) => Some(apart(each, sizes, Answer::Delivered)),
        Answer::Published(each) => Some(apart(each, sizes, Answer::Published)),
        _ => None,
    }
}
