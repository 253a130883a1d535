//! Word of commits, from this process to others and from others to this one.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use abide_core::model::{InstanceId, Name, Timestamp};
use abide_kernel::{Backoff, Bus, Effects, Result};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::Client;
use tokio_util::sync::CancellationToken;

use crate::connect::Connector;
use crate::error::{Fate, classify};
use crate::param::Param;
use crate::pool::{Pool, overdue};
use crate::read::query;

/// Sends word to whoever listens, when the transaction commits.
pub const NOTIFY: &str = "select pg_notify('abide', $1)";

/// The longest word: PostgreSQL takes less than 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_000;
/// How long to wait after a word for more to say: at first, and at most, when there always is more, so that a busy process
/// says it all at once.
const GATHER: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));
/// How often a connection that is silent is tried.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);

/// What one process tells others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notice {
    /// Who says it; it does not listen to itself. Nobody when it must hear it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    /// The queues in which something became runnable.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    ready: BTreeSet<Name>,
    /// Whether some have ended, or updates were answered.
    #[serde(skip_serializing_if = "is_false")]
    ended: bool,
    /// The instances that were cancelled while a worker ran them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    cancelled: BTreeSet<InstanceId>,
    /// The workflows to which a message came while a worker ran them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    mailed: BTreeSet<InstanceId>,
    /// The earliest moment at which something is due, in microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<i64>,
    /// Whether anything may have changed.
    #[serde(skip_serializing_if = "is_false")]
    anything: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Notice {
    /// What there is to tell of effects.
    pub fn of(effects: &Effects) -> Self {
        Self {
            from: None,
            ready: effects.ready.clone(),
            ended: !effects.ended.is_empty()
                || !effects.answered.is_empty()
                || effects.ended_elsewhere,
            cancelled: effects.cancelled.iter().copied().collect(),
            mailed: effects.mailed.iter().copied().collect(),
            due: effects.due.map(Timestamp::as_micros),
            anything: effects.anything,
        }
    }

    fn merge(&mut self, other: Self) {
        self.ready.extend(other.ready);
        self.ended |= other.ended;
        self.cancelled.extend(other.cancelled);
        self.mailed.extend(other.mailed);
        self.anything |= other.anything;
        self.due = self.due.into_iter().chain(other.due).min();
    }

    /// As text; what would be too long says that anything may have changed.
    pub fn payload(&self) -> String {
        let text = serde_json::to_string(self).unwrap_or_default();
        if (1..=PAYLOAD_BYTES_MAX).contains(&text.len()) {
            return text;
        }
        let short = Self {
            from: self.from,
            anything: true,
            ..Self::default()
        };
        serde_json::to_string(&short).unwrap_or_default()
    }

    /// What this process is to make of a text; what it cannot read may mean anything.
    fn heard(text: &str, own: u64) -> Option<Effects> {
        let Ok(notice) = serde_json::from_str::<Self>(text) else {
            return Some(Effects::anything());
        };
        (notice.from != Some(own)).then(|| Effects {
            ready: notice.ready,
            ended_elsewhere: notice.ended,
            cancelled: notice.cancelled.into_iter().collect(),
            mailed: notice.mailed.into_iter().collect(),
            due: notice.due.map(Timestamp::from_micros),
            anything: notice.anything,
            ..Effects::default()
        })
    }
}

/// Gathers what this process has to tell others.
#[derive(Debug)]
pub(crate) struct Notifier {
    /// This process, as others know it.
    own: u64,
    gathered: Mutex<Option<Notice>>,
    wake: Notify,
}

