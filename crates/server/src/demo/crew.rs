//! The worker processes: started, watched, started again when they die, and ended with the demo.

use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, ChildStderr, Command};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::WORKER;
use super::worker::Word;

/// How long after its death a worker is started again: a little longer than its lease, so that one sees others go on with
/// what it held.
pub const AGAIN: Duration = Duration::from_secs(5);
/// How long a worker that was told to end may take before it is killed.
const END: Duration = Duration::from_secs(4);

/// The number of the signal that nobody can answer.
const SIGKILL: i32 = 9;

/// What a worker process did.
#[derive(Debug)]
pub enum News {
    /// It was started, as that process.
    Started(u32),
    /// It runs steps, and has committed so many.
    Committed(u64),
    /// It has ended, and is started again.
    Ended {
        /// Whether somebody killed it.
        killed: bool,
        /// How it ended, in words.
        how: String,
    },
}

/// The worker processes. Dropping it kills them.
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
    /// Starts so many, and the receiver of what they do, with their numbers, from 1.
    pub fn start(exe: PathBuf, store: &str, count: u32) -> (Self, mpsc::Receiver<(u32, News)>) {
        let (tell, told) = mpsc::channel(64);
        let members = (1..=count).map(|number| {
            let (orders, inbox) = mpsc::channel(4);
            let keeper = Keeper {
                number,
                exe: exe.clone(),
                store: store.to_owned(),
                tell: tell.clone(),
                inbox,
            };
            Member {
                orders,
                task: tokio::spawn(keeper.keep()),
            }
        });
        let members = members.collect();
        (Self { members }, told)
    }

    /// Kills one, with SIGKILL; whether there is one of that number.
    pub fn kill(&self, number: u32) -> bool {
        let place = usize::try_from(number).ok().and_then(|n| n.checked_sub(1));
        let member = place.and_then(|place| self.members.get(place));
        // One that is being killed already needs no second order.
        member.is_some_and(|member| member.orders.try_send(Order::Kill).is_ok())
    }

    /// Ends them all in order: what runs is finished, or given back.
    pub async fn end(mut self) {
        for member in &self.members {
            let _ = member.orders.send(Order::End).await;
        }
        for member in &mut self.members {
            // A task that panicked has said so already.
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
    tell: mpsc::Sender<(u32, News)>,
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
                Err(error) => News::Ended {
                    killed: false,
                    how: format!("could not be started: {error}"),
                },
            };
            self.tell(ended).await;
            tokio::select! {
                () = tokio::time::sleep(AGAIN) => {}
                () = told_to_end(&mut self.inbox) => return,
            }
        }
    }

    fn spawn(&self) -> std::io::Result<Child> {
        Command::new(&self.exe)
            .args([WORKER, &self.store, &self.number.to_string()])
            // What the end of means that the parent is gone.
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-c is for the parent, which ends them in order.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
    }

    /// Until it ends: how; `None` when it was told to.
    async fn watch(&mut self, mut child: Child) -> Option<News> {
        self.tell(News::Started(child.id().unwrap_or_default()))
            .await;
        let trouble = child.stderr.take().map(|err| tokio::spawn(last_line(err)));
        // Held here: waiting for a process closes its input, and that would end it.
        let mut input = child.stdin.take();
        let mut words = child.stdout.take().map(|out| BufReader::new(out).lines());
        loop {
            tokio::select! {
                ended = child.wait() => {
                    let trouble = match trouble {
                        Some(trouble) => trouble.await.unwrap_or_default(),
                        None => String::new(),
                    };
                    return Some(ending(ended, &trouble));
                }
                word = next(&mut words) => {
                    if let Some(committed) = word {
                        self.tell(News::Committed(committed)).await;
                    }
                }
                order = self.inbox.recv() => match order {
                    // It may have ended meanwhile.
                    Some(Order::Kill) => drop(child.start_kill()),
                    Some(Order::End) | None => {
                        drop(input.take());
                        // What it says is read, or a full pipe would stop it.
                        let rest = async { while next(&mut words).await.is_some() {} child.wait().await };
                        if tokio::time::timeout(END, rest).await.is_err() {
                            // It may have ended meanwhile.
                            let _ = child.kill().await;
                        }
                        return None;
                    }
                },
            }
        }
    }

    async fn tell(&self, news: News) {
        // Nobody listens when all ends.
        let _ = self.tell.send((self.number, news)).await;
    }
}

async fn told_to_end(inbox: &mut mpsc::Receiver<Order>) {
    while let Some(Order::Kill) = inbox.recv().await {}
}

/// The next thing that a worker says; for ever nothing when it has closed its output.
async fn next<R: AsyncRead + Unpin>(
    words: &mut Option<tokio::io::Lines<BufReader<R>>>,
) -> Option<u64> {
    let Some(lines) = words else {
        return std::future::pending().await;
    };
    match lines.next_line().await {
        Ok(Some(line)) => serde_json::from_str::<Word>(&line)
            .ok()
            .map(|word| word.committed),
        _ => {
            *words = None;
            None
        }
    }
}

/// The last thing that a worker says of its troubles.
async fn last_line(err: ChildStderr) -> String {
    let mut last = String::new();
    let mut lines = BufReader::new(err).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let said = line.trim();
        // What to try next is for who has called the command.
        if !said.is_empty() && !said.starts_with("try: ") {
            said.clone_into(&mut last);
        }
    }
    last
}

fn ending(ended: std::io::Result<ExitStatus>, trouble: &str) -> News {
    let ended = ended
        .as_ref()
        .map(|status| (status.signal(), status.code()));
    let killed = matches!(ended, Ok((Some(SIGKILL), _)));
    let how = match ended {
        Ok((Some(SIGKILL), _)) => "was killed".to_owned(),
        Ok((Some(signal), _)) => format!("was ended by signal {signal}"),
        Ok((_, Some(0))) => "was told to end".to_owned(),
        Ok((_, code)) => format!("ended with exit code {}", code.unwrap_or(-1)),
        Err(error) => format!("was lost sight of: {error}"),
    };
    let how = match trouble {
        "" => how,
        trouble => format!("{how} ({trouble})"),
    };
    News::Ended { killed, how }
}
