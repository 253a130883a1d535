//! A store on a server, over HTTP: the requests and replies of [`abide_kernel::wire`].
//!
//! ```no_run
//! # async fn open() -> Result<(), abide_kernel::Error> {
//! use abide_kernel::Store;
//! use abide_remote::{Options, Remote};
//!
//! // The token is taken from ABIDE_TOKEN, or from the file that ABIDE_TOKEN_FILE names, unless the options have one.
//! let store = Remote::connect("https://abide.example.org", Options::default()).await?;
//! println!("{:?}", store.next_due().await?);
//! store.close().await;
//! # Ok(())
//! # }
//! ```

mod address;
mod caller;
mod clock;
mod notifications;
mod options;
mod store;
mod tls;

pub use options::{Options, TOKEN, TOKEN_FILE};
pub use store::Remote;
