//! Signals and updates to send or to wait for: by their Rust types, or by their names.

use abide_core::model::{Arguments, Json, Name, NotJson, Refusal};

use super::{Message, Signal, Update, arguments_of};

/// The name of a signal: a [`Signal`], or plain text.
pub trait SignalName {
    /// Returns the name, if it is valid.
    fn signal_name(&self) -> Result<Name, Refusal>;
}

/// A signal to send: a [`Signal`] and a value of its type, or a name and [`Arguments`].
pub trait SentSignal: SignalName {
    /// The value that it is sent with.
    type Value<'v>;

    /// Returns the value as arguments.
    fn encode(&self, value: Self::Value<'_>) -> Result<Arguments, NotJson>;
}

/// An update to send: an [`Update`] and a value of its type, or a name and [`Arguments`].
pub trait SentUpdate {
    /// The value that it is sent with.
    type Value<'v>;
    /// The type of its answer; [`Json`] for an update that is sent by its name.
    type Answer;

    /// Returns the name, if it is valid.
    fn update_name(&self) -> Result<Name, Refusal>;

    /// Returns the value as arguments.
    fn encode(&self, value: Self::Value<'_>) -> Result<Arguments, NotJson>;
}

impl<T> SignalName for Signal<T> {
    fn signal_name(&self) -> Result<Name, Refusal> {
        Name::new(self.name())
    }
}

impl<T: Message> SentSignal for Signal<T> {
    type Value<'v> = &'v T;

    fn encode(&self, value: &T) -> Result<Arguments, NotJson> {
        arguments_of(value)
    }
}

impl<A: Message, R> SentUpdate for Update<A, R> {
    type Value<'v> = &'v A;
    type Answer = R;

    fn update_name(&self) -> Result<Name, Refusal> {
        Name::new(self.name())
    }

    fn encode(&self, value: &A) -> Result<Arguments, NotJson> {
        arguments_of(value)
    }
}

/// Makes types of text names of signals and updates.
macro_rules! by_name {
    ($($text:ty),*) => {
        $(
            impl SignalName for $text {
                fn signal_name(&self) -> Result<Name, Refusal> {
                    Name::new(self)
                }
            }

            impl SentSignal for $text {
                type Value<'v> = Arguments;

                fn encode(&self, value: Arguments) -> Result<Arguments, NotJson> {
                    Ok(value)
                }
            }

            impl SentUpdate for $text {
                type Value<'v> = Arguments;
                type Answer = Json;

                fn update_name(&self) -> Result<Name, Refusal> {
                    Name::new(self)
                }

                fn encode(&self, value: Arguments) -> Result<Arguments, NotJson> {
                    Ok(value)
                }
            }
        )*
    };
}

by_name!(&str, &String, String, Name);
