//! The stream of notifications from the server; it is opened again whenever it breaks.

use std::sync::Arc;
use std::time::Duration;

use abide_kernel::{Backoff, Bus, Effects, Error, Result, wire};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;

/// Time without any data, including heartbeats, after which the server is considered gone.
const SILENCE: Duration = wire::HEARTBEAT.saturating_mul(3);
/// Maximum length of a line.
const LINE_BYTES: usize = 64 << 20;

/// Passes notifications to the local bus, until stopped.
pub(crate) async fn listen(
    mut stream: Incoming,
    caller: Arc<Caller>,
    bus: Bus,
    stop: CancellationToken,
) {
    loop {
        let ended = tokio::select! {
            ended = pass_on(stream, &bus) => ended,
            () = stop.cancelled() => return,
        };
        tracing::debug!(server = caller.server(), why = %ended, "event stream lost; reconnecting");
        stream = tokio::select! {
            stream = open_again(&caller) => stream,
            () = stop.cancelled() => return,
        };
        // Notifications in the meantime were lost.
        bus.tell(Effects::anything());
    }
}

/// Opens the stream, and retries until it succeeds. The delays are spread, so that clients that were disconnected
/// together do not reconnect together.
async fn open_again(caller: &Caller) -> Incoming {
    let mut backoff = Backoff::reconnect();
    loop {
        backoff.pause().await;
        match caller.notifications().await {
            Ok(stream) => return stream,
            Err(error) if error.is_passing() => {
                tracing::debug!(server = caller.server(), %error, "event stream unavailable; retrying");
            }
            // Waiting does not help here; but the server may be repaired, and local listeners need its notifications.
            Err(error) => {
                tracing::warn!(server = caller.server(), %error, "event stream unavailable; retrying")
            }
        }
    }
}

/// Passes on the notifications of one stream; returns why it ended.
async fn pass_on(mut stream: Incoming, bus: &Bus) -> Error {
    let mut lines = Lines::default();
    loop {
        let frame = match tokio::time::timeout(SILENCE, stream.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Error::Unavailable(error.to_string()),
            Ok(None) => return Error::Unavailable("the server has ended the stream".into()),
            Err(_) => return Error::Unavailable("the server has stopped sending".into()),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        match lines.take(&data) {
            Ok(notified) => notified.into_iter().for_each(|effects| bus.tell(effects)),
            Err(error) => return error,
        }
    }
}

/// Collects the bytes of a stream of server-sent events into lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Takes more bytes; returns the notifications that are complete. Only the `data` fields of an event are used, and
    /// every such line is one notification. A line that cannot be parsed counts as "anything may have changed".
    fn take(&mut self, data: &Bytes) -> Result<Vec<Effects>> {
        self.0.extend_from_slice(data);
        let mut notified = Vec::new();
        let mut whole = 0;
        for line in self.0.split_inclusive(|byte| *byte == b'\n') {
            if !line.ends_with(b"\n") {
                break;
            }
            whole += line.len();
            if let Some(data) = line.trim_ascii().strip_prefix(b"data:") {
                let effects = serde_json::from_slice(data);
                notified.push(effects.unwrap_or_else(|_| Effects::anything()));
            }
        }
        self.0.drain(..whole);
        if self.0.len() > LINE_BYTES {
            return Err(Error::Broken(
                "a line of the event stream is too long".into(),
            ));
        }
        Ok(notified)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&str]) -> Vec<Effects> {
        let mut lines = Lines::default();
        let mut notified = Vec::new();
        for piece in pieces {
            notified.extend(
                lines
                    .take(&Bytes::copy_from_slice(piece.as_bytes()))
                    .unwrap(),
            );
        }
        notified
    }

    #[test]
    fn notifications_are_read_however_they_are_cut() {
        let ended = Effects {
            ended: vec![abide_core::model::InstanceId(7)],
            ..Effects::default()
        };
        let text =
            ": nothing\n\nevent: news\ndata: {\"ended\":[7]}\n\ndata:{\"anything\":true}\r\n\r\n";
        let expected = [ended, Effects::anything()];
        assert_eq!(read(&[text]), expected);
        let characters: Vec<String> = text.chars().map(String::from).collect();
        let characters: Vec<&str> = characters.iter().map(String::as_str).collect();
        assert_eq!(read(&characters), expected);
    }

    #[test]
    fn notifications_that_cannot_be_read_may_be_anything() {
        assert_eq!(read(&["data: {\"ended\":\"x\"}\n"]), [Effects::anything()]);
        assert!(read(&["data: {\"ended\":"]).is_empty());
    }
}
