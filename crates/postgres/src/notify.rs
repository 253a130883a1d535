//! Notifications of commits, from this process to others and from others to this one.

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

/// Sends a notification to all listeners when the transaction commits.
pub const NOTIFY: &str = "select pg_notify('abide', $1)";

/// The channel for callers that have inserted into the outbox, with any payload, and the payload that replaces it here.
pub(crate) const OUTBOX_CHANNEL: &str = "abide_outbox";
pub(crate) const OUTBOX_NOTICE: &str = r#"{"outbox":true}"#;
/// Listens to both channels.
const LISTEN: &str = "listen abide; listen abide_outbox";

/// Maximum size of a notification: PostgreSQL accepts less than 8,000 bytes.
const PAYLOAD_BYTES_MAX: usize = 7_000;
/// Pause after a notification to gather more: the first value, and the maximum, which is reached while there always is
/// more, so that a busy process sends everything together.
const GATHER: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(16));
/// Interval at which an idle connection is tested.
const PING: Duration = Duration::from_secs(30);
const PONG: Duration = Duration::from_secs(10);

/// A notification from one process to others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Notification {
    /// The sender, which ignores its own notifications. `None` if the sender must receive it too.
    #[serde(skip_serializing_if = "Option::is_none")]
    from: Option<u64>,
    /// The queues with new runnable instances.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    ready: BTreeSet<Name>,
    /// `true` if instances have ended, or updates were answered.
    #[serde(skip_serializing_if = "is_false")]
    ended: bool,
    /// The instances that were cancelled while a worker ran them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    cancelled: BTreeSet<InstanceId>,
    /// The workflows that received a command while a worker ran them.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    received: BTreeSet<InstanceId>,
    /// The earliest new due time, in microseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    due: Option<i64>,
    /// `true` if the outbox may have rows.
    #[serde(skip_serializing_if = "is_false")]
    outbox: bool,
    /// `true` if a build could not run an instance that other builds may run.
    #[serde(skip_serializing_if = "is_false")]
    blocked: bool,
    /// `true` if anything may have changed.
    #[serde(skip_serializing_if = "is_false")]
    anything: bool,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Notification {
    /// Creates the notification for effects.
    pub fn of(effects: &Effects) -> Self {
        Self {
            from: None,
            ready: effects.ready.clone(),
            ended: !effects.ended.is_empty()
                || !effects.answered.is_empty()
                || effects.ended_elsewhere,
            cancelled: effects.cancelled.iter().copied().collect(),
            received: effects.received.iter().copied().collect(),
            due: effects.due.map(Timestamp::as_micros),
            outbox: effects.outbox,
            blocked: effects.blocked,
            anything: effects.anything,
        }
    }

    fn merge(&mut self, other: Self) {
        self.ready.extend(other.ready);
        self.ended |= other.ended;
        self.cancelled.extend(other.cancelled);
        self.received.extend(other.received);
        self.outbox |= other.outbox;
        self.blocked |= other.blocked;
        self.anything |= other.anything;
        self.due = self.due.into_iter().chain(other.due).min();
    }

    /// The notification as text; if it would be too long, the text says that anything may have changed.
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

    /// The effects of a text for this process; a text that cannot be parsed may mean anything.
    fn heard(text: &str, own: u64) -> Option<Effects> {
        let Ok(notice) = serde_json::from_str::<Self>(text) else {
            return Some(Effects::anything());
        };
        (notice.from != Some(own)).then(|| Effects {
            ready: notice.ready,
            ended_elsewhere: notice.ended,
            cancelled: notice.cancelled.into_iter().collect(),
            received: notice.received.into_iter().collect(),
            due: notice.due.map(Timestamp::from_micros),
            outbox: notice.outbox,
            blocked: notice.blocked,
            anything: notice.anything,
            ..Effects::default()
        })
    }
}

/// Gathers the notifications of this process for others.
#[derive(Debug)]
pub(crate) struct Notifier {
    /// The id of this process in notifications.
    own: u64,
    gathered: Mutex<Option<Notification>>,
    wake: Notify,
}

