//! Who may do what: tokens with a role, kept in the store as hashes.

mod guard;
mod role;
mod tokens;

pub use guard::{admitted, admitted_in_time, allowed, from_proxy, guard, proxied};
pub use role::Role;
pub use tokens::{Access, Known, NewToken, Tokens, create, list, revoke};

/// Random bytes from the system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
