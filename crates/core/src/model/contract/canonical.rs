//! Canonical JSON: one text for each value, however it was written. Used to compare values and to number contracts.

use std::borrow::Cow;
use std::collections::BTreeMap;

use crate::model::Json;

/// Returns the canonical text of a value: keys are sorted, numbers and strings have one spelling, and there is no
/// whitespace between the tokens. If a key occurs twice, the last one counts. Numbers are compared by their digits, so
/// large ones stay distinct.
///
/// It uses no recursion, so a value may be nested as deeply as its size allows.
pub(crate) fn canonical(json: &Json) -> String {
    Parsed::of(json).canonical(Parsed::WHOLE)
}

/// A parsed JSON text, for looking up several positions in it.
pub(crate) struct Parsed<'a> {
    nodes: Vec<Node<'a>>,
}

/// The value at a position of a JSON text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape<'a> {
    /// A string, a number, a boolean or null, in canonical spelling.
    Scalar(&'a str),
    /// A list.
    List,
    /// An object.
    Object,
}

impl<'a> Parsed<'a> {
    /// The position of the whole text.
    pub const WHOLE: usize = 0;

    pub fn of(json: &'a Json) -> Self {
        Self {
            nodes: parse(json.as_str()),
        }
    }

    /// Returns the value at a position.
    pub fn shape(&self, at: usize) -> Shape<'_> {
        match self.nodes.get(at) {
            Some(Node::Scalar(scalar)) => Shape::Scalar(scalar),
            Some(Node::List(_)) => Shape::List,
            Some(Node::Object(_)) => Shape::Object,
            None => Shape::Scalar("null"),
        }
    }

    /// Returns the positions of a list's items; empty if it is not a list.
    pub fn items(&self, at: usize) -> &[usize] {
        match self.nodes.get(at) {
            Some(Node::List(items)) => items,
            _ => &[],
        }
    }

    /// Returns the position that a part of a path leads to: a field by its name, or an item of a list by its number.
    pub fn inside(&self, at: usize, part: &str) -> Option<usize> {
        match self.nodes.get(at)? {
            Node::Scalar(_) => None,
            Node::List(items) => items.get(part.parse::<usize>().ok()?).copied(),
            Node::Object(members) => {
                let key = serde_json::to_string(part).ok()?;
                // If a key occurs twice, the last one counts.
                let mut members = members.iter().rev();
                members.find(|(name, _)| *name == key).map(|(_, at)| *at)
            }
        }
    }

    /// Returns the canonical text of the value at a position.
    pub fn canonical(&self, at: usize) -> String {
        let mut text = String::new();
        let mut left = vec![Piece::Node(at)];
        while let Some(piece) = left.pop() {
            let node = match piece {
                Piece::Text(piece) => {
                    text.push_str(piece);
                    continue;
                }
                Piece::Node(at) => self.nodes.get(at),
            };
            // The entry that is pushed last is written first.
            match node {
                None => {}
                Some(Node::Scalar(scalar)) => text.push_str(scalar),
                Some(Node::List(items)) => {
                    left.push(Piece::Text("]"));
                    for (position, item) in items.iter().enumerate().rev() {
                        left.push(Piece::Node(*item));
                        left.push(Piece::Text(if position > 0 { "," } else { "" }));
                    }
                    left.push(Piece::Text("["));
                }
                Some(Node::Object(members)) => {
                    let sorted: BTreeMap<&str, usize> = members
                        .iter()
                        .map(|(key, value)| (key.as_ref(), *value))
                        .collect();
                    left.push(Piece::Text("}"));
                    for (position, (key, value)) in sorted.into_iter().enumerate().rev() {
                        left.push(Piece::Node(value));
                        left.push(Piece::Text(":"));
                        left.push(Piece::Text(key));
                        left.push(Piece::Text(if position > 0 { "," } else { "" }));
                    }
                    left.push(Piece::Text("{"));
                }
            }
        }
        text
    }
}

