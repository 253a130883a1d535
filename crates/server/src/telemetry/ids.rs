//! Ids of traces and spans, derived from what they identify.

use abide::InstanceId;
use abide::model::CommandId;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};
use sha2::{Digest, Sha256};

/// Derives ids. The same namespace gives the same ids.
#[derive(Debug)]
pub(super) struct Ids {
    namespace: String,
}

impl Ids {
    pub fn new(namespace: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
        }
    }

    /// The id of the trace of a run.
    pub fn trace(&self, run: InstanceId) -> TraceId {
        TraceId::from_bytes(self.bytes("trace", &[run.0]))
    }

    /// The span of a run as a whole.
    pub fn run(&self, run: InstanceId) -> SpanContext {
        self.context(run, "run", &[])
    }

    /// The span of an attempt at a step.
    pub fn attempt(&self, run: InstanceId, step_sequence: u32, attempt: u32) -> SpanContext {
        self.context(run, "attempt", &[step_sequence.into(), attempt.into()])
    }

    /// The span of a command.
    pub fn message(&self, run: InstanceId, message: CommandId) -> SpanContext {
        self.context(run, "message", &[message.0])
    }

    fn context(&self, run: InstanceId, what: &str, numbers: &[i64]) -> SpanContext {
        let mut of = vec![run.0];
        of.extend(numbers);
        let span = SpanId::from_bytes(self.bytes(what, &of));
        SpanContext::new(
            self.trace(run),
            span,
            TraceFlags::SAMPLED,
            true,
            TraceState::NONE,
        )
    }

    fn bytes<const N: usize>(&self, what: &str, numbers: &[i64]) -> [u8; N] {
        let mut hash = Sha256::new();
        hash.update(self.namespace.as_bytes());
        hash.update([0]);
        hash.update(what.as_bytes());
        for number in numbers {
            hash.update(number.to_be_bytes());
        }
        let digest = hash.finalize();
        let mut bytes = [0; N];
        for (byte, hashed) in bytes.iter_mut().zip(digest) {
            *byte = hashed;
        }
        // An id of zeros is invalid for readers.
        if let (true, Some(last)) = (bytes.iter().all(|byte| *byte == 0), bytes.last_mut()) {
            *last = 1;
        }
        bytes
    }
}

/// Parses a `traceparent` header (W3C Trace Context). Returns `None` if it is malformed.
pub(super) fn parent(header: &str) -> Option<SpanContext> {
    let mut parts = header.trim().split('-');
    let version = parts.next()?;
    let (trace, span, flags) = (parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let whole = hex(version, 2) && hex(trace, 32) && hex(span, 16) && hex(flags, 2);
    if !whole || version.eq_ignore_ascii_case("ff") || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let flags = u8::from_str_radix(flags, 16).ok()?;
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(flags),
        true,
        TraceState::NONE,
    );
    context.is_valid().then_some(context)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_same_for_the_same_and_others_for_others() {
        let (one, same, other) = (Ids::new("shop"), Ids::new("shop"), Ids::new("bank"));
        let run = InstanceId(7);
        assert_eq!(one.attempt(run, 1, 0), same.attempt(run, 1, 0));
        assert_ne!(one.trace(run), other.trace(run));
        assert_ne!(
            one.attempt(run, 1, 0).span_id(),
            one.attempt(run, 1, 1).span_id()
        );
        assert_ne!(
            one.attempt(run, 1, 0).span_id(),
            one.attempt(run, 0, 1).span_id()
        );
        assert_ne!(
            one.run(run).span_id(),
            one.message(run, CommandId(7)).span_id()
        );
        assert_eq!(
            one.run(run).trace_id(),
            one.message(run, CommandId(7)).trace_id()
        );
    }

    #[test]
    fn a_traceparent_is_read_and_a_malformed_one_is_left_out() {
        let good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        assert!(parent(good).is_some_and(|context| context.is_sampled()));
        for bad in [
            "",
            "00",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-+af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
        ] {
            assert!(parent(bad).is_none(), "{bad}");
        }
    }
}
