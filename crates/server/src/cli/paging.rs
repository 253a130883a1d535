//! Paging of lists: one page, or all of it.

use abide::store::Page;
use abide_kernel::model::AT_ONCE;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::failure::{Failure, Result};
use super::out::Out;
use crate::http::dto::{decode, encode};

/// How much of a list is shown.
#[derive(Clone, Debug, clap::Args)]
pub struct Paging {
    /// The maximum number of entries
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// All entries, however many
    #[arg(long, conflicts_with = "limit")]
    pub all: bool,
    /// The cursor that the previous page printed
    #[arg(long, value_name = "CURSOR")]
    pub cursor: Option<String>,
}

/// A list, and the cursor of its continuation.
#[derive(Debug, Serialize)]
pub struct Listed<T> {
    /// The entries.
    pub items: Vec<T>,
    /// The cursor of the next page; `None` at the end.
    pub next_cursor: Option<String>,
}

impl<T> Listed<T> {
    /// Converts each entry.
    pub fn map<U>(self, each: impl FnMut(T) -> U) -> Listed<U> {
        Listed {
            items: self.items.into_iter().map(each).collect(),
            next_cursor: self.next_cursor,
        }
    }
}

impl Paging {
    /// Reads as many entries as requested, page by page.
    pub async fn gather<T, C: Copy + Serialize + DeserializeOwned>(
        &self,
        list: &str,
        mut page: impl AsyncFnMut(Option<C>, usize) -> Result<Page<T, C>>,
    ) -> Result<Listed<T>> {
        let most = match self.all {
            true => usize::MAX,
            false => self.limit as usize,
        };
        let cursor = decode(list, self.cursor.as_deref());
        let mut from: Option<C> = cursor.map_err(|problem| {
            Failure::usage(problem.detail).next("the same without --cursor, to begin anew")
        })?;
        let mut items: Vec<T> = Vec::new();
        loop {
            let next = page(from, most.saturating_sub(items.len()).clamp(1, AT_ONCE)).await?;
            items.extend(next.items);
            from = next.next;
            if from.is_none() || items.len() >= most {
                return Ok(Listed {
                    items,
                    next_cursor: from.and_then(|position| encode(list, &position)),
                });
            }
        }
    }
}

/// Prints a message if the list is empty or not complete.
pub fn remark<T>(out: &Out, listed: &Listed<T>, nothing: &str) {
    match &listed.next_cursor {
        None if listed.items.is_empty() => out.say(nothing),
        None => {}
        Some(cursor) => out.say(&format!(
            "{} shown, and there are more: --all, a higher --limit, or --cursor {cursor}",
            listed.items.len()
        )),
    }
}
