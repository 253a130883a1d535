//! Keys that another transaction takes between the read of their holder and the write: the unique index is the referee,
//! the loser meets a conflict once, and finds the holder when it tries again.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    claim, clocked, commit, commits, connect, database, deaf, done, json, key, keyed, name, one,
    register, signal, start, start_all, until_blocked, wait,
};
use abide_kernel::model::{
    AnyKey, Cancel, Children, Commit, Committed, InstanceId, Outcome, Refusal, Scope, Start,
    Started, Status, Verdict, When,
};
use abide_kernel::{Answer, Error, Op, Store};
use abide_postgres::Postgres;

/// Operations that bring an instance into the scope of its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Ends,
    ContinuesAsNew,
    IsCancelled,
    IsSignalled,
    Fires,
    IsGivenBack,
}

const WAYS: [Way; 6] = [
    Way::Ends,
    Way::ContinuesAsNew,
    Way::IsCancelled,
    Way::IsSignalled,
    Way::Fires,
    Way::IsGivenBack,
];

/// An instance that takes its key with the next operation, and one beside it that has nothing to do with that.
struct Scene {
    url: String,
    store: Arc<Postgres>,
    takes: InstanceId,
    beside: InstanceId,
    ops: Arc<[Op]>,
}

fn under(status: Status) -> Start {
    Start {
        scope: Scope::NEVER.and(status),
        ..keyed("m", "k")
    }
}

impl Scene {
    async fn set(way: Way) -> Self {
        let url = database();
        let (store, clock) = clocked(&url, deaf()).await;
        let worker = register(&store, "w").await;
        let status = match way {
            Way::Ends => Status::Done,
            Way::IsCancelled => Status::Cancelled,
            _ => Status::Runnable,
        };
        let delay = match way {
            Way::Fires => When::After(Duration::from_secs(60)),
            _ => When::Now,
        };
        let starts = [under(status), start("m")].map(|start| Start {
            when: delay,
            ..start
        });
        let started = start_all(&store, starts.into()).await;
        let (takes, beside) = (started[0].id(), started[1].id());
        let mut claimed = match way {
            Way::Fires | Way::IsCancelled => Vec::new(),
            _ => claim(&store, worker, &["m"], 2).await,
        };
        let op = match way {
            Way::Ends => commits(claimed.drain(..).map(done).collect()),
            Way::ContinuesAsNew => {
                let again = |claimed| {
                    let outcome = Outcome::ContinueAsNew {
                        step: name("b"),
                        state: json("1"),
                        version: None,
                    };
                    commit(claimed, outcome, false)
                };
                commits(claimed.drain(..).map(again).collect())
            }
            Way::IsCancelled => Op::Cancel([takes, beside].map(cancel).into()),
            Way::IsSignalled => {
                let waits: Vec<Commit> = claimed
                    .drain(..)
                    .map(|one| wait(one, &["s"], "b"))
                    .collect();
                one(&store, commits(waits)).await;
                Op::Deliver([takes, beside].map(|id| signal(id, "s", "1")).into())
            }
            Way::Fires => {
                clock.advance(Duration::from_secs(60));
                Op::Fire { limit: 9 }
            }
            Way::IsGivenBack => Op::GiveBack(claimed.drain(..).map(|one| one.claim).collect()),
        };
        Self {
            url,
            store,
            takes,
            beside,
            ops: [op].into(),
        }
    }

    async fn status(&self, id: InstanceId) -> Status {
        self.store.get(&id.into()).await.unwrap().unwrap().status
    }

    /// Runs the operation while another transaction holds the key and is not committed yet; then that ends so.
    async fn meets(&self, commits: bool) -> (InstanceId, Result<Vec<Answer>, Error>) {
        let mut host = connect(&self.url).await;
        let eye = connect(&self.url).await;
        let transaction = host.transaction().await.unwrap();
        let started = Op::Start(vec![keyed("m", "k")]);
        let answers = self
            .store
            .run_within(&transaction, &[started])
            .await
            .unwrap();
        let [Answer::Started(each)] = answers.as_slice() else {
            panic!("{answers:?}")
        };
        let Ok(Started::New(holder)) = each[0] else {
            panic!("{each:?}")
        };
        let (store, ops) = (self.store.clone(), self.ops.clone());
        let running = tokio::spawn(async move { store.run(ops).await });
        until_blocked(&eye, 1).await;
        match commits {
            true => transaction.commit().await.unwrap(),
            false => transaction.rollback().await.unwrap(),
        }
        (holder, running.await.unwrap())
    }
}

