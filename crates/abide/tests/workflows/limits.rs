//! Limits of sizes, and odd values.

use abide::client::new_start;
use abide::machine::Messages;
use abide::model::{Limits, Liveness};
use abide::prelude::*;
use abide::store::OpenOptions;
use serde_json::{Value, json};

use crate::common::{Gate, Lab};

const FLOW: Flow<Value, Value> = Flow::new("any");
const NOTE: Signal<Value> = Signal::new("note");
const KID: Job<Value, Value> = Job::new("kid");
const ECHO: Update<Value, Value> = Update::new("echo");
const ECHOES: Flow<Value, Value> =
    Flow::new("echoes").messages(|| Messages::new().signal(NOTE).update(ECHO));

fn small() -> OpenOptions {
    Abide::options().limits(Limits {
        state_bytes: 1_000,
        result_bytes: 500,
        payload_bytes: 300,
        names_per_wait: 3,
        children_per_barrier: 4,
        ..Limits::default()
    })
}

on_every_store! {
    async fn what_is_too_large_is_refused_and_says_the_limit(lab: Lab) {
        // rules 4.2 and 16.3
        let lab = lab.opened(small()).await;
        let code = |wf: Workflow, how: Value| async move {
            let large = |size: usize| "x".repeat(size);
            let how = how.as_str().unwrap_or_default().to_owned();
            let how: &str = &how;
            match how {
                "result" => Ok(json!(large(600))),
                "next" => wf.continue_as_new(json!(large(1_100))),
                "step" => {
                    let caught = wf.step("large", || async move { Ok::<_, BoxError>("x".repeat(600)) }).await;
                    let error = caught.unwrap_err().to_string();
                    wf.step("small", || async { Ok::<_, BoxError>(1) }).await?;
                    Ok(json!(error))
                }
                "effect" => Ok(json!(wf.side_effect("large", || large(600)).await)),
                "names" => {
                    let waits = (0..4).map(|n| wf.signal::<u32>(format!("name {n}"))).collect::<Vec<_>>();
                    wf.select(waits).await.1?;
                    Ok(json!(null))
                }
                "child" => Ok(wf.child(new_start(KID, json!(large(1_100)))).await?),
                _ => {
                    wf.children((0..5).map(|n| new_start(KID, json!(n)))).await?;
                    Ok(json!(null))
                }
            }
        };
        let engine = lab.engine().workflow(FLOW, code).job(KID, |n| async move { Ok(n) }).start().await.unwrap();
        let step = lab.start(FLOW, json!("step")).await.unwrap();
        let error = lab.came_to(&step).await;
        assert!(error.as_str().unwrap().contains("result_bytes"), "{error}");
        let limits = [
            ("result", "result_bytes"), ("next", "state_bytes"), ("effect", "result_bytes"), ("names", "names_per_wait"),
            ("child", "state_bytes"), ("children", "children_per_barrier"),
        ];
        for (how, limit) in limits {
            let run = lab.start(FLOW, json!(how)).await.unwrap();
            let row = lab.until(run.id(), "it to fail", |row| row.last_error.is_some() && row.status != Status::Executing).await;
            let error = row.last_error.clone().unwrap();
            assert!(error.contains(limit), "{how}: {} {error}", row.status);
            assert_eq!(row.status, Status::Failed, "{how}: {error}");
        }
        let error = lab.start(FLOW, json!("x".repeat(1_001))).await.unwrap_err();
        assert!(error.to_string().contains("state_bytes"), "{error}");
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_payload_that_is_too_large_is_refused_before_the_code_sees_it(lab: Lab) {
        // rules 7.3 and 16.3
        let lab = lab.opened(small()).await;
        let code = |wf: Workflow, _: Value| async move { Ok(wf.signal(NOTE).await?) };
        let engine = lab.engine().workflow(FLOW, code).start().await.unwrap();
        let run = lab.start(FLOW, json!(null)).await.unwrap();
        let error = lab.signal(&run, NOTE, &json!("x".repeat(301))).await.unwrap_err();
        assert_eq!(error.reason(), Some("payload_too_large"));
        lab.signal(&run, NOTE, &json!("fits")).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!("fits"));
        engine.shutdown().await;
    }
}

/// Values that are often broken.
fn odd() -> Vec<Value> {
    vec![
        json!(null),
        json!(""),
        json!([]),
        json!({}),
        json!([null]),
        json!({"": null}),
        json!(false),
        json!(0),
        json!(-1),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(1.5),
        json!(1e300),
        json!("\u{0}\u{1}\n\r\t\"\\"),
        json!("𝄞 ünïcödé 漢字 \u{202e}"),
        json!({"a": {"b": [1, {"c": null}]}}),
        json!([[[[]]]]),
        json!("null"),
    ]
}

