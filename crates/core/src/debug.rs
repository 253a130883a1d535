//! Makes `Debug` of error types print the readable message.

/// Makes `Debug` print what `Display` prints. A `main` that returns an error, and an `unwrap`, print `Debug`; with
/// this, both show the message that says what to do.
///
/// ```
/// #[derive(thiserror::Error)]
/// #[error("the oven is cold; preheat it")]
/// struct Cold;
/// abide_core::debug_is_display!(Cold);
///
/// assert_eq!(format!("{:?}", Cold), "the oven is cold; preheat it");
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! debug_is_display {
    ($($error:ty),+ $(,)?) => {
        $(impl ::std::fmt::Debug for $error {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        })+
    };
}
