//! A value that is sent is read back unchanged, for every type, with a contract and without.

mod derived;
mod returning;
mod shapes;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;

use abide_core::model::{Contract, TypeSpec};
use abide_core::rules::contract::{Steps, Terms, free};
use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;

fn terms_of<T: JsonSchema + 'static>() -> Terms {
    let contract = Contract {
        signals: vec![Signal::<T>::new("s").accepts().unwrap()],
        updates: vec![Update::<T, ()>::new("s").accepts().unwrap()],
    };
    // It is stored and read back before it is used.
    let stored: Contract = contract.to_json().to().unwrap();
    assert_eq!(stored, contract);
    Terms::new(&stored).unwrap()
}

fn normalised<T: Serialize + JsonSchema + 'static>(value: &T) -> Json {
    let arguments = arguments_of(value).unwrap();
    let name = Name::new("s").unwrap();
    match terms_of::<T>().signal(&name, &arguments, &mut Steps::default()) {
        Ok(normalised) => normalised,
        Err(error) => panic!("{arguments:?}: {error}"),
    }
}

/// Asserts that a value is read back from the arguments that it is sent as.
fn returns<T>(value: T)
where
    T: Serialize + DeserializeOwned + JsonSchema + PartialEq + Debug + 'static,
{
    let bound = normalised(&value);
    assert_eq!(read::<T>(&bound).unwrap(), value, "{bound}");
    let unbound = free(&arguments_of(&value).unwrap());
    assert_eq!(read::<T>(&unbound).unwrap(), value, "{unbound}");
}

/// Returns the value that is read from arguments, if they are accepted.
fn taken<T: DeserializeOwned + JsonSchema + 'static>(arguments: &str) -> Option<T> {
    let arguments: Arguments = serde_json::from_str(arguments).unwrap();
    let name = Name::new("s").unwrap();
    let normalised = terms_of::<T>()
        .signal(&name, &arguments, &mut Steps::default())
        .ok()?;
    Some(read(&normalised).unwrap())
}

fn parameters<T: JsonSchema + 'static>() -> Value {
    serde_json::to_value(Shape::of::<T>().parameters()).unwrap()
}

macro_rules! data {
    ($($item:item)*) => {
        $(#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)] $item)*
    };
}

use data;

fn seven() -> u32 {
    7
}

data! {
    struct Order { zebra: i64, apple: String, note: Option<String>, inner: Inner, tags: Vec<Inner> }
    struct Inner { x: f64, on: bool }
    #[serde(rename_all = "camelCase")]
    struct Renamed { first_name: String, #[serde(rename = "Имя")] name: String, #[serde(rename = "type")] kind: u8 }
    struct Flat { a: u8, #[serde(flatten)] inner: Inner }
    struct FlatMap { a: u8, #[serde(flatten)] rest: BTreeMap<String, u8> }
    struct FlatEnum { a: u8, #[serde(flatten)] kind: Tagged }
    struct FlatOption { a: u8, #[serde(flatten)] inner: Option<Inner> }
    struct Defaulted {
        #[serde(default)] count: u32,
        #[serde(default = "seven")] seven: u32,
        #[serde(default)] list: Vec<u8>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")] skipped: Vec<u8>,
        #[serde(skip_serializing_if = "Option::is_none")] maybe: Option<u8>,
        #[serde(default)] inner: Option<Inner>,
    }
    #[serde(deny_unknown_fields)]
    struct Strict { a: u8, b: Option<u8> }
    struct Unit;
    struct Empty {}
    struct Newtype(u64);
    struct NewtypeOfStruct(Inner);
    struct Pair(u8, String);
    struct Generic<T> { value: T, others: Vec<T> }
    struct Tree { label: String, children: Vec<Tree>, left: Option<Box<Tree>> }
    struct Odd { #[serde(rename = "")] empty: u8 }
    struct Free { any: Value, map: HashMap<String, Value> }
    enum External { Unit, New(u8), Tuple(u8, String), Struct { a: Inner } }
    #[serde(tag = "kind")]
    enum Tagged { Unit, New(Inner), Struct { s: u8 } }
    #[serde(tag = "t", content = "c")]
    enum Adjacent { Unit, New(u8), Tuple(u8, u8), Struct { a: u8 } }
    #[serde(untagged)]
    enum Untagged { Number(i64), Text(String), Struct { a: u8 } }
    enum Plain { Red, Green }
    enum Only { One { a: u8 } }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
struct AllDefault {
    a: u8,
    b: String,
}

impl Default for AllDefault {
    fn default() -> Self {
        Self {
            a: 9,
            b: "b".into(),
        }
    }
}

fn inner() -> Inner {
    Inner { x: 1.0, on: true }
}

fn order() -> Order {
    Order {
        zebra: -1,
        apple: "é\0\"".into(),
        note: None,
        inner: inner(),
        tags: vec![inner(), inner()],
    }
}
