//! `#[derive(Message)]`, compared with the derives of serde and schemars on the same type.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::model::Json;
use crate::{Message, Signal};

/// Two modules with the same types, one derived by each.
macro_rules! twice {
    ($($item:item)*) => {
        mod by_message {
            use super::*;
            $(#[derive(Debug, PartialEq, crate::Message)] $item)*
        }
        mod by_hand {
            use super::*;
            $(#[derive(Debug, PartialEq, Serialize, Deserialize, JsonSchema)] $item)*
        }
    };
}

twice! {
    /// A payment.
    #[serde(rename_all = "camelCase", deny_unknown_fields)]
    pub struct Paid {
        /// In cents.
        #[schemars(range(min = 1))]
        pub amount: i64,
        #[serde(default = "euro")]
        pub currency: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub paid_by: Option<String>,
        pub tags: BTreeMap<String, Vec<u8>>,
    }

    /// A tree.
    pub struct Tree {
        pub name: String,
        pub leaves: Vec<Self>,
    }

    #[serde(rename = "Nothing")]
    pub struct Unit;

    pub struct Pair(pub u8, pub String);

    #[serde(transparent)]
    pub struct Wrapped {
        pub inner: u64,
    }

    /// What came of it.
    #[serde(tag = "kind", rename_all = "snake_case")]
    pub enum Outcome {
        Shipped { parcel: u32 },
        #[serde(alias = "gone")]
        Lost,
    }

    pub enum Plain {
        One,
        Two(i8),
        Three { r#type: bool },
    }

    #[serde(default)]
    pub struct Defaulted {
        pub a: u8,
        #[serde(skip)]
        pub hidden: u8,
    }

    #[serde(try_from = "String", into = "String")]
    pub struct Checked(pub String);
}

fn euro() -> String {
    "eur".into()
}

macro_rules! with {
    ($module:ident) => {
        impl Default for $module::Defaulted {
            fn default() -> Self {
                Self { a: 7, hidden: 3 }
            }
        }
        impl Clone for $module::Checked {
            fn clone(&self) -> Self {
                Self(self.0.clone())
            }
        }
        impl From<$module::Checked> for String {
            fn from(checked: $module::Checked) -> Self {
                checked.0
            }
        }
        impl TryFrom<String> for $module::Checked {
            type Error = &'static str;
            fn try_from(text: String) -> Result<Self, Self::Error> {
                match text.is_empty() {
                    true => Err("it is empty"),
                    false => Ok(Self(text)),
                }
            }
        }
    };
}
with!(by_message);
with!(by_hand);

/// Asserts that both types give the same result for JSON: the value written again, or the error.
fn same<A, B>(given: &[Value])
where
    A: Message + std::fmt::Debug,
    B: Message + std::fmt::Debug,
{
    let schema = |schema: schemars::Schema| schema.to_value();
    assert_eq!(
        schema(schemars::schema_for!(A)),
        schema(schemars::schema_for!(B))
    );
    assert_eq!(A::schema_name(), B::schema_name());
    assert_eq!(A::inline_schema(), B::inline_schema());
    let accepts = |signal: Result<crate::contract::Accepts, crate::model::Refusal>| signal.unwrap();
    assert_eq!(
        accepts(Signal::<A>::new("s").accepts()),
        accepts(Signal::<B>::new("s").accepts())
    );
    for value in given {
        let json = Json::of(value).unwrap();
        let one = json.to::<A>();
        let other = json.to::<B>();
        let written = |json: Json| json.as_str().to_owned();
        let one = one.map(|one| (format!("{one:?}"), written(Json::of(&one).unwrap())));
        let other = other.map(|other| (format!("{other:?}"), written(Json::of(&other).unwrap())));
        assert_eq!(
            one.map_err(|error| error.to_string()),
            other.map_err(|error| error.to_string()),
            "{value}"
        );
    }
}

#[test]
fn a_derived_message_is_what_serde_and_schemars_make_of_it() {
    same::<by_message::Paid, by_hand::Paid>(&[
        json!({"amount": 1, "tags": {}}),
        json!({"amount": 1, "currency": "usd", "paidBy": "größe", "tags": {"a": [1, 255]}}),
        json!({"amount": "1", "tags": {}}),
        json!({"amount": 1, "tags": {}, "other": 2}),
        json!({"tags": {}}),
        json!(null),
    ]);
    let tree = json!({"name": "a", "leaves": [{"name": "b", "leaves": []}]});
    same::<by_message::Tree, by_hand::Tree>(&[tree, json!({"name": "a"})]);
    same::<by_message::Unit, by_hand::Unit>(&[json!(null), json!(1)]);
    same::<by_message::Pair, by_hand::Pair>(&[json!([1, "a"]), json!([1])]);
    same::<by_message::Wrapped, by_hand::Wrapped>(&[json!(7), json!({"inner": 7}), json!(-1)]);
    same::<by_message::Outcome, by_hand::Outcome>(&[
        json!({"kind": "shipped", "parcel": 3}),
        json!({"kind": "lost"}),
        json!({"kind": "gone"}),
        json!({"kind": "found"}),
    ]);
    same::<by_message::Plain, by_hand::Plain>(&[
        json!("One"),
        json!({"Two": -3}),
        json!({"Three": {"type": true}}),
        json!("Four"),
    ]);
    same::<by_message::Defaulted, by_hand::Defaulted>(&[json!({}), json!({"a": 1, "hidden": 9})]);
    same::<by_message::Checked, by_hand::Checked>(&[json!("a"), json!("")]);
}

#[test]
fn json_that_is_not_of_a_type_is_not_called_anything_else() {
    let unfit = |text: &str| {
        let json = Json::parse(text.to_owned());
        json.and_then(|json| json.to::<by_message::Tree>())
            .unwrap_err()
            .to_string()
    };
    let error = unfit(r#"{"name": 7, "leaves": []}"#);
    assert!(
        error.starts_with("invalid type: integer `7`, expected a string"),
        "{error}"
    );
    assert!(unfit("{").starts_with("not JSON: "), "{}", unfit("{"));
    let unwritten = Json::of(&BTreeMap::from([(vec![1], 2)])).unwrap_err();
    assert!(
        unwritten
            .to_string()
            .starts_with("cannot be written as JSON: "),
        "{unwritten}"
    );
}
