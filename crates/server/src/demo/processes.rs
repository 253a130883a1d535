//! The worker processes: started, watched, restarted when they die, and ended with the demo.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::WORKER;
use super::worker::Report;

/// Delay before a dead worker is restarted. It is a little longer than the lease, so that the user sees other workers
/// take over its steps.
pub const AGAIN: Duration = Duration::from_secs(5);
/// How long a worker may take to end before it is killed.
const END: Duration = Duration::from_secs(4);

/// The number of the signal that cannot be handled.
const SIGKILL: i32 = 9;

/// A change of a worker process.
#[derive(Debug)]
pub enum WorkerChange {
    /// It was started, with this process id.
    Started(u32),
    /// It runs steps, and has committed this many.
    Committed(u64),
    /// It has ended, and will be restarted.
    Ended {
        /// `true` if it was killed.
        killed: bool,
        /// A description of how it ended.
        how: String,
    },
}

/// The worker processes. Dropping this value kills them.
#[derive(Default)]
pub struct Crew {
    members: Vec<Member>,
}

struct Member {
    orders: mpsc::Sender<Order>,
    task: JoinHandle<()>,
}

enum Order {
    Kill,
    End,
}

impl Crew {
    /// Starts `count` workers. Also returns the receiver of their changes, each with the number of the worker, from 1.
    pub fn start(
        exe: PathBuf,
        store: &str,
        count: u32,
    ) -> (Self, mpsc::Receiver<(u32, WorkerChange)>) {
        let (changes, receiver) = mpsc::channel(64);
        let members = (1..=count).map(|number| {
            let (orders, inbox) = mpsc::channel(4);
            let keeper = Keeper {
                number,
                exe: exe.clone(),
                store: store.to_owned(),
                changes: changes.clone(),
                inbox,
            };
            Member {
                orders,
                task: tokio::spawn(keeper.keep()),
            }
        });
        let members = members.collect();
        (Self { members }, receiver)
    }

    /// Kills a worker with SIGKILL. Returns `false` if there is none with this number.
    pub fn kill(&self, number: u32) -> bool {
        let index = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        let member = index.and_then(|index| self.members.get(index));
        // If the order cannot be sent, the worker is already being killed.
        member.is_some_and(|member| member.orders.try_send(Order::Kill).is_ok())
    }

    /// Ends all workers in order: running steps are finished, or given back.
    pub async fn end(mut self) {
        for member in &self.members {
            let _ = member.orders.send(Order::End).await;
        }
        for member in &mut self.members {
            // A panic of the task was already reported.
            let _ = (&mut member.task).await;
        }
    }
}

impl Drop for Crew {
    fn drop(&mut self) {
        // Their processes are killed with them.
        for member in &self.members {
            member.task.abort();
        }
    }
}

/// Keeps one worker process running.
struct Keeper {
    number: u32,
    exe: PathBuf,
    store: String,
    changes: mpsc::Sender<(u32, WorkerChange)>,
    inbox: mpsc::Receiver<Order>,
}

impl Keeper {
    async fn keep(mut self) {
        loop {
            let ended = match self.spawn() {
                Ok(child) => match self.watch(child).await {
                    Some(ended) => ended,
                    None => return,
                },
                Err(error) => WorkerChange::Ended {
                    killed: false,
                    how: format!("could not be started: {error}"),
                },
            };
            self.report(ended).await;
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = end_ordered(&mut self.inbox) => return,
            }
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        Command::new(&self.exe)
            .args([WORKER, &self.store, &self.number.to_string()])
            // The demo's server requires no token.
            .env_remove(abide::remote::TOKEN)
            .env_remove(abide::remote::TOKEN_FILE)
            // The end of this input tells the worker that its parent is gone.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-c goes to the parent only, which ends the workers in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    /// Waits until the worker ends, and returns how it ended. Returns `None` if it was asked to end.
    async fn watch(&mut self, mut child: Child) -> Option<WorkerChange> {
        self.report(WorkerChange::Started(child.id().unwrap_or_default()))
            .await;
        let trouble = child.stderr.take().map(|err| tokio::spawn(last_line(err)));
        // Held here, because `wait` would close the input of the process, and that would end it.
        let mut input = child.stdin.take();
        let mut reports = child.stdout.take().map(|out| BufReader::new(out).lines());
        loop {
            tokio::select! {
                ended = child.wait() => {
                    let trouble = match trouble {
                        Some(trouble) => trouble.await.unwrap_or_default(),
                        None => String::new(),
                    };
                    return Some(ending(ended, &trouble));
                }
                report = next(&mut reports) => {
                    if let Some(committed) = report {
                        self.report(WorkerChange::Committed(committed)).await;
                    }
                }
                order = self.inbox.recv() => match order {
                    // The process may already have ended.
                    Some(Order::Kill) => drop(child.start_kill()),
                    Some(Order::End) | None => {
                        drop(input.take());
                        // Its output is read; otherwise a full pipe would block it.
                        let rest = async { while next(&mut reports).await.is_some() {} child.wait().await };
                        if tokio::time::timeout(END, rest).await.is_err() {
                            // The process may already have ended.
                            let _ = child.kill().await;
                        }
                        return None;
                    }
                },
            }
        }
    }

    async fn report(&self, change: WorkerChange) {
        // At the end of the demo the receiver is gone.
        let _ = self.changes.send((self.number, change)).await;
    }
}

async fn end_ordered(inbox: &mut mpsc::Receiver<Order>) {
    while let Some(Order::Kill) = inbox.recv().await {}
}

/// Reads the next report of a worker. Never completes after the worker has closed its output.
async fn next<R: AsyncRead + Unpin>(
    reports: &mut Option<tokio::io::Lines<BufReader<R>>>,
) -> Option<u64> {
    let Some(lines) = reports else {
        return std::future::pending().await;
    };
    match lines.next_line().await {
        Ok(Some(line)) => serde_json::from_str::<Report>(&line)
            .ok()
            .map(|report| report.committed),
        _ => {
            *reports = None;
            None
        }
    }
}

/// The last line that a worker wrote to its standard error.
async fn last_line(err: ChildStderr) -> String {
    let mut last = String::new();
    let mut lines = BufReader::new(err).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let text = line.trim();
        // Hints about the next command are for users of the command line.
        if !text.is_empty() && !text.starts_with("try: ") {
            text.clone_into(&mut last);
        }
    }
    last
}

fn ending(ended: std::io::Result<ExitStatus>, trouble: &str) -> WorkerChange {
    let ended = ended
        .as_ref()
        .map(|status| (status.signal(), status.code()));
    let killed = matches!(ended, Ok((Some(SIGKILL), _)));
    let how = match ended {
        Ok((Some(SIGKILL), _)) => "was killed".to_owned(),
        Ok((Some(signal), _)) => format!("was ended by signal {signal}"),
        Ok((_, Some(0))) => "was asked to end".to_owned(),
        Ok((_, code)) => format!("ended with exit code {}", code.unwrap_or(-1)),
        Err(error) => format!("was lost sight of: {error}"),
    };
    let how = match trouble {
        "" => how,
        trouble => format!("{how} ({trouble})"),
    };
    WorkerChange::Ended { killed, how }
}