/// `true` if a JSON number is a whole number, however it is written.
pub(crate) fn is_whole(number: &str) -> bool {
    match Decimal::of(number) {
        Some(decimal) => decimal.exponent >= 0,
        // An exponent of more than eighteen digits: only its sign matters.
        None => !number.contains("e-") && !number.contains("E-"),
    }
}

enum Piece<'a> {
    Text(&'a str),
    Node(usize),
}

/// A value. Nested values are given by their positions in the list of all nodes.
enum Node<'a> {
    Scalar(Cow<'a, str>),
    List(Vec<usize>),
    Object(Vec<(Cow<'a, str>, usize)>),
}

/// Returns the nodes of a text that is known to be JSON; the first node is the whole.
fn parse(text: &str) -> Vec<Node<'_>> {
    let mut nodes: Vec<Node<'_>> = Vec::new();
    // The open lists and objects, each with the key whose value comes next.
    let mut open: Vec<(usize, Option<Cow<'_, str>>)> = Vec::new();
    for token in (Tokens { rest: text }) {
        let node = match token {
            "}" | "]" => {
                open.pop();
                continue;
            }
            "{" => Node::Object(Vec::new()),
            "[" => Node::List(Vec::new()),
            scalar => Node::Scalar(spelled(scalar)),
        };
        let at = nodes.len();
        if let Some((around, key)) = open.last_mut() {
            match (nodes.get_mut(*around), key.take(), &node) {
                (Some(Node::List(items)), ..) => items.push(at),
                (Some(Node::Object(members)), Some(name), _) => members.push((name, at)),
                (Some(Node::Object(_)), None, Node::Scalar(name)) => {
                    *key = Some(name.clone());
                    continue;
                }
                _ => {}
            }
        }
        if !matches!(node, Node::Scalar(_)) {
            open.push((at, None));
        }
        nodes.push(node);
    }
    nodes
}

/// The tokens of a JSON text, without commas and colons: their positions follow from the others.
struct Tokens<'a> {
    rest: &'a str,
}

impl<'a> Iterator for Tokens<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let text = self
            .rest
            .trim_start_matches([' ', '\t', '\n', '\r', ',', ':']);
        let length = match text.as_bytes().first()? {
            b'{' | b'}' | b'[' | b']' => 1,
            b'"' => string_length(text),
            _ => text
                .find([' ', '\t', '\n', '\r', ',', ':', '}', ']'])
                .unwrap_or(text.len()),
        };
        let (token, rest) = text.split_at_checked(length)?;
        self.rest = rest;
        Some(token)
    }
}

/// Returns the length of the string that a text begins with, including its quotes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// Returns the canonical spelling of a string, a number or a literal.
fn spelled(scalar: &str) -> Cow<'_, str> {
    match scalar.as_bytes().first() {
        // Half of a surrogate pair is not valid text, and stays as it is.
        Some(b'"') if scalar.contains('\\') => serde_json::from_str::<String>(scalar)
            .and_then(|text| serde_json::to_string(&text))
            .map_or(scalar.into(), Cow::Owned),
        Some(b'-' | b'0'..=b'9') => match Decimal::of(scalar) {
            Some(decimal) => decimal.spelled().into(),
            None => scalar.into(),
        },
        _ => scalar.into(),
    }
}

/// A number as its digits, without leading or trailing zeros, and a power of ten. Zero has no digits.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Decimal {
    is_negative: bool,
    digits: String,
    exponent: i64,
}

