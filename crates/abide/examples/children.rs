//! A parent that starts children and goes on when they have ended.
//!
//! `cargo run --example children`

use abide::client::new_start;
use abide::prelude::*;
use serde::{Deserialize, Serialize};

/// Counts the words of one page.
const COUNT: Job<String, usize> = Job::new("count-words");

#[derive(Serialize, Deserialize)]
struct Book {
    pages: Vec<String>,
}

struct CountBook;

#[machine(steps = At, state = Book, output = usize)]
impl CountBook {
    async fn split(ctx: &mut Context<Self>) -> Outcome<Self> {
        let pages = ctx.state().pages.iter().cloned();
        let children = pages.map(|page| new_start(COUNT, page));
        ctx.spawn(children).timeout(secs(30)).then(At::Sum)
    }

    async fn sum(ctx: &mut Context<Self>) -> Outcome<Self> {
        if ctx.timed_out() {
            let missing = ctx.missing().count();
            return stop(format!("{missing} pages were not counted in time"));
        }
        let counted = ctx.children().iter();
        let counted = counted.filter(|page| page.status == Status::Done);
        let words = counted.flat_map(|page| &page.result);
        done(
            words
                .map(|words| words.to::<usize>())
                .sum::<Result<_, _>>()?,
        )
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let store = std::env::var("ABIDE_STORE").unwrap_or_else(|_| "memory:".into());
    let abide = Abide::open(&store).await?;
    let engine = abide
        .engine()
        .machine(CountBook)
        .job(COUNT, |page: String| async move {
            Ok(page.split_whitespace().count())
        })
        .start()
        .await?;

    let pages = (1..=100).map(|n| format!("page {n} of a book")).collect();
    let book = abide.start(CountBook, Book { pages }).key("book:1").await?;
    println!("{} words", book.result().await?);

    engine.shutdown().await;
    Ok(())
}
