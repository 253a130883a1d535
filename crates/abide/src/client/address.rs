//! The address of an instance: an id, a key or a handle.

use abide_core::model::{InstanceId, Key, Refusal, Target};

use super::Handle;

/// The instance that a call is for: an id, a key, or a handle. Text that consists of digits alone is an id; other text
/// is a key.
pub trait Address {
    /// Converts the address to a target.
    fn target(self) -> Result<Target, Refusal>;
}

impl Address for &str {
    fn target(self) -> Result<Target, Refusal> {
        let digits = !self.is_empty() && self.bytes().all(|byte| byte.is_ascii_digit());
        match self.parse() {
            Ok(id) if digits => Ok(Target::Id(InstanceId(id))),
            _ => Key::new(self).map(Target::Key),
        }
    }
}

impl Address for &String {
    fn target(self) -> Result<Target, Refusal> {
        self.as_str().target()
    }
}

impl Address for String {
    fn target(self) -> Result<Target, Refusal> {
        self.as_str().target()
    }
}

impl Address for InstanceId {
    fn target(self) -> Result<Target, Refusal> {
        Ok(Target::Id(self))
    }
}

impl Address for Key {
    fn target(self) -> Result<Target, Refusal> {
        Ok(Target::Key(self))
    }
}

impl Address for Target {
    fn target(self) -> Result<Target, Refusal> {
        Ok(self)
    }
}

/// A handle's key if it has one, so that the newest run is addressed; otherwise its id.
impl<O> Address for &Handle<O> {
    fn target(self) -> Result<Target, Refusal> {
        Ok(match self.key() {
            Some(key) => Target::Key(key.clone()),
            None => Target::Id(self.id()),
        })
    }
}
