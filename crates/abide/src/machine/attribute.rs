//! The attribute `#[machine]`: a machine as an `impl` block whose functions are the steps.

/// Makes an `impl` block a [`Machine`](crate::Machine). Each async function of the block is a step; an instance begins
/// with the first one.
///
/// ```
/// use abide::prelude::*;
///
/// const PAID: Signal<u32> = Signal::new("paid");
///
/// struct Checkout;
///
/// #[machine(steps = At, state = String, output = String, signals(PAID))]
/// impl Checkout {
///     async fn order(ctx: &mut Context<Self>) -> Outcome<Self> {
///         ctx.wait_for(PAID).timeout(days(3)).then(At::Ship)
///     }
///
///     async fn ship(ctx: &mut Context<Self>) -> Outcome<Self> {
///         if ctx.timed_out() {
///             return stop("payment never came");
///         }
///         done(format!("{} shipped, {} paid", ctx.state(), ctx.awaited(PAID)?))
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let abide = Abide::open("memory:").await?;
/// let engine = abide.engine().machine(Checkout).start().await?;
/// let order = abide.start(Checkout, "kettle".to_owned()).key("order:42").await?;
/// abide.signal("order:42", PAID, &100).await?;
/// assert_eq!(order.result().await?, "kettle shipped, 100 paid");
/// # engine.shutdown().await;
/// # Ok(())
/// # }
/// ```
///
/// # Steps
///
/// A step is an `async fn` that returns [`Outcome<Self>`](crate::Outcome). It may take `&self`, for what the machine
/// holds (a connection pool, a client), and its context, `ctx: &mut Context<Self>`. Leave out what the step does not
/// need.
///
/// `steps = At` names the enum that is generated from the steps: `async fn ask_again` becomes `At::AskAgain`. So a
/// reference to a step that does not exist does not compile.
///
/// ```compile_fail,E0599
/// # use abide::{Outcome, machine, next};
/// # struct Checkout;
/// #[machine(steps = At)]
/// impl Checkout {
///     async fn order() -> Outcome<Self> {
///         next(At::Shipp)
///     }
///     # async fn ship() -> Outcome<Self> { abide::done(()) }
/// }
/// ```
///
/// A step is stored under the name of its function, and stored instances refer to it by that name. If you rename the
/// function, keep the stored name with `#[step(name = "ask_again")]`.
///
/// # Options
///
/// | option | sets | default |
/// |---|---|---|
/// | `steps = At` | [`Machine::Step`](crate::Machine::Step), the generated enum | none: it is required |
/// | `state = Order` | [`Machine::State`](crate::Machine::State) | `()` |
/// | `output = String` | [`Machine::Output`](crate::Machine::Output) | `()` |
/// | `name = "checkout"` | [`Machine::NAME`](crate::Machine::NAME) | the type's name, in kebab-case |
/// | `version = 2` | [`Machine::VERSION`](crate::Machine::VERSION) | 1 |
/// | `queue = "slow"` | [`Machine::QUEUE`](crate::Machine::QUEUE) | `"default"` |
/// | `history = false` | [`Machine::HISTORY`](crate::Machine::HISTORY) | `true` |
/// | `max_deaths = 3` | [`Machine::MAX_DEATHS`](crate::Machine::MAX_DEATHS) | 5 |
/// | `signals(PAID, …)`, `updates(MOVE, …)` | [`Machine::messages`](crate::Machine::messages) | any signal, no update |
///
/// # The other functions of a machine
///
/// Functions named `on_error`, `on_update`, `messages`, `retry` and `time_limit` are not steps: they are functions of
/// the trait, with its signatures. Put all other functions of the type into another `impl` block.
///
/// ```
/// use abide::machine::Fault;
/// use abide::prelude::*;
///
/// struct Payment {
///     limit: u32,
/// }
///
/// #[machine(steps = At, state = u32, output = String, name = "payment", version = 2)]
/// impl Payment {
///     async fn charge(&self, ctx: &mut Context<Self>) -> Outcome<Self> {
///         if *ctx.state() > self.limit {
///             return Err("over the limit".into());
///         }
///         done("paid".into())
///     }
///
///     async fn apologise() -> Outcome<Self> {
///         done("not paid, and sorry".into())
///     }
///
///     async fn on_error(&self, fault: &Fault, ctx: &mut Context<Self>) -> Outcome<Self> {
///         match ctx.attempt() {
///             0..3 => ctx.retry_or_stop(&self.retry(), fault),
///             _ => next(At::Apologise),
///         }
///     }
///
///     fn retry(&self) -> Retry {
///         Retry::exponential(secs(1))
///     }
/// }
/// # let _ = Payment { limit: 1 };
/// ```
///
/// # Expansion
///
/// The functions stay as they are. The macro adds the enum, with `#[derive(Step)]`, and `impl Machine`, whose `step`
/// calls the function of each variant. You could write the same yourself; [`Machine`](crate::Machine) shows such a
/// machine.
pub use abide_macros::machine;
