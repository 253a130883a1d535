//! Keys: which instance holds one, when it is free again, and what a scope means.

use abide_core::model::{Claim, Scope, Start, Started, Status, UniqueKey};

use super::build::{MINUTE, done, key, keyed, later, plain, stop};
use super::lab::Lab;

fn scoped(scope: Scope) -> Start {
    Start {
        scope,
        ..keyed("k")
    }
}

fn unique(bytes: &[u8]) -> Start {
    Start {
        unique_key: Some(UniqueKey::new(bytes).unwrap()),
        ..plain()
    }
}

async fn start(lab: &Lab, start: Start) -> Started {
    lab.starts(vec![start]).await.pop().unwrap().unwrap()
}

pub async fn a_key_that_is_taken_is_refused_with_its_holder(lab: Lab) {
    // rule 2.2
    let holder = lab.start(keyed("order:42")).await;
    assert_eq!(
        start(&lab, keyed("order:42")).await,
        Started::Duplicate(holder)
    );
    assert_eq!(lab.find(key("order:42")).await.unwrap().id, holder);
}

pub async fn a_key_stays_taken_in_every_status_that_is_not_terminal(lab: Lab) {
    // rule 2.2
    let worker = lab.worker("w").await;
    let holder = lab
        .start(Start {
            key: Some(key("k")),
            ..later(MINUTE)
        })
        .await;
    assert_eq!(start(&lab, keyed("k")).await, Started::Duplicate(holder));
    lab.pass(MINUTE);
    lab.fire().await;
    assert_eq!(start(&lab, keyed("k")).await, Started::Duplicate(holder));
    let claimed = lab.claim(worker).await;
    assert_eq!(start(&lab, keyed("k")).await, Started::Duplicate(holder));
    lab.commit(claimed.claim, super::build::wait(&["s"], None))
        .await;
    assert_eq!(start(&lab, keyed("k")).await, Started::Duplicate(holder));
}

pub async fn a_key_is_free_again_when_its_holder_has_ended(lab: Lab) {
    // rule 2.2
    let worker = lab.worker("w").await;
    for outcome in [done(), stop("no")] {
        let holder = lab.start(keyed("k")).await;
        lab.step(worker, outcome).await;
        let heir = lab.start(keyed("k")).await;
        assert!(heir > holder);
        assert_eq!(
            lab.find(key("k")).await.unwrap().id,
            heir,
            "a key finds the newest that has it"
        );
        lab.step(worker, done()).await;
    }
}

pub async fn a_key_can_be_held_as_long_as_the_row_exists(lab: Lab) {
    // rule 2.2
    let worker = lab.worker("w").await;
    let holder = lab.start(scoped(Scope::ALWAYS)).await;
    lab.step(worker, done()).await;
    assert_eq!(start(&lab, keyed("k")).await, Started::Duplicate(holder));
}

pub async fn a_key_can_be_an_address_and_nothing_more(lab: Lab) {
    // rules 2.2 and 2.5
    let first = lab.start(scoped(Scope::NEVER)).await;
    let second = lab.start(scoped(Scope::NEVER)).await;
    assert!(first < second);
    assert_eq!(lab.find(key("k")).await.unwrap().id, second);
    let holder = lab.start(keyed("k")).await;
    lab.start(scoped(Scope::NEVER)).await;
    assert_eq!(lab.find(key("k")).await.unwrap().id, holder);
    assert_eq!(start(&lab, keyed("k")).await, Started::Duplicate(holder));
}

/// One that is tried again, and waits, holds its key again and is found by it.
async fn takes_its_key_back(lab: &Lab, claim: Claim, waiting: Start) {
    let first = claim.id();
    lab.commit(claim, super::build::retry(60_000)).await;
    assert_eq!(start(lab, waiting).await, Started::Duplicate(first));
    assert_eq!(lab.find(key("k")).await.unwrap().id, first);
    let sent = lab.deliver(super::build::signal(key("k"), "s")).await;
    assert_eq!(sent.record.and_then(|record| record.instance), Some(first));
}

pub async fn the_holder_of_a_key_is_found_before_a_newer_one_that_lives(lab: Lab) {
    // rule 2.5. The bug: an older instance took its key back while a newer one, which did not hold it at that moment,
    // was still running. The key stood for the newer one, and the holder could not be reached by its key.
    let worker = lab.worker("w").await;
    let waiting = scoped([Status::Scheduled, Status::Runnable].into_iter().collect());
    lab.start(waiting.clone()).await;
    let claimed = lab.claim(worker).await;
    let second = lab.start(waiting.clone()).await;
    assert_eq!(lab.claim(worker).await.claim.id(), second);
    assert_eq!(lab.find(key("k")).await.unwrap().id, second);

    takes_its_key_back(&lab, claimed.claim, waiting).await;
}

