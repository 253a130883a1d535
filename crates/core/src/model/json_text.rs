//! Writes parts of JSON by hand, where serde would take several times as long and every step pays for it.

use std::fmt::{Display, Write as _};

/// Writes a string.
pub(super) fn write_text(json: &mut String, text: &str) -> Result<(), serde_json::Error> {
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
    if text.as_bytes().iter().all(is_plain) {
        json.push('"');
        json.push_str(text);
        json.push('"');
    } else {
        json.push_str(&serde_json::to_string(text)?);
    }
    Ok(())
}

/// Writes a number.
pub(super) fn write_number(json: &mut String, number: impl Display) {
    // Writing to a string cannot fail.
    let _ = write!(json, "{number}");
}
