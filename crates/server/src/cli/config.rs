//! `abide config`: the settings in force, and their sources.

use serde_json::json;

use super::Global;
use super::failure::{Exit, Result};
use super::serve::Set;
use super::table::{Table, fixed, shrinking};
use crate::settings::KEYS;

/// Show the settings in force, and where each came from
///
/// Flags are strongest, then the environment (ABIDE_ and the name in capitals, with _ for dots), then the file
/// (--config, ABIDE_CONFIG, else ~/.config/abide/abide.toml), then the defaults. Secrets are not shown.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  abide config
  ABIDE_RETENTION=30 abide config --json
  abide config --config /etc/abide.toml")]
pub struct Args {
    #[command(flatten)]
    set: Set,
}

/// Prints them.
pub fn run(args: Args, global: &Global) -> Result {
    let settings = global.settings(args.set.values()?)?;
    let out = global.out();
    if out.json {
        let shown = KEYS.iter().map(|key| {
            let entry = json!({
                "value": (key.show)(&settings),
                "source": settings.source(key).to_string(),
                "variable": key.variable(),
                "what": key.what,
            });
            (key.name.to_owned(), entry)
        });
        let shown: serde_json::Map<_, _> = shown.collect();
        out.document(&shown)?;
        return Ok(Exit::Done);
    }
    let mut table = Table::new([
        fixed("key"),
        shrinking("value"),
        shrinking("from"),
        shrinking("what it is").leaves(1),
    ]);
    for key in KEYS {
        let source = settings.source(key).to_string();
        table.row([
            key.name.to_owned(),
            (key.show)(&settings),
            source,
            key.what.to_owned(),
        ]);
    }
    table.print(&out)?;
    Ok(Exit::Done)
}
