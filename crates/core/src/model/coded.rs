//! Enums whose values the databases store as numbers and every interface shows as names.

/// Declares an enum by one table: its values, the number that the databases store for each, which never changes, and the
/// name in every interface.
macro_rules! coded {
    (
        $(#[$meta:meta])*
        pub enum $type:ident { $( $(#[$doc:meta])* $value:ident = $code:tt, $name:tt; )+ }
    ) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        $(#[$meta])*
        #[repr(u8)]
        pub enum $type {
            $( $(#[$doc])* #[serde(rename = $name)] $value = $code, )+
        }

        impl $type {
            /// All of them, in the order of their codes.
            pub const ALL: [Self; [$($code),+].len()] = [$(Self::$value),+];

            /// The number that the databases store for it.
            pub const fn code(self) -> i16 {
                self as i16
            }

            /// Converts the stored number back. Returns `None` if it is unknown.
            pub const fn from_code(code: i16) -> Option<Self> {
                match code {
                    $($code => Some(Self::$value),)+
                    _ => None,
                }
            }

            /// Its name, the same in every interface.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $name,)+
                }
            }

            /// Returns the one with that name.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == name)
            }
        }
    };
}
pub(super) use coded;

#[cfg(test)]
mod tests {
    use crate::model::{
        Cause, CommandKind, CommandStatus, Kind, Rejection, ResumeKind, Status, WaitKind,
    };

    macro_rules! check {
        ($($type:ty),+) => {$(
            for (one, at) in <$type>::ALL.into_iter().zip(<$type>::ALL[0].code()..) {
                // rule 3.1: the statuses have these codes and no others.
                assert_eq!((one.code(), <$type>::from_code(at)), (at, Some(one)));
                assert_eq!(<$type>::named(one.name()), Some(one));
                assert_eq!(serde_json::to_string(&one).unwrap(), format!("{:?}", one.name()));
            }
            assert!(<$type>::from_code(99).is_none() && <$type>::from_code(-1).is_none());
        )+};
    }

    #[test]
    fn codes_and_names_are_read_back() {
        check!(
            Cause,
            CommandKind,
            CommandStatus,
            Kind,
            Rejection,
            ResumeKind,
            Status,
            WaitKind
        );
    }
}
