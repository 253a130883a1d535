//! A workflow that does a little of everything, kept in memory and replayed at every wake.

use abide::client::new_start;
use abide::machine::Messages;
use abide::testing::Kit;
use abide::time::{days, hours, minutes};
use abide::workflow::OneOf;
use abide::{BoxError, Flow, Job, Signal, Update, Workflow};

const APPROVED: Signal<String> = Signal::new("approved-by");
const SET: Update<u32, u32> = Update::new("set");
const ALL: Flow<u32, String> =
    Flow::new("all").messages(|| Messages::new().signal(APPROVED).update(SET));
const KID: Job<u32, u32> = Job::new("kid");

async fn all(wf: Workflow, n: u32) -> Result<String, BoxError> {
    let level = wf.state(0);
    wf.on_update(SET, {
        let level = level.clone();
        move |n| {
            if n > 100 {
                return Err("too much".into());
            }
            level.set(n);
            Ok(n * 2)
        }
    });
    let a = wf.step("a", || async { Ok::<_, BoxError>(n + 1) }).await?;
    let by = wf
        .signal(APPROVED)
        .timeout(days(3))
        .await?
        .ok_or("missing")?;
    let kid = wf.child(new_start(KID, a)).await?;
    let kids = wf.children((0..3).map(|n| new_start(KID, n))).await?;
    let kids: Vec<u32> = kids.into_iter().collect::<Result<_, _>>()?;
    wf.condition("level", || level.get() > 3).await?;
    wf.sleep(hours(1)).await?;
    let (x, y) = wf
        .all((
            wf.step("x", || async { Ok::<_, BoxError>(1) }),
            wf.step("y", || async { Ok::<_, BoxError>(2) }),
        ))
        .await;
    let first = match wf.select((wf.signal(APPROVED), wf.sleep(minutes(5)))).await {
        OneOf::First(by) => by?,
        OneOf::Second(slept) => {
            slept?;
            "slept".to_owned()
        }
    };
    Ok(format!(
        "{a} {by} {kid} {kids:?} {} {} {} {first}",
        level.get(),
        x?,
        y?
    ))
}

#[tokio::test]
async fn what_it_comes_to_is_the_same_kept_or_replayed() {
    // rule 12.1
    for kept in [1000, 0] {
        let kit = Kit::builder()
            .workflow(ALL, all)
            .workflows_kept(kept)
            .job(KID, |n| async move { Ok(n * 10) });
        let kit = kit.build().await.unwrap();
        let run = kit.start(ALL, 1).key("one").await.unwrap();
        kit.settle().await;
        kit.signal("one", APPROVED, &"Taylor".to_owned())
            .await
            .unwrap();
        kit.settle().await;
        assert!(kit.update("one", SET, &101).await.is_err());
        assert_eq!(kit.update("one", SET, &5).await.unwrap(), 10);
        kit.advance(minutes(70)).await;
        kit.assert_done(&run, &"2 Taylor 20 [0, 10, 20] 5 1 2 slept".to_owned())
            .await;
    }
}
