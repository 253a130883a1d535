//! The test kit: the real engine on a store in memory, with a clock that the test moves.
//!
//! ```
//! use abide::machine::next_in;
//! use abide::prelude::*;
//! use abide::testing::Kit;
//!
//! #[derive(Step)]
//! enum At { Welcome, Remind }
//!
//! struct Onboarding;
//!
//! impl Machine for Onboarding {
//!     const NAME: &'static str = "onboarding";
//!     type Step = At;
//!     type State = u32;
//!     type Output = u32;
//!
//!     async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
//!         *ctx.state_mut() += 1;
//!         match at {
//!             At::Welcome => next_in(days(3), At::Remind),
//!             At::Remind => done(*ctx.state()),
//!         }
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let kit = Kit::builder().machine(Onboarding).build().await?;
//! let user = kit.start(Onboarding, 0).key("user:7").await?;
//! kit.settle().await;
//! kit.assert_at(&user, At::Remind).await;             // it waits for its time
//! kit.kill_worker_before_commit(At::Remind);          // and the worker will die there
//! kit.advance(days(3)).await;
//! kit.restart_worker().await?;
//! kit.settle().await;
//! kit.assert_done(&user, &2).await;                   // the step ran twice and was committed once
//! # Ok(())
//! # }
//! ```

mod crash;
mod describe;
mod kit;
mod replays;

pub use kit::{Kit, KitBuilder};
pub use replays::{assert_replays, replays};