fn cancel(id: InstanceId) -> Cancel {
    Cancel {
        target: id.into(),
        reason: "no".to_owned(),
        children: Children::Leave,
        force: false,
        source: None,
        claimed_source: None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_loses_a_key_meanwhile_finds_its_holder_at_the_second_try() {
    // rule 2.8
    for way in WAYS {
        let scene = Scene::set(way).await;
        let (holder, first) = scene.meets(true).await;
        assert!(
            matches!(first, Err(Error::Conflict(_))),
            "{way:?}: {first:?}"
        );
        let mut answers = scene.store.run(scene.ops.clone()).await.unwrap();
        let answer = answers.remove(0);
        let found = scene.store.get(&scene.takes.into()).await.unwrap().unwrap();
        let error = format!("key \"k\" is taken by instance {holder}");
        let beside = scene.status(scene.beside).await;
        match way {
            Way::Ends | Way::ContinuesAsNew => {
                let Answer::Committed(each) = &answer else {
                    panic!("{answer:?}")
                };
                let refused = Committed::Refused(Refusal::KeyTaken {
                    holder,
                    key: Some(AnyKey::Key(key("k"))),
                });
                assert_eq!((&each[0], found.status), (&refused, Status::Executing));
                assert_eq!(each[1], Committed::Moved(beside), "{way:?}");
                assert!(beside.is_terminal());
            }
            Way::IsCancelled => {
                assert_eq!(
                    (found.status, found.scope),
                    (Status::Cancelled, Scope::NEVER)
                );
                assert_eq!(beside, Status::Cancelled);
            }
            Way::IsSignalled => {
                let Answer::Delivered(each) = &answer else {
                    panic!("{answer:?}")
                };
                assert_eq!(each[0].as_ref().unwrap().verdict, Verdict::Received);
                assert_eq!(
                    (found.status, found.row.last_error),
                    (Status::Failed, Some(error))
                );
                assert_eq!(beside, Status::Runnable);
            }
            Way::Fires => {
                assert_eq!(
                    (found.status, found.row.last_error),
                    (Status::Failed, Some(error))
                );
                assert_eq!(beside, Status::Runnable);
            }
            Way::IsGivenBack => {
                assert_eq!(
                    (found.status, found.scope),
                    (Status::Runnable, Scope::NEVER)
                );
                assert_eq!(beside, Status::Runnable);
            }
        }
        assert_eq!(scene.status(holder).await, Status::Runnable);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_one_that_gives_way_has_the_key() {
    // rule 2.8
    for way in WAYS {
        let scene = Scene::set(way).await;
        let (_, first) = scene.meets(false).await;
        first.unwrap_or_else(|error| panic!("{way:?}: {error}"));
        let again = start_all(&scene.store, vec![keyed("m", "k")]).await;
        let holder = match way {
            Way::ContinuesAsNew => {
                let newest = scene.store.get(&key("k").into()).await.unwrap();
                newest.unwrap().id
            }
            _ => scene.takes,
        };
        assert_eq!(again, [Started::Duplicate(holder)], "{way:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_waits_for_who_takes_its_key_and_is_a_duplicate_of_that() {
    // rules 2.2 and 2.8
    for way in WAYS.into_iter().filter(|way| *way != Way::ContinuesAsNew) {
        let scene = Scene::set(way).await;
        let mut host = connect(&scene.url).await;
        let eye = connect(&scene.url).await;
        let transaction = host.transaction().await.unwrap();
        let taken = scene.store.run_within(&transaction, &scene.ops).await;
        taken.unwrap();
        let store = scene.store.clone();
        let starting = tokio::spawn(async move { start_all(&store, vec![keyed("m", "k")]).await });
        until_blocked(&eye, 1).await;
        transaction.commit().await.unwrap();
        let started = starting.await.unwrap();
        assert_eq!(started, [Started::Duplicate(scene.takes)], "{way:?}");
    }
}
