//! What commits have to tell, as the server passes it on: one stream that is opened again whenever it breaks.

use std::sync::Arc;
use std::time::Duration;

use abide_kernel::{Backoff, Bus, Effects, Error, Result, wire};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio_util::sync::CancellationToken;

use crate::caller::Caller;

/// A server that has said nothing for so long, not even that there is nothing, is gone.
const SILENCE: Duration = wire::HEARTBEAT.saturating_mul(3);
/// The longest line that is read.
const LINE_BYTES: usize = 64 << 20;

/// Passes news on to whoever listens here, until it is stopped.
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
        tracing::debug!(server = caller.server(), why = %ended, "news are interrupted");
        stream = tokio::select! {
            stream = open_again(&caller) => stream,
            () = stop.cancelled() => return,
        };
        // What was told meanwhile was not heard.
        bus.tell(Effects::anything());
    }
}

/// Opens the stream, however long it takes. Who was cut off together does not come back together.
async fn open_again(caller: &Caller) -> Incoming {
    let mut backoff = Backoff::reconnect();
    loop {
        backoff.pause().await;
        match caller.news().await {
            Ok(stream) => return stream,
            Err(error) if error.is_passing() => {
                tracing::debug!(server = caller.server(), %error, "news cannot be had");
            }
            // Nothing that waiting cures; but a server may be set right, and somebody waits for its news.
            Err(error) => tracing::warn!(server = caller.server(), %error, "news cannot be had"),
        }
    }
}

/// Passes on what one stream says; why it has ended.
async fn pass_on(mut stream: Incoming, bus: &Bus) -> Error {
    let mut lines = Lines::default();
    loop {
        let frame = match tokio::time::timeout(SILENCE, stream.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(error))) => return Error::Unavailable(error.to_string()),
            Ok(None) => return Error::Unavailable("the server has ended the stream".into()),
            Err(_) => return Error::Unavailable("the server says nothing any more".into()),
        };
        let Ok(data) = frame.into_data() else {
            continue;
        };
        match lines.take(&data) {
            Ok(told) => told.into_iter().for_each(|effects| bus.tell(effects)),
            Err(error) => return error,
        }
    }
}

/// Bytes of a stream of server-sent events, put together to lines.
#[derive(Default)]
struct Lines(Vec<u8>);

impl Lines {
    /// Takes more bytes; what has become complete. Of the fields of an event only the data counts, and every line of it
    /// is one piece of news; what cannot be read is told as anything, as it may have been anything.
    fn take(&mut self, data: &Bytes) -> Result<Vec<Effects>> {
        self.0.extend_from_slice(data);
        let mut told = Vec::new();
        let mut whole = 0;
        for line in self.0.split_inclusive(|byte| *byte == b'\n') {
            if !line.ends_with(b"\n") {
                break;
            }
            whole += line.len();
            if let Some(data) = line.trim_ascii().strip_prefix(b"data:") {
                let effects = serde_json::from_slice(data);
                told.push(effects.unwrap_or_else(|_| Effects::anything()));
            }
        }
        self.0.drain(..whole);
        if self.0.len() > LINE_BYTES {
            return Err(Error::Broken("a line of the news has no end".into()));
        }
        Ok(told)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pieces: &[&str]) -> Vec<Effects> {
        let mut lines = Lines::default();
        let mut told = Vec::new();
        for piece in pieces {
            told.extend(
                lines
                    .take(&Bytes::copy_from_slice(piece.as_bytes()))
                    .unwrap(),
            );
        }
        told
    }

    #[test]
    fn news_are_read_however_they_are_cut() {
        let ended = Effects {
            ended: vec![abide_core::model::InstanceId(7)],
            ..Effects::default()
        };
        let text =
            ": nothing\n\nevent: news\ndata: {\"ended\":[7]}\n\ndata:{\"anything\":true}\r\n\r\n";
        let expected = [ended, Effects::anything()];
        assert_eq!(read(&[text]), expected);
        let letters: Vec<String> = text.chars().map(String::from).collect();
        let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
        assert_eq!(read(&letters), expected);
    }

    #[test]
    fn news_that_cannot_be_read_may_be_anything() {
        assert_eq!(read(&["data: {\"ended\":\"x\"}\n"]), [Effects::anything()]);
        assert!(read(&["data: {\"ended\":"]).is_empty());
    }
}
