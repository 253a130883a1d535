//! Another process of this program, with which this one exchanges lines.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Result;

/// Another process; killed when dropped.
pub struct Other {
    #[expect(dead_code, reason = "held: killed when dropped")]
    child: Child,
    input: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Other {
    /// Starts one, and waits until it says that it is ready.
    pub async fn start(as_what: &str, url: &str) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args([as_what, url])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let input = child.stdin.take().ok_or("the process has no input")?;
        let out = child.stdout.take().ok_or("the process has no output")?;
        let lines = BufReader::new(out).lines();
        let mut other = Self {
            child,
            input,
            lines,
        };
        other.line().await?;
        Ok(other)
    }

    /// The next line that it says.
    pub async fn line(&mut self) -> Result<String> {
        Ok(self.lines.next_line().await?.ok_or("the process ended")?)
    }

    /// Has it begin.
    pub async fn go(&mut self) -> Result<()> {
        Ok(self.input.write_all(b"go\n").await?)
    }
}

/// Waits until the other side has this process begin. Blocks its thread: there is nothing else to do.
pub fn wait_to_go() -> Result<()> {
    std::io::stdin().read_line(&mut String::new())?;
    Ok(())
}