impl Decimal {
    /// Parses a JSON number. Returns `None` if its exponent is too large to count.
    pub fn of(number: &str) -> Option<Self> {
        let (is_negative, number) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number),
        };
        let (mantissa, exponent) = number.split_once(['e', 'E']).unwrap_or((number, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all = format!("{whole}{fraction}");
        let digits = all.trim_start_matches('0');
        let significant = digits.trim_end_matches('0');
        if significant.is_empty() {
            return Some(Self {
                is_negative: false,
                digits: String::new(),
                exponent: 0,
            });
        }
        let zeros = i64::try_from(digits.len() - significant.len()).ok()?;
        let decimals = i64::try_from(fraction.len()).ok()?;
        let exponent: i64 = exponent.parse().ok()?;
        Some(Self {
            is_negative,
            digits: significant.to_owned(),
            exponent: exponent.checked_add(zeros)?.checked_sub(decimals)?,
        })
    }

    /// Compares two numbers.
    pub fn compare(&self, other: &Self) -> std::cmp::Ordering {
        use std::cmp::Ordering;
        let sign = |one: &Self| match (one.digits.is_empty(), one.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        };
        let (left, right) = (sign(self), sign(other));
        if left != right || left == 0 {
            return left.cmp(&right);
        }
        // Compare the number of digits before the point first, then the digits.
        let size = |one: &Self| {
            let digits = i128::try_from(one.digits.len()).unwrap_or(i128::MAX);
            digits + i128::from(one.exponent)
        };
        let by_size = size(self).cmp(&size(other));
        let ordering = by_size.then_with(|| self.digits.cmp(&other.digits));
        match left {
            -1 => ordering.reverse(),
            _ => Ordering::Equal.then(ordering),
        }
    }

    /// Returns the canonical spelling.
    pub fn spelled(&self) -> String {
        let Self {
            digits, exponent, ..
        } = self;
        let sign = if self.is_negative { "-" } else { "" };
        match usize::try_from(*exponent) {
            _ if digits.is_empty() => "0".into(),
            Ok(zeros) if zeros <= 20 => format!("{sign}{digits}{}", "0".repeat(zeros)),
            _ => format!("{sign}{digits}e{exponent}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> String {
        canonical(&Json::parse(text.into()).unwrap())
    }

    #[test]
    fn a_value_has_one_text() {
        for (written, text) in [
            (
                " { \"b\" : [ 1.0 , 10e-1, -0.0 ] , \"a\":{}} ",
                r#"{"a":{},"b":[1,1,0]}"#,
            ),
            (r#"["\u0061\/", "é", "\u00e9", ""]"#, r#"["a/","é","é",""]"#),
            (r#"{"a":1,"a":2,"\u0061":3}"#, r#"{"a":3}"#),
            (
                r#"[true,false,null,[],[[]],{"x":{"y":[{}]}}]"#,
                r#"[true,false,null,[],[[]],{"x":{"y":[{}]}}]"#,
            ),
            (r#"{"}":"]\"{","\\":"\\\\"}"#, r#"{"\\":"\\\\","}":"]\"{"}"#),
            ("1.50e2", "150"),
            ("0.05", "5e-2"),
            ("-12E+3", "-12000"),
            ("1e400", "1e400"),
            ("0e99999999999999999999", "0"),
            ("12345678901234567890123", "12345678901234567890123"),
        ] {
            assert_eq!(of(written), text, "{written}");
        }
        assert_eq!(of(r#""\ud800""#), r#""\ud800""#);
    }

    #[test]
    fn large_numbers_are_kept_apart() {
        assert_ne!(of("18446744073709551617"), of("18446744073709551618"));
        assert_ne!(of("1e99999999999999999999"), of("1e99999999999999999998"));
        assert_eq!(of("18446744073709551617.0"), of("18446744073709551617"));
    }

    #[test]
    fn a_number_is_whole_by_its_value_and_not_by_its_spelling() {
        // rule 8.1
        for whole in [
            "1",
            "1.0",
            "-0",
            "10e-1",
            "1e400",
            "0.0e-99999999999999999999",
            "1E99999999999999999999",
        ] {
            assert!(is_whole(whole), "{whole}");
        }
        for broken in [
            "0.5",
            "1e-1",
            "1.00000000000000000000001",
            "1e-99999999999999999999",
        ] {
            assert!(!is_whole(broken), "{broken}");
        }
    }

    #[test]
    fn depth_is_not_limited() {
        let deep = r#"{"b":0,"a":["#.repeat(80_000) + &"]}".repeat(80_000);
        let turned = r#"{"a":["#.repeat(80_000) + &r#"],"b":0}"#.repeat(80_000);
        assert_eq!(of(&deep), of(&turned));
    }
}
