//! Signals on their way through a store that loses requests and answers.

use abide::client::SendError;
use abide::{Error, Signal, done};
use abide_kernel::Op;
use serde_json::json;

use crate::common::{At, Lab, Script, Trouble};
use crate::outages::faulty::{once, troubled};

pub const NOTE: Signal<u32> = Signal::new("note");

/// Ends with the signals that it received, when there are enough of them.
fn collects(count: usize) -> Script {
    Script::new(move |at, ctx| match at {
        At::One => ctx.wait_for(NOTE).then(At::Two),
        _ if ctx.signals().len() < count => ctx.wait_for(NOTE).then(At::Two),
        _ => done(json!(ctx.awaited_all(NOTE)?)),
    })
}

on_every_store! {
    async fn a_signal_whose_answer_got_lost_is_sent_again_by_its_dedup_key_and_is_one(lab: Lab) {
        // rules 1.1 and 7.3: delivered by the folding task, or by an engine that claims in the same transaction.
        for by_engine in [false, true] {
            for trouble in [Trouble::AnswerLost, Trouble::Lost, Trouble::Away, Trouble::Conflict] {
                let abide = troubled(&lab, once(trouble, |op| matches!(op, Op::Deliver(_)))).await;
                let home = if by_engine { abide.clone() } else { (*lab).clone() };
                let engine = home.engine().machine(collects(1)).start().await.unwrap();
                let key = format!("{trouble:?}-{by_engine}");
                let order = lab.start(Script::any(), json!(null)).key(&key).await.unwrap();
                let send = || abide.signal(&key, NOTE, &7).dedup("d");
                match (trouble, send().await) {
                    (Trouble::Away | Trouble::Conflict, first) => assert!(!first.unwrap().duplicate),
                    (_, first) => {
                        let error = first.unwrap_err();
                        assert!(matches!(error, SendError::Error(Error::Unknown(_))), "{error}");
                        assert_eq!(send().await.unwrap().duplicate, trouble == Trouble::AnswerLost);
                    }
                }
                assert_eq!(lab.came_to(&order).await, json!([7]), "{key}");
                let sent = lab.commands(&order, None, 9).await.unwrap().items;
                assert_eq!((sent.len(), sent[0].status.name()), (1, "applied"), "{key}");
                engine.shutdown().await;
            }
        }
    }
}

on_every_store! {
    async fn whatever_is_lost_on_the_way_each_signal_is_applied_once(lab: Lab) {
        // rules 1.1, 4.1 and 7.3
        const COUNT: u32 = 10;
        let random_trouble = |ops: &[Op]| match fastrand::u8(..100) {
            _ if ops.iter().any(|op| matches!(op, Op::Register(_) | Op::Declare { .. } | Op::Reclaim { .. })) => None,
            0..6 => Some(Trouble::Away),
            6..12 => Some(Trouble::Conflict),
            12..18 => Some(Trouble::Lost),
            18..24 => Some(Trouble::AnswerLost),
            _ => None,
        };
        let (one, two) = (troubled(&lab, random_trouble).await, troubled(&lab, random_trouble).await);
        let engines = [
            one.engine().queue("default", 10).machine(collects(COUNT as usize)).start().await.unwrap(),
            two.engine().queue("default", 10).machine(collects(COUNT as usize)).start().await.unwrap(),
        ];
        let mut orders = Vec::new();
        for n in 0..20 {
            orders.push(lab.start(Script::any(), json!(null)).key(format!("order:{n}")).await.unwrap());
        }
        let senders = (0..20).map(|n| {
            let abide = if n % 2 == 0 { one.clone() } else { two.clone() };
            tokio::spawn(async move {
                for value in 0..COUNT {
                    let send = || abide.signal(format!("order:{n}"), NOTE, &value).dedup(format!("d{value}"));
                    while let Err(error) = send().await {
                        assert!(matches!(error, SendError::Error(Error::Unknown(_))), "{error}");
                    }
                }
            })
        });
        for sender in senders.collect::<Vec<_>>() {
            sender.await.unwrap();
        }
        let all: Vec<u32> = (0..COUNT).collect();
        for order in &orders {
            assert_eq!(lab.came_to(order).await, json!(all));
        }
        assert_eq!(lab.doctor().await.unwrap().findings, []);
        for engine in engines {
            engine.shutdown().await;
        }
    }
}
