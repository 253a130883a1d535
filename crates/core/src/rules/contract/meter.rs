//! Counts the work of one validation, and ends it when the limit is reached (rule 8.5).
//!
//! The validator walks over a value through [`Metered`], a view that charges a step for each access. When the steps are
//! used up, every value looks like `null`, so the walk ends quickly; its verdict is then discarded. The limit is a
//! number of steps, not a time: a value is refused everywhere and always, or never.

use std::borrow::Cow;
use std::cell::Cell;

use jsonschema::JsonType;
use jsonschema::json::{Array, Json, Node, NodeIdentity, Object, cmp, unique};
use serde_json::{Map, Number, Value};

/// Maximum number of steps of one validation: less than a second on one core, for any value and any contract.
pub const VALIDATION_STEPS_MAX: u64 = 200_000_000;

/// Number of items below which the validator compares each with each instead of hashing them.
const COMPARED_PAIRWISE: usize = 16;

static NULL: Value = Value::Null;

thread_local! {
    // A validation runs on one thread from beginning to end. The validator creates some nodes itself (the names of
    // properties) and passes no context to them, so the account cannot be a part of the nodes.
    static ACCOUNT: Cell<Account> = const { Cell::new(Account { left: 0, rates: Rates::FREE }) };
}

#[derive(Clone, Copy)]
struct Account {
    left: u64,
    rates: Rates,
}

/// The costs of accessing values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rates {
    /// Steps for each byte of a text, which may be matched with a pattern.
    pub text_byte: u64,
    /// Steps for each byte of a property's name, which may be matched with several patterns.
    pub name_byte: u64,
    /// Steps for each item of an array and each member of an object.
    pub item: u64,
}

impl Rates {
    /// The rates without any pattern.
    pub const FREE: Self = Self {
        text_byte: 1,
        name_byte: 1,
        item: 1,
    };
}

/// The steps that validations may use, in total.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    most: u64,
    left: u64,
}

impl Default for Steps {
    fn default() -> Self {
        Self::new(VALIDATION_STEPS_MAX)
    }
}

impl Steps {
    /// Creates a budget of that many steps.
    pub const fn new(most: u64) -> Self {
        Self { most, left: most }
    }

    /// The initial number of steps.
    pub const fn most(&self) -> u64 {
        self.most
    }

    /// The number of steps that are left.
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// `true` if all steps were used up.
    pub const fn are_spent(&self) -> bool {
        self.left == 0
    }

    /// Uses steps for work that is done elsewhere. Returns `true` if there were enough.
    pub(super) fn take(&mut self, count: u64) -> bool {
        self.left = self.left.saturating_sub(count);
        !self.are_spent()
    }

    /// Runs a validator on a value. Its verdict counts only if there are steps [left](Self::are_spent) afterwards.
    pub(super) fn examine<'v, T>(
        &mut self,
        rates: Rates,
        value: &'v Value,
        validate: impl FnOnce(Metered<'v>) -> T,
    ) -> T {
        let left = self.left;
        ACCOUNT.set(Account { left, rates });
        let verdict = validate(Metered(value));
        self.left = ACCOUNT.get().left;
        verdict
    }
}

/// Charges for an access. Returns `true` if there are steps left.
fn pay(cost: impl FnOnce(Rates) -> u64) -> bool {
    ACCOUNT.with(|cell| {
        let account = cell.get();
        let left = account.left.saturating_sub(cost(account.rates));
        cell.set(Account { left, ..account });
        left > 0
    })
}

fn bytes(text: &str) -> u64 {
    text.len() as u64
}

/// The representation that the validator walks over.
pub(super) struct MeteredJson;

/// A value as the validator sees it.
#[derive(Clone, Copy)]
pub(super) struct Metered<'a>(&'a Value);

impl<'a> Metered<'a> {
    /// Returns the value, or `null` if the steps are used up.
    fn seen(self) -> &'a Value {
        if pay(|_| 1) { self.0 } else { &NULL }
    }
}

impl Json for MeteredJson {
    type Node<'a> = Metered<'a>;
    type PreparedKey = String;
    type StringBuffer = Value;

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>(
        buffer: &mut Value,
        string: &str,
        f: impl FnOnce(Metered<'_>) -> T,
    ) -> T {
        *buffer = Value::String(string.to_owned());
        f(Metered(buffer))
    }
}

impl<'a> Node<'a, MeteredJson> for Metered<'a> {
    type Object = Members<'a>;
    type Array = Items<'a>;
    type Number = &'a Number;

