//! `abide completions`, `abide man`: shell completions and manual pages.

use std::path::PathBuf;

use clap_complete::Shell;

use super::failure::{Exit, Failure, Result};
use super::out::Out;

/// Print a shell's completions
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide completions bash > /etc/bash_completion.d/abide\n",
    "  abide completions zsh > ~/.zfunc/_abide\n",
    "  abide completions fish > ~/.config/fish/completions/abide.fish"
))]
pub struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Runs it.
    pub fn run(self, mut command: clap::Command, out: &Out) -> Result {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "abide", &mut script);
        out.raw(&String::from_utf8_lossy(&script))?;
        Ok(Exit::Done)
    }
}

/// Write the manual: a page for abide and one for each command
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide man ~/.local/share/man/man1\n",
    "  abide man | man -l -"
))]
pub struct Man {
    /// The directory for the pages; without it, the first page is printed
    dir: Option<PathBuf>,
}

impl Man {
    /// Runs it.
    pub fn run(self, command: clap::Command, out: &Out) -> Result {
        let command = command.disable_help_subcommand(true);
        let Some(dir) = self.dir else {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            out.raw(&String::from_utf8_lossy(&page))?;
            return Ok(Exit::Done);
        };
        let failed = |error: std::io::Error| {
            let text = format!("the pages cannot be written to {}: {error}", dir.display());
            Failure::new(Exit::Refused, "output", text).next("the same with another directory")
        };
        std::fs::create_dir_all(&dir).map_err(failed)?;
        clap_mangen::generate_to(command, &dir).map_err(failed)?;
        out.say(&format!(
            "written to {}; to read one: man -l {}",
            dir.display(),
            dir.join("abide.1").display()
        ));
        Ok(Exit::Done)
    }
}
