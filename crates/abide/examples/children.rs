//! A parent that starts children and goes on when they have ended.
//!
//! `cargo run --example children`

use abide::{Abide, Context, Job, Machine, Outcome, Status, Step, done, secs, spec, stop};
use serde::{Deserialize, Serialize};

/// Counts the words of one page.
const COUNT: Job<String, usize> = Job::new("count-words");

#[derive(Serialize, Deserialize)]
struct Book {
    pages: Vec<String>,
}

#[derive(Step)]
enum At {
    Split,
    Sum,
}

struct Count;

impl Machine for Count {
    const NAME: &'static str = "count-book";
    type Step = At;
    type State = Book;
    type Output = usize;

    async fn step(&self, at: At, ctx: &mut Context<Self>) -> Outcome<Self> {
        match at {
            At::Split => {
                let pages = ctx
                    .state()
                    .pages
                    .iter()
                    .cloned()
                    .map(|page| spec(COUNT, page));
                ctx.spawn(pages).timeout(secs(30)).then(At::Sum)
            }
            At::Sum if ctx.timed_out() => stop(format!(
                "{} pages were not counted in time",
                ctx.missing().count()
            )),
            At::Sum => {
                let mut words = 0;
                for page in ctx
                    .children()
                    .iter()
                    .filter(|page| page.status == Status::Done)
                {
                    words += page
                        .result
                        .as_ref()
                        .ok_or("a page without a result")?
                        .to::<usize>()?;
                }
                done(words)
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let abide = Abide::open("memory:").await?;
    let engine = abide
        .engine()
        .machine(Count)
        .job(COUNT, |page: String| async move {
            Ok(page.split_whitespace().count())
        })
        .start()
        .await?;

    let pages = (1..=100).map(|n| format!("page {n} of a book")).collect();
    let book = abide.start(Count, Book { pages }).key("book:1").await?;
    println!("{} words", book.result().await?);

    engine.shutdown().await;
    Ok(())
}
