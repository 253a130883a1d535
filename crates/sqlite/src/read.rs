//! The threads that read, and the queue of reads.

use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use abide_kernel::{Error, Result};
use rusqlite::Connection;
use tokio::sync::oneshot;

use crate::error::classed;
use crate::open;
use crate::options::Options;

type Job = Box<dyn FnOnce(&Connection) + Send>;

/// A few threads, each with a read-only connection. Every read sees what was committed when it began.
pub(crate) struct Readers {
    jobs: Mutex<Option<Sender<Job>>>,
}

impl Readers {
    /// Opens the connections and starts the threads, which end when the readers are closed or dropped.
    pub fn start(path: &Path, options: &Options) -> Result<(Self, Vec<JoinHandle<()>>)> {
        let (jobs, waiting) = mpsc::channel();
        let waiting = Arc::new(Mutex::new(waiting));
        let mut threads = Vec::new();
        for number in 0..options.readers.max(1) {
            let conn = open::reader(path, options)?;
            let waiting = Arc::clone(&waiting);
            threads.push(spawn(&format!("abide-read-{number}"), move || {
                serve(&conn, &waiting)
            })?);
        }
        let jobs = Mutex::new(Some(jobs));
        Ok((Self { jobs }, threads))
    }

    /// Runs a read on the first free thread.
    pub async fn read<T, F>(&self, query: F) -> Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let (answer, answered) = oneshot::channel();
        let job = Box::new(move |conn: &Connection| {
            if !answer.is_closed() {
                // The caller may have gone away.
                let _ = answer.send(query(conn).map_err(classed));
            }
        });
        self.send(job)?;
        answered.await.unwrap_or(Err(Error::Closed))
    }

    fn send(&self, job: Job) -> Result<()> {
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner);
        let jobs = jobs.as_ref().ok_or(Error::Closed)?;
        jobs.send(job).map_err(|_| Error::Closed)
    }

    /// Stops accepting reads; the threads end when they have run the waiting ones.
    pub fn close(&self) {
        self.jobs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
    }
}

fn serve(conn: &Connection, waiting: &Mutex<Receiver<Job>>) {
    loop {
        // One thread waits for the next read; the others wait for their turn.
        let job = waiting
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .recv();
        match job {
            Ok(job) => job(conn),
            Err(_) => return,
        }
    }
}

/// Starts a named thread.
pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let thread = thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(|error| {
        Error::Unavailable(format!("the thread {name} cannot be started: {error}"))
    })
}
