//! Authorization: tokens with a role, stored as hashes.

mod guard;
mod role;
mod tokens;

pub use guard::{admitted, admitted_in_time, allowed, from_proxy, guard, proxied};
pub use role::Role;
pub use tokens::{Access, Known, NewToken, Tokens, bootstrap, create, list, revoke};

/// Returns random bytes from the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], getrandom::Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes)?;
    Ok(bytes)
}