pub async fn one_that_lives_and_holds_its_key_is_found_by_it(lab: Lab) {
    // rule 2.5. The bug: of a scope that names waiting alone, one that is tried again takes its key back from a newer
    // one that has ended; and the key stood for that.
    let worker = lab.worker("w").await;
    let waiting = scoped([Status::Scheduled, Status::Runnable].into_iter().collect());
    lab.start(waiting.clone()).await;
    let claimed = lab.claim(worker).await;
    let second = lab.start(waiting.clone()).await;
    assert_eq!(lab.find(key("k")).await.unwrap().id, second);
    lab.step(worker, done()).await;
    assert_eq!(lab.find(key("k")).await.unwrap().id, second);

    takes_its_key_back(&lab, claimed.claim, waiting).await;
}

pub async fn a_scope_is_the_statuses_it_names(lab: Lab) {
    // rule 2.2
    let worker = lab.worker("w").await;
    let once = Scope::LIVE.and(Status::Done);
    lab.start(scoped(once)).await;
    lab.step(worker, stop("no")).await;
    let second = lab.start(scoped(once)).await;
    lab.step(worker, done()).await;
    assert_eq!(start(&lab, scoped(once)).await, Started::Duplicate(second));
}

pub async fn a_unique_key_excludes_and_does_not_address(lab: Lab) {
    // rule 2.2
    let worker = lab.worker("w").await;
    let holder = lab.start(unique(b"abc")).await;
    assert_eq!(
        start(&lab, unique(b"abc")).await,
        Started::Duplicate(holder)
    );
    assert!(lab.find(key("abc")).await.is_none());
    lab.start(keyed("abc")).await;
    lab.claim(worker).await;
    lab.start(unique(b"abcd")).await;
}

pub async fn what_a_start_is_a_duplicate_of_was_there_before_it(lab: Lab) {
    // rule 2.2: a start that was dropped for its unique key was answered that the one behind it in the batch, which had
    // got its key, was in its way.
    let holder = lab.start(unique(b"u")).await;
    let both = Start {
        key: Some(key("k")),
        ..unique(b"u")
    };
    let each = lab.starts(vec![both, keyed("k")]).await;
    assert_eq!(each[0], Ok(Started::Duplicate(holder)));
    assert!(matches!(each[1], Ok(Started::New(_))), "{each:?}");
}

pub async fn a_unique_key_is_any_bytes(lab: Lab) {
    // rule 2.2
    let keys: [&[u8]; 6] = [
        &[0],
        &[0, 0],
        &[255, 254],
        b"'; drop table",
        "é".as_bytes(),
        &[7; 255],
    ];
    for bytes in keys {
        let holder = lab.start(unique(bytes)).await;
        assert_eq!(start(&lab, unique(bytes)).await, Started::Duplicate(holder));
        assert_eq!(lab.get(holder).await.unique_key.unwrap().as_bytes(), bytes);
    }
}

pub async fn a_unique_key_has_a_scope_of_its_own(lab: Lab) {
    // rule 2.2
    let worker = lab.worker("w").await;
    let both = |scope| Start {
        key: Some(key("k")),
        unique_scope: scope,
        ..unique(b"u")
    };
    let first = lab.start(both(Scope::ALWAYS)).await;
    lab.step(worker, done()).await;
    assert_eq!(
        start(&lab, both(Scope::ALWAYS)).await,
        Started::Duplicate(first)
    );
    assert!(
        matches!(start(&lab, keyed("k")).await, Started::New(_)),
        "nothing of a duplicate was written"
    );
}

pub async fn a_key_may_be_long_and_in_any_script(lab: Lab) {
    // rule 2.2
    let keys = [
        "x".repeat(255),
        "é".repeat(127),
        "🦀🦀".to_owned(),
        "ключ/заказ № 42".to_owned(),
        "' or 1=1; --".to_owned(),
        "%_*?[]\\".to_owned(),
        "Order:42".to_owned(),
        "order:42".to_owned(),
        "order:42 ".to_owned(),
        "\u{e9}".to_owned(),
        "e\u{301}".to_owned(),
    ];
    for text in &keys {
        let id = lab.start(keyed(text)).await;
        assert_eq!(lab.find(key(text)).await.unwrap().id, id, "{text}");
        assert_eq!(
            start(&lab, keyed(text)).await,
            Started::Duplicate(id),
            "{text}"
        );
    }
}
