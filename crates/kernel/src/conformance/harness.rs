//! Makes a test of each entry of the list.

/// Makes one `#[tokio::test]` of each test of the suite. The argument is a function that makes a new, empty store:
/// `async fn make(setup: Setup) -> Subject`. The crate that calls it needs tokio with its macros.
///
/// ```no_run
/// use abide_kernel::conformance::{Setup, Subject};
/// use abide_kernel::memory::Memory;
///
/// async fn make(setup: Setup) -> Subject {
///     Subject::new(Memory::new(setup.clock, setup.limits))
/// }
///
/// abide_kernel::conformance_tests!(make);
/// ```
#[macro_export]
macro_rules! conformance_tests {
    ($make:ident) => {
        $crate::for_each_conformance_test!($crate::__conformance_tests, $make);
    };
}

/// Makes the tests; called with the list.
#[doc(hidden)]
#[macro_export]
macro_rules! __conformance_tests {
    (($make:ident) $($group:ident { $($test:ident,)* })*) => {
        $(
            mod $group {
                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                    async fn $test() {
                        $crate::conformance::check(super::$make, $crate::conformance::$group::$test).await;
                    }
                )*
            }
        )*
    };
}
