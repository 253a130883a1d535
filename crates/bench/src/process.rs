//! Another process of this program, which tells things, line by line.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::Result;

/// Another process; killed when dropped.
pub struct Other {
    #[expect(dead_code, reason = "held: killed when dropped")]
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    /// Starts one, and waits until it says that it is ready.
    pub async fn start(as_what: &str, url: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([as_what, url])
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let out = child.stdout.take().ok_or("the process has no output")?;
        let lines = BufReader::new(out).lines();
        let mut other = Self { child, lines };
        other.line().await?;
        Ok(other)
    }

    /// The next line that it says.
    pub async fn line(&mut self) -> Result<String> {
        Ok(self.lines.next_line().await?.ok_or("the process ended")?)
    }
}
