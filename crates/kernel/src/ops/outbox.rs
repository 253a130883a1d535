//! Takes requests of the outbox: carries them out in order, records the refused ones, and deletes their rows. All of
//! this is one transaction, so each request is carried out exactly once (rule 17.3).

use std::collections::BTreeSet;

use abide_core::model::{
    AnyKey, Cancel, Delivered, Operated, OutboxId, Refusal, Started, Target, Verdict,
};
use futures_util::future::BoxFuture;

use crate::outbox::{OutboxAction, OutboxEntry, OutboxProblem};
use crate::run::Turn;
use crate::{Answer, Error, Forget, Op, Result, Txn, Write};

/// The outbox rows that a transaction has locked.
#[derive(Default)]
pub(crate) enum Held {
    /// No row was requested.
    #[default]
    None,
    /// Another transaction is taking rows.
    Busy,
    /// The requested rows that still exist.
    Rows(BTreeSet<OutboxId>),
}

impl Held {
    /// Returns the operations of the entries whose rows are held.
    pub fn to_run<'o>(&self, entries: &'o [OutboxEntry]) -> impl Iterator<Item = &'o Op> {
        let held = entries.iter().filter(|entry| self.has(entry.id));
        held.filter_map(OutboxEntry::op)
    }

    fn has(&self, id: OutboxId) -> bool {
        matches!(self, Self::Rows(rows) if rows.contains(&id))
    }
}

impl OutboxEntry {
    /// Returns the operation to carry out, if there is one.
    pub(crate) fn op(&self) -> Option<&Op> {
        match &self.action {
            OutboxAction::Run(op) => Some(op),
            OutboxAction::Refuse(_) => None,
        }
    }
}

impl<T: Txn> Turn<'_, T> {
    /// Locks the outbox rows that these operations take; does nothing if there are none.
    pub async fn hold_outbox(&mut self, ops: &[Op]) -> Result<()> {
        let entries = ops.iter().flat_map(|op| op.parts().entries);
        let ids: BTreeSet<OutboxId> = entries.map(|entry| entry.id).collect();
        if ids.is_empty() {
            return Ok(());
        }
        let ids: Vec<OutboxId> = ids.into_iter().collect();
        self.outbox = match self.txn.hold_outbox(&ids).await? {
            Some(rows) => Held::Rows(rows.into_iter().collect()),
            None => Held::Busy,
        };
        Ok(())
    }
}

/// Carries out the entries whose rows still exist.
pub(crate) fn take<'t, T: Txn>(
    turn: &'t mut Turn<'_, T>,
    entries: &'t [OutboxEntry],
) -> BoxFuture<'t, Result<Answer>> {
    Box::pin(async move {
        turn.limits.check_batch(entries.len())?;
        let held = match std::mem::take(&mut turn.outbox) {
            Held::Rows(rows) => rows,
            Held::None => BTreeSet::new(),
            Held::Busy => {
                return Ok(Answer::Outbox {
                    taken: 0,
                    refused: 0,
                    busy: true,
                });
            }
        };
        let mut rows = Vec::with_capacity(held.len());
        let mut refused = Vec::new();
        // A row that is named twice is taken once.
        let mut left = held;
        let mut run: Vec<(OutboxId, &Op)> = Vec::new();
        turn.bench.all_or_nothing = true;
        for entry in entries.iter().filter(|entry| left.remove(&entry.id)) {
            rows.push(entry.id);
            match &entry.action {
                OutboxAction::Refuse(problem) => refused.push((entry.id, problem.clone())),
                OutboxAction::Run(op) => {
                    if run.first().is_some_and(|(_, first)| !is_alike(first, op)) {
                        carry_out(turn, &mut run, &mut refused).await?;
                    }
                    run.push((entry.id, op));
                }
            }
        }
        carry_out(turn, &mut run, &mut refused).await?;
        turn.bench.all_or_nothing = false;
        // They are recorded in the order of their rows, whenever they were refused in this transaction.
        refused.sort_by_key(|(id, _)| *id);
        if !rows.is_empty() {
            turn.txn
                .write(Write::SettleOutbox {
                    held: &rows,
                    refused: &refused,
                    now: turn.now,
                })
                .await?;
        }
        Ok(Answer::Outbox {
            taken: rows.len() - refused.len(),
            refused: refused.len(),
            busy: false,
        })
    })
}

/// Deletes refused requests, or returns them to the outbox. Returns how many there were.
pub(crate) async fn settle_refused<T: Txn>(
    turn: &mut Turn<'_, T>,
    ids: &[OutboxId],
    again: bool,
) -> Result<Answer> {
    turn.limits.check_batch(ids.len())?;
    let ids: BTreeSet<OutboxId> = ids.iter().copied().collect();
    let ids: Vec<OutboxId> = ids.into_iter().collect();
    let count = match ids.is_empty() {
        true => 0,
        false => {
            turn.txn
                .forget(Forget::RefusedById { ids: &ids, again }, ids.len())
                .await?
        }
    };
    Ok(Answer::Touched { count, more: false })
}

/// `true` if two operations are of the same kind, so that one operation can carry out both.
fn is_alike(one: &Op, other: &Op) -> bool {
    std::mem::discriminant(one) == std::mem::discriminant(other)
}

