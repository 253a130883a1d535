//! `abide update`: sends an update to an instance, and waits for its answer.

use std::time::Duration;

use abide::client::UpdateError;
use abide::model::CommandStatus;

use super::context::{Context, target_of};
use super::failure::{Exit, Failure, Result, not_sent, shell_quoted};
use super::text::pretty;
use super::times::{length, parse_length};
use super::values::Given;
use crate::http::dto::UpdateView;

/// Send an update to an instance, and print its answer
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide update order:42 rename to=\"Ada Lovelace\"\n",
    "  abide update order:42 rename '[\"Ada\"]' --request-id req-9\n",
    "  abide update order:42 rebuild --no-wait\n\n",
    "Values are name=value pairs (JSON when they read as JSON, else text; name:=json and name==text force one), or JSON:\n",
    "an object is arguments by name, a list by place."
))]
pub struct Args {
    /// An id, or a key
    target: String,
    /// The update's name
    name: String,
    /// The arguments: name=value pairs, or JSON
    #[arg(value_name = "VALUE")]
    values: Vec<String>,
    /// The request id: an update that is sent again with the same id is the same update, with the same answer
    #[arg(long, value_name = "ID")]
    request_id: Option<String>,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", value_parser = parse_length, default_value = "30s")]
    wait: Duration,
    /// Print the update's id as soon as it is accepted
    #[arg(long, conflicts_with = "wait")]
    no_wait: bool,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let target = target_of(&self.target)?;
        let arguments = match Given::read(&self.values)? {
            Given::One(json) if json.as_str().starts_with('[') => {
                Given::Several(json.to().unwrap_or_default()).arguments()
            }
            given => given.arguments(),
        };
        let abide = context.open_existing().await?;
        let mut request = abide.update(target, &self.name, arguments).source("cli");
        if let Some(id) = &self.request_id {
            request = request.request_id(id);
        }
        let handle = request.accepted().await;
        let handle =
            handle.map_err(|error| not_sent(error, &self.target, &self.name, "update_id"))?;
        let id = handle.id();
        let out = context.out;
        if self.no_wait {
            match (out.json, handle.receipt()) {
                (true, Some(receipt)) => out.document(&UpdateView::from(receipt.record.clone()))?,
                _ => out.line(&id.to_string())?,
            }
            return Ok(Exit::Done);
        }
        match handle.answer_within(self.wait).await {
            Ok(result) => {
                match (out.json, handle.record().await?) {
                    (true, Some(record)) => out.document(&UpdateView::from(record))?,
                    _ => out.line(&pretty(result.as_str()))?,
                }
                Ok(Exit::Done)
            }
            Err(UpdateError::Failed { id, error }) => {
                let text = format!("the update failed: {error}");
                Err(Failure::new(Exit::Refused, "update_failed", text)
                    .with("update_id", id)
                    .with("update_status", CommandStatus::Failed)
                    .with("error", error)
                    .next(format!("abide show {}", shell_quoted(&self.target))))
            }
            Err(UpdateError::NotYet { id }) => {
                let text = format!(
                    "update {id} was accepted, and is not answered after {}; it will be all the same",
                    length(self.wait)
                );
                Err(Failure::new(Exit::Refused, "not_yet", text)
                    .with("update_id", id)
                    .with("update_status", CommandStatus::Accepted)
                    .next(format!(
                        "abide signals --kind update --target {}",
                        shell_quoted(&self.target)
                    )))
            }
            Err(UpdateError::Send(error)) => {
                Err(not_sent(error, &self.target, &self.name, "update_id"))
            }
            Err(UpdateError::Error(error)) => Err(error.into()),
            Err(other) => Err(Failure::new(Exit::Refused, "gone", other.to_string())
                .next(format!("abide show {}", shell_quoted(&self.target)))),
        }
    }
}
