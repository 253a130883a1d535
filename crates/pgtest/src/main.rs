//! `cargo run -p abide-pgtest`: a PostgreSQL to try things on, until its input closes.
//!
//! With a command it runs that command instead: all tests that it starts, in however many processes, share one server.

use std::io::Read;
use std::process::{Command, ExitCode};

use abide_pgtest::{POOL_VARIABLE, Server, URL_VARIABLE};

/// Settings without durability: this server never loses its power. Tests that crash a server have one of their own,
/// which is durable. It has room for the connections of all tests that run at the same time.
const SHARED: &[(&str, &str)] = &[
    ("fsync", "off"),
    ("full_page_writes", "off"),
    ("max_connections", "600"),
];

fn main() -> std::io::Result<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        return explore();
    };
    let mut command = Command::new(program);
    command.args(arguments);
    // A server that the caller has named is used as it is.
    let named = std::env::var_os(URL_VARIABLE).is_some();
    let server = (!named).then(|| Server::private(SHARED));
    if let Some(server) = &server {
        command.env(URL_VARIABLE, server.url("postgres"));
        command.env(POOL_VARIABLE, server.make_pool());
    }
    let code = command.status()?.code();
    let code = code.and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

fn explore() -> std::io::Result<ExitCode> {
    let server = Server::private(&[]);
    println!("{}", server.fresh_database());
    eprintln!("this server lives until its input closes: end it with ctrl-d");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(ExitCode::SUCCESS)
}