/// Carries out requests of one kind in order, as one operation.
async fn carry_out<T: Txn>(
    turn: &mut Turn<'_, T>,
    run: &mut Vec<(OutboxId, &Op)>,
    refused: &mut Vec<(OutboxId, OutboxProblem)>,
) -> Result<()> {
    if run.is_empty() {
        return Ok(());
    }
    let (ids, ops): (Vec<OutboxId>, Vec<&Op>) = std::mem::take(run).into_iter().unzip();
    let op = joined(&ops).ok_or_else(|| {
        Error::Broken("a request of the outbox is not one start, signal, event or cancel".into())
    })?;
    let problems = problems(turn.answer(&op).await?, &op);
    if problems.len() != ids.len() {
        return Err(Error::unexpected_answer());
    }
    let found = ids.into_iter().zip(problems);
    refused.extend(found.filter_map(|(id, problem)| Some((id, problem?))));
    Ok(())
}

/// Returns one operation for all of these, which are of one kind with one entry each.
fn joined(ops: &[&Op]) -> Option<Op> {
    macro_rules! join {
        ($($kind:ident),*) => {
            match ops.first()? {
                $(Op::$kind(_) => {
                    let each = ops.iter().map(|op| match op {
                        Op::$kind(entries) => match &**entries {
                            [one] => Some(one.clone()),
                            _ => None,
                        },
                        _ => None,
                    });
                    Some(Op::$kind(each.collect::<Option<_>>()?))
                })*
                _ => None,
            }
        };
    }
    join!(Start, Reserve, Deliver, Publish, Cancel)
}

/// Returns the reason why each request was not carried out, in the order of the operation's entries.
fn problems(answer: Answer, op: &Op) -> Vec<Option<OutboxProblem>> {
    fn each<E, T>(
        entries: &[E],
        answers: Vec<std::result::Result<T, Refusal>>,
        problem: impl Fn(&E, T) -> Option<OutboxProblem>,
    ) -> Vec<Option<OutboxProblem>> {
        let refused = |refusal: Refusal| OutboxProblem::new(refusal.reason(), refusal.to_string());
        let problem = |(entry, answer)| match answer {
            Ok(done) => problem(entry, done),
            Err(refusal) => Some(refused(refusal)),
        };
        entries.iter().zip(answers).map(problem).collect()
    }
    match (answer, op) {
        (Answer::Started(answers), Op::Start(starts)) => each(starts, answers, |start, one| {
            let unique_key = start.unique_key.clone().map(AnyKey::UniqueKey);
            of_start([start.key.clone().map(AnyKey::Key), unique_key], one)
        }),
        (Answer::Started(answers), Op::Reserve(keys)) => each(keys, answers, |(_, key), one| {
            of_start([Some(AnyKey::Key(key.clone())), None], one)
        }),
        (Answer::Delivered(answers), Op::Deliver(deliveries)) => {
            each(deliveries, answers, |one, done| {
                of_delivery(&one.target, done)
            })
        }
        (Answer::Published(answers), Op::Publish(events)) => each(events, answers, |_, _| None),
        (Answer::Operated(answers), Op::Cancel(cancels)) => {
            let answered = cancels.iter().zip(answers);
            let problem = |(one, done): (&Cancel, _)| of_cancel(&one.target, done);
            answered.map(problem).collect()
        }
        _ => Vec::new(),
    }
}

fn of_start(keys: [Option<AnyKey>; 2], started: Started) -> Option<OutboxProblem> {
    match started {
        Started::New(_) => None,
        Started::Duplicate(holder) => {
            let keys: Vec<String> = keys.iter().flatten().map(ToString::to_string).collect();
            let problem = format!(
                "nothing was started: {} is taken by instance {holder}",
                keys.join(" or ")
            );
            Some(OutboxProblem::new("duplicate", problem))
        }
    }
}

fn of_delivery(target: &Target, delivered: Delivered) -> Option<OutboxProblem> {
    let Delivered { verdict, .. } = &delivered;
    match verdict {
        Verdict::Held | Verdict::Received | Verdict::Accepted => None,
        Verdict::NoTarget => {
            let problem = format!(
                "{}: start it first, or use `hold_for_ms` or `signal_with_start`",
                nothing_at(target)
            );
            Some(OutboxProblem::new(verdict.outcome(), problem))
        }
        Verdict::Rejected(why) => {
            let record = delivered.record.as_ref();
            let errors = record.and_then(|record| record.validation_errors.as_ref());
            let more = match (&delivered.limit, errors) {
                (Some(limit), _) => format!(": {limit}"),
                (None, Some(errors)) => format!(": {}", errors.as_str()),
                (None, None) => String::new(),
            };
            let problem = match target {
                Target::Id(id) => format!("instance {id}: {why}{more}"),
                Target::Key(key) => format!("key {:?}: {why}{more}", key.as_str()),
            };
            Some(OutboxProblem::new(why.reason(), problem))
        }
    }
}

fn of_cancel(target: &Target, operated: Operated) -> Option<OutboxProblem> {
    let problem = match &operated {
        Operated::Cancelled { .. } | Operated::Cancelling { .. } => return None,
        Operated::NoTarget => nothing_at(target),
        Operated::NotActive(status) => format!("{} has ended as {status}", named(target)),
        Operated::NotStarted => format!("{} is reserved and was not started", named(target)),
        Operated::NotCurrent(current) => {
            let run = named(target);
            format!("{run} is not the newest run of its chain, which is {current}")
        }
        other => format!("{} was answered {}", named(target), other.outcome()),
    };
    Some(OutboxProblem::new(operated.outcome(), problem))
}

fn nothing_at(target: &Target) -> String {
    match target {
        Target::Id(id) => format!("there is no instance {id}"),
        Target::Key(key) => format!("there is no instance with key {:?}", key.as_str()),
    }
}

fn named(target: &Target) -> String {
    match target {
        Target::Id(id) => format!("instance {id}"),
        Target::Key(key) => format!("the instance with key {:?}", key.as_str()),
    }
}