    fn as_object(&self) -> Option<Members<'a>> {
        self.seen().as_object().map(Members)
    }

    fn as_array(&self) -> Option<Items<'a>> {
        self.seen().as_array().map(|items| Items(items))
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        let text = self.seen().as_str()?;
        let paid = pay(|rates| bytes(text).saturating_mul(rates.text_byte));
        Some(Cow::Borrowed(if paid { text } else { "" }))
    }

    fn as_number(&self) -> Option<&'a Number> {
        self.seen().as_number()
    }

    fn as_boolean(&self) -> Option<bool> {
        self.seen().as_bool()
    }

    fn is_null(&self) -> bool {
        self.seen().is_null()
    }

    fn json_type(&self) -> JsonType {
        match self.seen() {
            Value::Null => JsonType::Null,
            Value::Bool(_) => JsonType::Boolean,
            Value::Number(_) => JsonType::Number,
            Value::String(_) => JsonType::String,
            Value::Array(_) => JsonType::Array,
            Value::Object(_) => JsonType::Object,
        }
    }

    fn string_length(&self) -> Option<u64> {
        let text = self.seen().as_str()?;
        let paid = pay(|_| bytes(text));
        Some(if paid { text.chars().count() as u64 } else { 0 })
    }

    fn equals_value(&self, expected: &Value) -> bool {
        // A comparison ends with the smaller of the two.
        pay_for_all(expected) && cmp::equal(self.seen(), expected)
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Borrowed(self.seen())
    }

    fn identity(&self) -> Option<NodeIdentity> {
        Some(NodeIdentity::new(
            std::ptr::from_ref::<Value>(self.0) as usize
        ))
    }
}

/// Charges for an access to everything in a value.
fn pay_for_all(value: &Value) -> bool {
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        let paid = match value {
            Value::String(text) => pay(|_| 1 + bytes(text)),
            _ => pay(|_| 1),
        };
        if !paid {
            return false;
        }
        match value {
            Value::Array(items) => left.extend(items),
            Value::Object(members) => left.extend(members.values()),
            _ => {}
        }
    }
    true
}

/// The members of an object.
#[derive(Clone, Copy)]
pub(super) struct Members<'a>(&'a Map<String, Value>);

impl<'a> Object<'a, MeteredJson> for Members<'a> {
    type Node = Metered<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        if pay(|_| 1) { self.0.len() } else { 0 }
    }

    fn get(&self, key: &String) -> Option<Metered<'a>> {
        let paid = pay(|_| 1 + bytes(key) / 8);
        self.0.get(key).filter(|_| paid).map(Metered)
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter(self.0.iter())
    }
}

pub(super) struct MembersIter<'a>(serde_json::map::Iter<'a>);

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, Metered<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (name, value) = self.0.next()?;
        let paid = pay(|rates| {
            let matched = bytes(name).saturating_mul(rates.name_byte);
            matched.saturating_add(rates.item)
        });
        paid.then_some((name, Metered(value)))
    }
}

/// The items of an array.
#[derive(Clone, Copy)]
pub(super) struct Items<'a>(&'a [Value]);

impl<'a> Array<'a, MeteredJson> for Items<'a> {
    type Node = Metered<'a>;
    type ElementsIter = ItemsIter<'a>;

    fn len(&self) -> usize {
        if pay(|_| 1) { self.0.len() } else { 0 }
    }

    fn elements(&self) -> ItemsIter<'a> {
        ItemsIter(self.0.iter())
    }

    fn is_unique(&self) -> bool {
        // Each item is hashed or, if there are few, compared with the others.
        let visits = match self.0.len() {
            few @ ..COMPARED_PAIRWISE => few,
            _ => 2,
        };
        (0..visits).all(|_| self.0.iter().all(pay_for_all)) && unique::is_unique(self.0)
    }
}

pub(super) struct ItemsIter<'a>(std::slice::Iter<'a, Value>);

impl<'a> Iterator for ItemsIter<'a> {
    type Item = Metered<'a>;

    fn next(&mut self) -> Option<Metered<'a>> {
        let item = self.0.next()?;
        pay(|rates| rates.item).then_some(Metered(item))
    }
}
