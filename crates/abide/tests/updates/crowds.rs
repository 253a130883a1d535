//! Many updates at once.

use abide::Status;
use abide::client::new_signal;

use crate::common::Lab;
use crate::updates::{ADD, Books, SHUT, Till, engine, standing};

on_every_store! {
    async fn fifty_tasks_update_at_once_and_each_is_applied_once_and_in_order(lab: Lab) {
        // rules 9.1 and 9.4
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        let outside = lab.again().await;
        let tasks = (0..50_i64).map(|n| {
            let abide = if n % 2 == 0 { (*lab).clone() } else { outside.clone() };
            tokio::spawn(async move {
                let mut answers = Vec::new();
                for round in 0..4 {
                    let amount = 1 + n + 50 * round;
                    let update = abide.update("waits", ADD, &amount).request_id(format!("{n}-{round}"));
                    let update = update.accepted().await.unwrap();
                    let sequence = update.receipt().unwrap().sequence().unwrap().0;
                    answers.push((sequence, amount, update.answer().await.unwrap()));
                }
                answers
            })
        });
        let mut answers = Vec::new();
        for task in tasks.collect::<Vec<_>>() {
            answers.extend(task.await.unwrap());
        }
        answers.sort_unstable();
        assert!(answers.iter().map(|(sequence, ..)| *sequence).eq(1..=200));
        let mut total = 0;
        for (sequence, amount, answer) in &answers {
            total += amount;
            assert_eq!(*answer, total, "message {sequence} was handled in order");
        }
        let row = lab.until_status(order.id(), Status::AwaitingSignal).await;
        let kept: Books = row.state.to().unwrap();
        assert!(kept.entries.iter().eq(answers.iter().map(|(_, amount, _)| amount)));
        assert_eq!((row.inbox.updates, row.inbox.cursor.0), (0, 200));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn signals_in_between_wake_it_in_their_turn(lab: Lab) {
        // rules 7.1 and 9.4
        let till = Till::gated();
        let engine = engine(&lab, &till).await;
        let order = standing(&lab, &till, "waits").await;
        let adding = {
            let lab = lab.clone();
            tokio::spawn(async move {
                let mut added = 0;
                while lab.update("waits", ADD, &1).await.is_ok() {
                    added += 1;
                }
                added
            })
        };
        till.log.grown_to(20).await;
        assert!(lab.signal_all([new_signal("waits", SHUT, &())]).await.unwrap()[0].is_ok());
        let came_to = lab.came_to(&order).await;
        assert_eq!(came_to.total, adding.await.unwrap(), "all that was answered is in the state");
        assert_eq!(came_to.entries.len() as i64, came_to.total);
        engine.shutdown().await;
    }
}
