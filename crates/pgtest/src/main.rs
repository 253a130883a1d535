//! `cargo run -p abide-pgtest`: a PostgreSQL to try things on, until its input closes.

use std::io::Read;

fn main() -> std::io::Result<()> {
    let server = abide_pgtest::Server::private(&[]);
    println!("{}", server.fresh_database());
    eprintln!("this server lives until its input closes: end it with ctrl-d");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
