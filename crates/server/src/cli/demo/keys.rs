//! Input while the demo runs.

use std::io::{BufRead, IsTerminal};

use tokio::sync::mpsc;

use crate::cli::out::Out;

/// A line that the user typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Typed {
    /// To end.
    Quit,
    /// A worker's number.
    Number(u32),
    /// Something else.
    Other,
}

/// The lines that the user types from now on. Returns `None` if there is no input: in a pipe, or in the background of
/// a shell.
pub fn typed(out: &Out) -> Option<mpsc::Receiver<Typed>> {
    if out.json || !out.terminal || !std::io::stdin().is_terminal() || !in_front() {
        return None;
    }
    let (sender, receiver) = mpsc::channel(16);
    // A thread of its own, because it is still blocked in its read when the demo ends.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { return };
            if sender.blocking_send(read(&line)).is_err() {
                return;
            }
        }
        // Ctrl-d.
        let _ = sender.blocking_send(Typed::Quit);
    });
    Some(receiver)
}

/// Waits for the next line. Never completes if there is no input.
pub async fn next(typed: &mut Option<mpsc::Receiver<Typed>>) -> Typed {
    let next = match typed {
        Some(typed) => typed.recv().await,
        None => None,
    };
    match next {
        Some(typed) => typed,
        None => std::future::pending().await,
    }
}

fn read(line: &str) -> Typed {
    match line.trim() {
        "q" | "quit" | "exit" => Typed::Quit,
        word => word.parse().map_or(Typed::Other, Typed::Number),
    }
}

/// `true` if this process may read from the terminal: the system stops a process in the background that does.
fn in_front() -> bool {
    let front = rustix::termios::tcgetpgrp(std::io::stdin());
    front.is_ok_and(|front| front == rustix::process::getpgrp())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_kills_q_ends_and_the_rest_is_nothing() {
        assert_eq!(read(" 2 \n"), Typed::Number(2));
        assert_eq!(read("q"), Typed::Quit);
        assert_eq!(read(""), Typed::Other);
        assert_eq!(read("-1"), Typed::Other);
    }
}
