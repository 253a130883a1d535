//! Many starts in one call, and many calls at once.

use abide::client::{StartError, new_start};
use abide::model::{Limits, Refusal, Started};
use abide::store::Filter;
use abide::{Abide, Job};

use crate::common::Lab;

const MAIL: Job<String, String> = Job::new("mail");

fn mail(text: &str) -> abide::client::StartBuilder<Job<String, String>> {
    new_start(MAIL, text.to_owned())
}

on_every_store! {
    async fn a_batch_is_answered_entry_by_entry(lab: Lab) {
        // rules 2.3, 16.3
        let limits = Limits { state_bytes: 100, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let there = lab.start(MAIL, "there".into()).key("there").await.unwrap();
        let batch = [
            mail("new").key("new"),
            mail("duplicate of what is there").key("there"),
            mail("without a key"),
            mail("duplicate of the first").key("new"),
            mail(&"x".repeat(200)).key("too large"),
            mail("by its unique key").unique_key("u"),
            mail("duplicate of that").unique_key("u").key("free"),
            mail("last").key("last"),
        ];
        let answers = lab.start_all(batch).await.unwrap();
        let id = |at: usize| match &answers[at] {
            Ok(Started::New(id)) => *id,
            other => panic!("entry {at} should be new, but is {other:?}"),
        };
        assert_eq!(answers[1], Ok(Started::Duplicate(there.id())));
        assert_eq!(answers[3], Ok(Started::Duplicate(id(0))));
        assert_eq!(answers[6], Ok(Started::Duplicate(id(5))));
        let refused = answers[4].as_ref().unwrap_err();
        assert_eq!(*refused, Refusal::LimitExceeded { limit: "state_bytes".into(), most: 100, met: 202 });
        let mut new = [id(0), id(2), id(5), id(7)];
        new.sort_unstable();
        let all = lab.list(&Filter::default(), None, 100).await.unwrap().items;
        let mut found: Vec<_> = all.iter().map(|row| row.id).filter(|id| *id != there.id()).collect();
        found.sort_unstable();
        assert_eq!(found, new, "what was left out was not written");
    }
}

on_every_store! {
    async fn a_batch_of_many_thousands_is_one_call(lab: Lab) {
        // rule 2.3
        const COUNT: usize = 20_000;
        let batch = (0..COUNT).map(|n| mail("hello").key(format!("mail:{}", n % (COUNT - 10))));
        let answers = lab.start_all(batch).await.unwrap();
        assert_eq!(answers.len(), COUNT);
        let new = answers.iter().filter(|answer| matches!(answer, Ok(Started::New(_)))).count();
        assert_eq!(new, COUNT - 10);
        assert_eq!(answers[COUNT - 1].as_ref().unwrap().id(), answers[9].as_ref().unwrap().id());
        let depths = lab.depths().await.unwrap();
        assert_eq!((depths.len(), depths[0].count as usize), (1, new));
    }
}

on_every_store! {
    async fn a_batch_over_the_limit_is_refused_as_a_whole(lab: Lab) {
        // rule 16.3
        let limits = Limits { batch_entries: 10, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let error = lab.start_all((0..11).map(|_| mail("x"))).await.unwrap_err().to_string();
        assert!(error.contains("11 is over the limit batch_entries of 10"), "{error}");
        assert_eq!(lab.list(&Filter::default(), None, 10).await.unwrap().items, []);
        assert_eq!(lab.start_all((0..10).map(|_| mail("x"))).await.unwrap().len(), 10);
        assert_eq!(lab.start_all(std::iter::empty::<abide::client::StartBuilder<Job<String, String>>>()).await.unwrap(), []);
    }
}

on_every_store! {
    async fn calls_that_come_together_are_answered_each_for_itself(lab: Lab) {
        // rule 2.3: single starts are folded into one transaction, and no caller notices.
        let limits = Limits { state_bytes: 1_000, batch_entries: 500, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let calls = (0..300).map(|n: usize| {
            let lab = lab.clone();
            tokio::spawn(async move {
                let text = if n % 10 == 3 { "x".repeat(2_000) } else { n.to_string() };
                let start = lab.start(MAIL, text).key(format!("mail:{}", n % 200));
                (n, start.await)
            })
        });
        let calls: Vec<_> = calls.collect();
        let (mut new, mut duplicates, mut refused) = (0, 0, 0);
        for call in calls {
            match call.await.unwrap() {
                (n, Ok(handle)) => {
                    new += 1;
                    let row = handle.get().await.unwrap().unwrap();
                    assert_eq!(row.key.as_ref().unwrap().as_str(), format!("mail:{}", n % 200), "its own answer");
                    assert_eq!(row.state.as_str(), format!("\"{n}\""));
                }
                (_, Err(StartError::Duplicate { .. })) => duplicates += 1,
                (n, Err(error)) => {
                    assert!(n % 10 == 3 && error.to_string().contains("state_bytes"), "{error}");
                    refused += 1;
                }
            }
        }
        assert_eq!((new, duplicates, refused), (180, 90, 30));
    }
}

on_every_store! {
    async fn an_over_long_batch_among_others_hurts_none_of_them(lab: Lab) {
        // rule 16.3
        let limits = Limits { batch_entries: 50, ..Limits::default() };
        let lab = lab.opened(Abide::options().limits(limits)).await;
        let batch = |count: usize| {
            let lab = lab.clone();
            tokio::spawn(async move { lab.start_all((0..count).map(|_| mail("x"))).await })
        };
        // Folded together these are over the limit, though each but one of them is not.
        let calls: Vec<_> = [30, 40, 60, 50, 1].into_iter().map(|count| (count, batch(count))).collect();
        for (count, call) in calls {
            match call.await.unwrap() {
                Ok(answers) => assert_eq!(answers.len(), count),
                Err(error) => assert!(count == 60, "{count} entries: {error}"),
            }
        }
        assert_eq!(lab.depths().await.unwrap()[0].count, 121);
    }
}
