//! The binary `abide`.

use std::process::ExitCode;

fn main() -> ExitCode {
    abide_server::cli::main()
}
