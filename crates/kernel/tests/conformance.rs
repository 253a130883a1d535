//! The memory store passes the suite that every store must pass, with all that is said to it and that it answers in the
//! format of a server; and the suite's list names all of its tests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use abide_kernel::conformance::{Setup, Subject};
use abide_kernel::memory::Memory;
use abide_kernel::wire::{Reply, Request, answer, parse};
use abide_kernel::{Answer, Clock, Error, Listener, Op, Query, QueryResult, Result, Store};
use futures_util::future::BoxFuture;

async fn make(setup: Setup) -> Subject {
    Subject::new(Written {
        store: Memory::new(setup.clock, setup.limits),
        closed: AtomicBool::new(false),
    })
}

/// A store to which every request, and from which every reply, goes through JSON, as between a client and a server.
struct Written {
    store: Memory,
    closed: AtomicBool,
}

impl Written {
    async fn call(&self, request: Request) -> Result<Reply> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        let request = parse(&serde_json::to_vec(&request).unwrap()).unwrap();
        let reply = serde_json::to_vec(&answer(&self.store, request).await).unwrap();
        match serde_json::from_slice(&reply).unwrap() {
            Reply::Failed(failure) => Err(failure.into()),
            reply => Ok(reply),
        }
    }
}

impl Store for Written {
    fn run(&self, ops: Arc<[Op]>) -> BoxFuture<'_, Result<Vec<Answer>>> {
        Box::pin(async move {
            match self.call(Request::Run(ops)).await? {
                Reply::Answers(answers) => Ok(answers),
                other => panic!("{other:?}"),
            }
        })
    }

    fn read(&self, query: Query) -> BoxFuture<'_, Result<QueryResult>> {
        Box::pin(async move {
            match self.call(Request::Read(query)).await? {
                Reply::Found(found) => Ok(found),
                other => panic!("{other:?}"),
            }
        })
    }

    fn clock(&self) -> Arc<dyn Clock> {
        self.store.clock()
    }

    fn listen(&self) -> Listener {
        self.store.listen()
    }

    fn writers(&self) -> usize {
        self.store.writers()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        self.closed.store(true, Ordering::SeqCst);
        self.store.close()
    }
}

abide_kernel::conformance_tests!(make);

macro_rules! names {
    (() $($group:ident { $($test:ident,)* })*) => {
        const LISTED: &[&str] = &[$($(concat!(stringify!($group), "::", stringify!($test)),)*)*];
    };
}

abide_kernel::for_each_conformance_test!(names,);

#[test]
fn the_list_names_every_test_of_the_suite() {
    let listed: BTreeSet<String> = LISTED.iter().map(|test| (*test).to_owned()).collect();
    let mut written = BTreeSet::new();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/conformance");
    for file in std::fs::read_dir(folder).unwrap() {
        let file = file.unwrap().path();
        let group = file.file_stem().unwrap().to_str().unwrap();
        for line in std::fs::read_to_string(&file).unwrap().lines() {
            let rest = line.strip_prefix("pub async fn ");
            let test = rest.and_then(|rest| rest.strip_suffix("(lab: Lab) {"));
            written.extend(test.map(|test| format!("{group}::{test}")));
        }
    }
    let missing: Vec<_> = written.symmetric_difference(&listed).collect();
    assert!(
        missing.is_empty(),
        "written or listed, but not both: {missing:#?}"
    );
}
