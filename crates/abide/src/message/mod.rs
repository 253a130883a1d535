//! Messages: signals, updates, queries and events as Rust values, each a name and the type of its arguments. [`eq`],
//! [`gt`] and the others are the conditions of a wait for an event. [`Arguments`] are what is sent by name, without a Rust
//! type.

mod event;
mod sent;
mod shape;
mod value;

#[cfg(test)]
mod tests;

use std::fmt;
use std::marker::PhantomData;

pub use abide_core::model::Arguments;
use abide_core::model::{Accepts, Json, Name, NotJson, Refusal};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) use event::REFERENCE;
pub use event::{Event, Test, eq, eq_typed, exists, gt, gte, lt, lte, ne, one_of};
pub use sent::{SentSignal, SentUpdate, SignalName};
use shape::Shape;
pub(crate) use value::{arguments_of, read};

/// A type that is sent and stored as JSON, and described by a JSON Schema: the arguments of a signal, an update or a query.
/// Derive it. A state, an output and an event may be such a type too.
///
/// `#[derive(Message)]` is `Serialize` and `Deserialize` of serde and `JsonSchema` of schemars, and understands their attributes
/// (`#[serde(default)]`, `#[schemars(range(min = 1))]`). Neither crate need be among your dependencies. A type that has the three traits by
/// other means is a message too: those of the standard library, and generic types, which this derive does not take.
///
/// ```
/// use abide::{Message, Signal};
///
/// #[derive(Message)]
/// #[serde(rename_all = "camelCase")]
/// struct Paid {
///     /// In cents.
///     #[schemars(range(min = 1))]
///     amount: i64,
///     #[serde(default)]
///     paid_by: Option<String>,
/// }
///
/// const PAID: Signal<Paid> = Signal::new("paid");
///
/// let parameters = PAID.accepts()?.parameters.unwrap_or_default();
/// assert_eq!((parameters[0].name.as_str(), parameters[1].name.as_str()), ("amount", "paidBy"));
/// # Ok::<(), abide::model::Refusal>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be sent: it is not a message",
    label = "not a message",
    note = "add `#[derive(abide::Message)]` to the type; where that cannot be, it needs `Serialize` and `Deserialize` of serde and \
            `JsonSchema` of `abide::schemars`"
)]
pub trait Message: Serialize + DeserializeOwned + JsonSchema + 'static {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + DeserializeOwned + JsonSchema + 'static> Message for T {}

/// A signal by its name, with the type that it is sent with.
///
/// A struct is sent field by field, so that others can send it by position or by name; `()` is sent with nothing; any
/// other type is sent as one argument, `value`.
///
/// ```
/// use abide::{Message, Signal};
///
/// #[derive(Message)]
/// struct Paid { amount: i64, note: Option<String> }
///
/// const PAID: Signal<Paid> = Signal::new("paid");
///
/// let parameters = PAID.accepts()?.parameters.unwrap_or_default();
/// assert_eq!(parameters[0].name, "amount");
/// assert!(parameters[1].nullable);
/// # Ok::<(), abide::model::Refusal>(())
/// ```
pub struct Signal<T> {
    name: &'static str,
    // It has no T: it is Send, Sync and Copy whatever T is.
    sent: PhantomData<fn(T) -> T>,
}

impl<T> Signal<T> {
    /// Creates a signal with this name. The name is validated when the signal is declared or sent.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            sent: PhantomData,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<T: JsonSchema + 'static> Signal<T> {
    /// Returns its declaration in a machine's contract.
    pub fn accepts(&self) -> Result<Accepts, Refusal> {
        accepts::<T>(self.name)
    }

    /// The arguments that it is sent with.
    pub fn arguments(&self, value: &T) -> Result<Arguments, NotJson>
    where
        T: Serialize,
    {
        arguments_of(value)
    }

    /// Reads its value from the normalised arguments.
    pub fn read(&self, normalised: &Json) -> Result<T, NotJson>
    where
        T: DeserializeOwned,
    {
        read(normalised)
    }
}

/// An update by its name, with the type that it is sent with and the type of its answer.
///
/// It is sent like a [`Signal`].
///
/// ```
/// use abide::Update;
///
/// const ADD: Update<i64, i64> = Update::new("add");
///
/// assert_eq!(ADD.accepts()?.name.as_str(), "add");
/// # Ok::<(), abide::model::Refusal>(())
/// ```
pub struct Update<A, R> {
    name: &'static str,
    // As with a signal.
    sent: PhantomData<fn(A) -> R>,
}

impl<A, R> Update<A, R> {
    /// Creates an update with this name. The name is validated when the update is declared or sent.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            sent: PhantomData,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<A: JsonSchema + 'static, R> Update<A, R> {
    /// Returns its declaration in a machine's contract.
    pub fn accepts(&self) -> Result<Accepts, Refusal> {
        accepts::<A>(self.name)
    }

    /// The arguments that it is sent with.
    pub fn arguments(&self, value: &A) -> Result<Arguments, NotJson>
    where
        A: Serialize,
    {
        arguments_of(value)
    }

    /// Reads its value from the normalised arguments.
    pub fn read(&self, normalised: &Json) -> Result<A, NotJson>
    where
        A: DeserializeOwned,
    {
        read(normalised)
    }
}

/// A query by its name, with the type that it is sent with and the type of its answer. It reads a workflow's own
/// state and changes nothing.
///
/// ```
/// use abide::message::Query;
///
/// const PROGRESS: Query<(), u32> = Query::new("progress");
///
/// assert_eq!(PROGRESS.name(), "progress");
/// ```
pub struct Query<A, R> {
    name: &'static str,
    // As with a signal.
    sent: PhantomData<fn(A) -> R>,
}

impl<A, R> Query<A, R> {
    /// Creates a query with this name.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            sent: PhantomData,
        }
    }

    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }
}

impl<A, R> Clone for Query<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for Query<A, R> {}

impl<A, R> fmt::Debug for Query<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Query({:?})", self.name)
    }
}

fn accepts<T: JsonSchema + 'static>(name: &str) -> Result<Accepts, Refusal> {
    Ok(Accepts {
        name: Name::new(name)?,
        parameters: Some(Shape::of::<T>().parameters()),
    })
}

impl<T> Clone for Signal<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Signal<T> {}

impl<T> fmt::Debug for Signal<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signal({:?})", self.name)
    }
}

impl<A, R> Clone for Update<A, R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<A, R> Copy for Update<A, R> {}

impl<A, R> fmt::Debug for Update<A, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Update({:?})", self.name)
    }
}