impl Notifier {
    /// One that has nothing to tell yet.
    pub fn new() -> Self {
        let own = RandomState::new().hash_one(std::process::id());
        Self {
            own,
            gathered: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Tells others, soon.
    pub fn tell(&self, effects: &Effects) {
        if effects.is_empty() {
            return;
        }
        let notice = Notice::of(effects);
        let mut gathered = self.gathered.lock().unwrap_or_else(PoisonError::into_inner);
        match gathered.as_mut() {
            Some(already) => already.merge(notice),
            None => *gathered = Some(notice),
        }
        drop(gathered);
        self.wake.notify_one();
    }

    fn has_more(&self) -> bool {
        let gathered = self.gathered.lock();
        gathered.unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn take(&self) -> Option<Notice> {
        let notice = self
            .gathered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        Some(Notice {
            from: Some(self.own),
            ..notice
        })
    }

    /// Sends what is gathered: the first word at once, then all that came meanwhile, together. Ends when it is stopped,
    /// after a last word.
    pub async fn run(&self, pool: &Pool, stop: CancellationToken) {
        let (first, most) = GATHER;
        let mut pause = first;
        loop {
            tokio::select! {
                () = self.wake.notified() => {}
                () = stop.cancelled() => {}
            }
            if let Some(notice) = self.take()
                && let Err(error) = send(pool, &notice).await
            {
                tracing::debug!(%error, "a notice could not be sent; others find the work by their slow poll");
            }
            if stop.is_cancelled() {
                return;
            }
            tokio::time::sleep(pause).await;
            pause = if self.has_more() {
                (pause * 2).min(most)
            } else {
                first
            };
        }
    }
}

/// Sends a notice in a small transaction of its own, in one round trip.
async fn send(pool: &Pool, notice: &Notice) -> Result<()> {
    let client = pool.get().await?;
    let (_, begin) = pool.server()?;
    let payload = notice.payload();
    let sending = async {
        let (begun, told, ended) = tokio::join!(
            client.batch_execute(&begin.notice),
            query(&client, NOTIFY, vec![Param::one(payload.as_str())]),
            client.batch_execute("commit"),
        );
        begun.map_err(|error| classify(&error, Fate::Open))?;
        ended.map_err(|error| classify(&error, Fate::Open))?;
        told.map(drop)
    };
    client.bounded(sending).await
}

/// A connection that listens.
pub(crate) struct Ear {
    client: Client,
    /// Ends the connection when it is dropped, whatever is under way on it.
    hang_up: AbortHandle,
    notices: UnboundedReceiver<String>,
}

impl Drop for Ear {
    fn drop(&mut self) {
        self.hang_up.abort();
    }
}

impl Ear {
    /// Listens from now on.
    pub async fn open(connector: &Connector) -> Result<Self> {
        let (sender, notices) = mpsc::unbounded_channel();
        let (client, hang_up) = connector.connect(Some(sender)).await?;
        let ear = Self {
            client,
            hang_up,
            notices,
        };
        let deadline = connector.timeouts.deadline();
        match timeout(deadline, ear.client.batch_execute("listen abide")).await {
            Ok(listening) => listening.map_err(|error| classify(&error, Fate::Open))?,
            Err(_) => return Err(overdue(deadline)),
        }
        Ok(ear)
    }

    /// Tells the bus what others say, until the connection is lost.
    async fn hear(mut self, bus: &Bus, own: u64) {
        loop {
            match timeout(PING, self.notices.recv()).await {
                Ok(Some(text)) => bus.tell(Notice::heard(&text, own).unwrap_or_default()),
                Ok(None) => return,
                Err(_) => match timeout(PONG, self.client.batch_execute("")).await {
                    Ok(Ok(())) => {}
                    _ => return,
                },
            }
        }
    }
}

/// Listens to others until it is stopped, however often the connection is lost. Word may have been lost with it, so
/// anything may have changed when it is back.
pub(crate) async fn listen(
    mut ear: Ear,
    connector: Arc<Connector>,
    bus: Bus,
    notifier: Arc<Notifier>,
    stop: CancellationToken,
) {
    let listening = async {
        loop {
            ear.hear(&bus, notifier.own).await;
            tracing::info!("the connection that listens was lost; making it again");
            ear = reopened(&connector).await;
            bus.tell(Effects::anything());
        }
    };
    tokio::select! {
        () = listening => {}
        () = stop.cancelled() => {}
    }
}

async fn reopened(connector: &Connector) -> Ear {
    let mut backoff = Backoff::reconnect();
    loop {
        match Ear::open(connector).await {
            Ok(ear) => return ear,
            Err(error) => tracing::debug!(%error, "cannot listen yet"),
        }
        backoff.pause().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effects() -> Effects {
        let mut effects = Effects {
            ended_elsewhere: true,
            ..Effects::default()
        };
        effects.ready.insert(Name::stored("mail"));
        effects.due_at(Timestamp::from_micros(7));
        effects
    }

    #[test]
    fn a_notice_tells_others_what_happened_and_its_sender_nothing() {
        // rule 6.6
        let notice = Notice {
            from: Some(1),
            ..Notice::of(&effects())
        };
        assert_eq!(Notice::heard(&notice.payload(), 2), Some(effects()));
        assert_eq!(Notice::heard(&notice.payload(), 1), None);
    }

    #[test]
    fn who_was_cancelled_is_named_and_who_was_answered_is_not() {
        // rules 9.2 and 11.1
        let cancelled = |count: i64| Effects {
            cancelled: (1..=count).map(InstanceId).collect(),
            answered: vec![abide_core::model::CommandId(7)],
            ..Effects::default()
        };
        let heard = Notice::heard(&Notice::of(&cancelled(3)).payload(), 1).unwrap();
        assert_eq!(heard.cancelled, [1, 2, 3].map(InstanceId));
        assert!(heard.ended_elsewhere && !heard.anything);
        let many = Notice::of(&cancelled(5000)).payload();
        assert_eq!(Notice::heard(&many, 1), Some(Effects::anything()));
    }

    #[test]
    fn whom_a_message_came_to_while_it_ran_is_named() {
        let mailed = |ids: &[i64]| Effects {
            mailed: ids.iter().copied().map(InstanceId).collect(),
            ..Effects::default()
        };
        let mut notice = Notice::of(&mailed(&[1, 2]));
        notice.merge(Notice::of(&mailed(&[2, 3])));
        assert_eq!(
            Notice::heard(&notice.payload(), 1),
            Some(mailed(&[1, 2, 3]))
        );
        assert!(!Notice::of(&mailed(&[])).payload().contains("mailed"));
    }

    #[test]
    fn what_is_too_long_or_not_understood_may_mean_anything() {
        let ready = (0..1000).map(|n| Name::stored(format!("a queue with a long name {n}")));
        let long = Notice::of(&Effects {
            ready: ready.collect(),
            ..Effects::default()
        });
        assert!(long.payload().len() < 100);
        assert_eq!(Notice::heard(&long.payload(), 1), Some(Effects::anything()));
        assert_eq!(Notice::heard("{", 1), Some(Effects::anything()));
    }

    #[test]
    fn what_is_gathered_is_told_together() {
        // rule 6.6
        let notifier = Notifier::new();
        notifier.tell(&effects());
        let mut later = Effects {
            ended: vec![InstanceId(1)],
            ..Effects::default()
        };
        later.due_at(Timestamp::from_micros(9));
        notifier.tell(&later);
        let notice = notifier.take().unwrap();
        assert_eq!(
            (notice.due, notice.ended, notice.ready.len()),
            (Some(7), true, 1)
        );
        assert!(notifier.take().is_none());
    }
}