impl Notifier {
    /// Creates a notifier with nothing to send.
    pub fn new() -> Self {
        let own = RandomState::new().hash_one(std::process::id());
        Self {
            own,
            gathered: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Sends effects to other processes, soon.
    pub fn tell(&self, effects: &Effects) {
        if effects.is_empty() {
            return;
        }
        let notice = Notification::of(effects);
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

    fn take(&self) -> Option<Notification> {
        let notice = self
            .gathered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()?;
        Some(Notification {
            from: Some(self.own),
            ..notice
        })
    }

    /// Sends what is gathered: the first notification at once, then all later ones together. Ends when stopped, after a
    /// last notification.
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

/// Sends a notification in a small transaction of its own, in one round trip.
async fn send(pool: &Pool, notice: &Notification) -> Result<()> {
    let client = pool.get().await?;
    let begin = client.begin()?;
    let payload = notice.payload();
    let sending = async {
        let (begun, notified, ended) = tokio::join!(
            client.batch_execute(&begin.notice),
            query(&client, NOTIFY, vec![Param::one(payload.as_str())]),
            client.batch_execute("commit"),
        );
        begun.map_err(|error| classify(&error, Fate::Open))?;
        ended.map_err(|error| classify(&error, Fate::Open))?;
        notified.map(drop)
    };
    client.bounded(sending).await
}

/// A connection that listens.
pub(crate) struct ListenConnection {
    client: Client,
    /// Ends the connection when it is dropped, even during a statement.
    hang_up: AbortHandle,
    notices: UnboundedReceiver<String>,
}

impl Drop for ListenConnection {
    fn drop(&mut self) {
        self.hang_up.abort();
    }
}

impl ListenConnection {
    /// Opens a connection and starts to listen.
    pub async fn open(connector: &Connector) -> Result<Self> {
        let (sender, notices) = mpsc::unbounded_channel();
        let (client, hang_up) = connector.connect(Some(sender)).await?;
        let connection = Self {
            client,
            hang_up,
            notices,
        };
        let deadline = connector.timeouts.deadline();
        match timeout(deadline, connection.client.batch_execute(LISTEN)).await {
            Ok(listening) => listening.map_err(|error| classify(&error, Fate::Open))?,
            Err(_) => return Err(overdue(deadline)),
        }
        Ok(connection)
    }

    /// Passes notifications of others to the bus, until the connection is lost.
    async fn hear(mut self, bus: &Bus, own: u64) {
        loop {
            match timeout(PING, self.notices.recv()).await {
                Ok(Some(text)) => bus.tell(Notification::heard(&text, own).unwrap_or_default()),
                Ok(None) => return,
                Err(_) => match timeout(PONG, self.client.batch_execute("")).await {
                    Ok(Ok(())) => {}
                    _ => return,
                },
            }
        }
    }
}

/// Listens until stopped, and reconnects whenever the connection is lost. Notifications may have been lost with it, so
/// after a reconnect anything may have changed.
pub(crate) async fn listen(
    mut connection: ListenConnection,
    connector: Arc<Connector>,
    bus: Bus,
    notifier: Arc<Notifier>,
    stop: CancellationToken,
) {
    let listening = async {
        loop {
            connection.hear(&bus, notifier.own).await;
            tracing::info!("the connection that listens was lost; making it again");
            connection = reopened(&connector).await;
            bus.tell(Effects::anything());
        }
    };
    tokio::select! {
        () = listening => {}
        () = stop.cancelled() => {}
    }
}

async fn reopened(connector: &Connector) -> ListenConnection {
    let mut backoff = Backoff::reconnect();
    loop {
        match ListenConnection::open(connector).await {
            Ok(connection) => return connection,
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
            blocked: true,
            ..Effects::default()
        };
        effects.ready.insert(Name::stored("mail"));
        effects.due_at(Timestamp::from_micros(7));
        effects
    }

    #[test]
    fn a_notice_tells_others_what_happened_and_its_sender_nothing() {
        // rule 6.6
        let notice = Notification {
            from: Some(1),
            ..Notification::of(&effects())
        };
        assert_eq!(Notification::heard(&notice.payload(), 2), Some(effects()));
        assert_eq!(Notification::heard(&notice.payload(), 1), None);
    }

    #[test]
    fn a_cancelled_instance_is_named_and_an_answered_update_is_not() {
        // rules 9.2 and 11.1
        let cancelled = |count: i64| Effects {
            cancelled: (1..=count).map(InstanceId).collect(),
            answered: vec![abide_core::model::CommandId(7)],
            ..Effects::default()
        };
        let heard = Notification::heard(&Notification::of(&cancelled(3)).payload(), 1).unwrap();
        assert_eq!(heard.cancelled, [1, 2, 3].map(InstanceId));
        assert!(heard.ended_elsewhere && !heard.anything);
        let many = Notification::of(&cancelled(5000)).payload();
        assert_eq!(Notification::heard(&many, 1), Some(Effects::anything()));
    }

    #[test]
    fn an_instance_that_received_a_message_while_it_ran_is_named() {
        let received = |ids: &[i64]| Effects {
            received: ids.iter().copied().map(InstanceId).collect(),
            ..Effects::default()
        };
        let mut notice = Notification::of(&received(&[1, 2]));
        notice.merge(Notification::of(&received(&[2, 3])));
        assert_eq!(
            Notification::heard(&notice.payload(), 1),
            Some(received(&[1, 2, 3]))
        );
        assert!(
            !Notification::of(&received(&[]))
                .payload()
                .contains("received")
        );
    }

    #[test]
    fn what_is_too_long_or_not_understood_may_mean_anything() {
        let ready = (0..1000).map(|n| Name::stored(format!("a queue with a long name {n}")));
        let long = Notification::of(&Effects {
            ready: ready.collect(),
            ..Effects::default()
        });
        assert!(long.payload().len() < 100);
        assert_eq!(
            Notification::heard(&long.payload(), 1),
            Some(Effects::anything())
        );
        assert_eq!(Notification::heard("{", 1), Some(Effects::anything()));
    }

    #[test]
    fn gathered_effects_are_sent_in_one_notification() {
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