on_every_store! {
    async fn odd_values_come_back_as_they_were(lab: Lab) {
        // rules 1.1, 7.1 and 12.1: through steps, signals, updates, children, results and replays.
        let gate = Gate::closed();
        gate.open();
        let code = |wf: Workflow, input: Value| async move {
            wf.on_update(ECHO, Ok);
            let step = wf.step("step", || { let input = input.clone(); async move { Ok::<_, BoxError>(input) } }).await?;
            let effect = wf.side_effect("effect", || input.clone()).await;
            let child = wf.child(new_start(KID, input.clone())).await?;
            let signal = wf.signal(NOTE).await?;
            wf.sleep(millis(1)).await?;
            let all = [&input, &step, &effect, &child, &signal];
            let same = all.iter().all(|one| **one == input);
            if same { Ok(input) } else { Err(format!("{all:?}").into()) }
        };
        for kept in [100, 0] {
            let engine = lab.engine().workflows_kept(kept).workflow(ECHOES, code).job(KID, |n| async move { Ok(n) });
            let engine = engine.start().await.unwrap();
            let mut runs = Vec::new();
            for value in odd() {
                let run = lab.start(ECHOES, value.clone()).await.unwrap();
                assert_eq!(lab.update(&run, ECHO, &value).await.unwrap(), value);
                lab.signal(&run, NOTE, &value).await.unwrap();
                runs.push((run, value));
            }
            for (run, value) in runs {
                assert_eq!(lab.came_to(&run).await, value);
            }
            engine.shutdown().await;
        }
    }
}

on_every_store! {
    async fn values_of_a_mebibyte_fit(lab: Lab) {
        // rules 12.1 and 16.3
        let text = "é".repeat((1 << 19) - 200);
        let large = text.clone();
        let code = move |wf: Workflow, input: Value| {
            let large = large.clone();
            async move {
                let step = wf.step("large", || { let large = large.clone(); async move { Ok::<_, BoxError>(json!(large)) } }).await?;
                let signal = wf.signal(NOTE).await?;
                let child = wf.child(new_start(KID, step.clone())).await?;
                Ok(if [&step, &signal, &child].iter().all(|one| **one == input) { input } else { json!("not the same") })
            }
        };
        let engine = lab.engine().workflows_kept(0).workflow(FLOW, code).job(KID, |n| async move { Ok(n) });
        let engine = engine.start().await.unwrap();
        let run = lab.start(FLOW, json!(text)).await.unwrap();
        lab.signal(&run, NOTE, &json!(text)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(text));
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn names_may_be_what_names_may_be(lab: Lab) {
        // rules 12.1 and 12.4
        let code = |wf: Workflow, name: Value| async move {
            let name = name.as_str().unwrap_or_default().to_owned();
            wf.step(&name, || async { Ok::<_, BoxError>(json!("ran")) }).await.map_err(Into::into)
        };
        let engine = lab.engine().workflow(FLOW, code).start().await.unwrap();
        for name in ["a b", "ünïcödé 漢字", "\"quoted\" 'too' \\", "%s {} $1"] {
            let run = lab.start(FLOW, json!(name)).await.unwrap();
            assert_eq!(lab.came_to(&run).await, json!("ran"), "{name}");
        }
        for name in ["", "line\nbreak", &"x".repeat(10_000)] {
            let run = lab.start(FLOW, json!(name)).await.unwrap();
            lab.until(run.id(), "it to be blocked", |row| row.status == Status::Scheduled).await;
            let view = lab.describe(run.id()).await.unwrap().unwrap();
            assert_eq!(view.liveness.name(), "replay_blocked");
            assert!(lab.cancel(run.id(), "over").await.unwrap().ended);
        }
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn five_thousand_operations_in_one_run(lab: Lab) {
        // rules 12.1, 12.3 and 12.6
        let code = |wf: Workflow, _: Value| async move {
            let mut sum = 0;
            for n in 0..500_u64 {
                sum += wf.step("one", || async move { Ok::<_, BoxError>(n) }).await?;
                for _ in 0..4 {
                    wf.now();
                    wf.random();
                }
                wf.sleep(millis(0)).await?;
            }
            wf.signal(NOTE).await?;
            Ok(json!(sum))
        };
        let engine = lab.engine().workflow(FLOW, code).start().await.unwrap();
        let run = lab.start(FLOW, json!(null)).await.unwrap();
        lab.until_status(run.id(), Status::AwaitingSignal).await;
        engine.shutdown().await;
        let engine = lab.engine().workflow(FLOW, code).start().await.unwrap();
        lab.signal(&run, NOTE, &json!(1)).await.unwrap();
        assert_eq!(lab.came_to(&run).await, json!(499 * 500 / 2));
        let counted = lab.kinds(run.id()).await.iter().filter(|kind| **kind == "operation_completed").count();
        assert_eq!(counted, 500 * 10 + 1);
        engine.shutdown().await;
    }
}

on_every_store! {
    async fn a_side_effect_that_asks_for_an_operation_is_refused_and_says_so(lab: Lab) {
        // rule 12.5
        let code = |wf: Workflow, _: Value| async move {
            Ok(json!(wf.side_effect("nested", || wf.random()).await))
        };
        let engine = lab.engine().workflow(FLOW, code).start().await.unwrap();
        let run = lab.start(FLOW, json!(null)).await.unwrap();
        lab.until(run.id(), "it to be blocked", |row| row.status == Status::Scheduled).await;
        let view = lab.describe(run.id()).await.unwrap().unwrap();
        assert_eq!(view.liveness, Liveness::ReplayBlocked);
        let why = view.reason.unwrap().text;
        assert!(why.contains("random") && why.contains("nested"), "{why}");
        engine.shutdown().await;
    }
}
