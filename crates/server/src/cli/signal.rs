//! `abide signal`: sends a signal to an instance.

use std::time::Duration;

use abide::client::Receipt;
use serde_json::{Map, Value, json};

use super::context::{Context, target_of};
use super::failure::{Exit, Result, not_sent};
use super::text::clean;
use super::times::parse_length;
use super::values::Given;

/// Send a signal to an instance
///
/// When this answers, the signal is durable. Its arguments are checked against the declaration of the machine; all problems are
/// listed by field.
#[derive(Debug, clap::Args)]
#[command(after_help = concat!(
    "Examples:\n",
    "  abide signal order:42 payment_confirmed amount=100 by=card --dedup evt-7\n",
    "  abide signal order:42 payment_confirmed '{\"amount\": 100}'\n",
    "  abide signal order:42 payment_confirmed - < payment.json\n",
    "  abide signal order:43 payment_confirmed amount=5 --hold-for 1h\n\n",
    "Values:\n",
    "  amount=100       a number, true, false, null, \"text\", [list] or {object}: JSON when it reads as JSON\n",
    "  name=Ada         else a text\n",
    "  code==007        a text, whatever it looks like\n",
    "  tags:='[1, 2]'   JSON, or an error\n",
    "  '{\"amount\": 1}'  the whole of it as JSON; @file reads it from a file, - from standard input"
))]
pub struct Args {
    /// An id, or a key
    target: String,
    /// The signal's name
    name: String,
    /// The arguments: name=value pairs, or JSON
    #[arg(value_name = "VALUE")]
    values: Vec<String>,
    /// The dedup key: a signal that is sent again with the same key is the same signal
    #[arg(long, value_name = "ID")]
    dedup: Option<String>,
    /// If no instance has the key yet, hold the signal for this long: 30s, 1h
    #[arg(long, value_name = "TIME", value_parser = parse_length)]
    hold_for: Option<Duration>,
}

impl Args {
    /// Runs it.
    pub async fn run(self, context: &Context) -> Result {
        let arguments = Given::read(&self.values)?.arguments();
        let target = target_of(&self.target)?;
        let abide = match self.hold_for {
            // The store may not exist yet.
            Some(_) => context.write().await?,
            None => context.open_existing().await?,
        };
        let mut builder = abide.signal(target, &self.name, arguments).source("cli");
        if let Some(dedup) = &self.dedup {
            builder = builder.dedup(dedup);
        }
        if let Some(time) = self.hold_for {
            builder = builder.hold_for(time);
        }
        let receipt = builder
            .await
            .map_err(|error| not_sent(error, &self.target, &self.name, "command_id"))?;
        if context.out.json {
            context.out.document(&answer(&receipt))?;
        } else {
            context.out.line(&summary(&receipt))?;
            if let Some(similar) = &receipt.similar {
                context.out.say(&format!(
                    "it waits for {:?}, and {:?} does not wake it; if that was meant, send it under that name",
                    similar.as_str(),
                    self.name
                ));
            }
        }
        Ok(Exit::Done)
    }
}

/// The answer as a server gives it.
fn answer(receipt: &Receipt) -> Value {
    let record = &receipt.record;
    let mut answer = Map::new();
    answer.insert("outcome".into(), json!(record.outcome()));
    answer.insert("command_id".into(), json!(record.id));
    if let Some(sequence) = record.sequence {
        answer.insert("message_sequence".into(), json!(sequence));
    }
    if let Some(sequence) = record.command_sequence {
        answer.insert("command_sequence".into(), json!(sequence));
    }
    answer.insert("instance_id".into(), json!(record.instance));
    answer.insert("key".into(), json!(record.key));
    answer.insert("duplicate".into(), json!(receipt.duplicate));
    if let Some(similar) = &receipt.similar {
        answer.insert("similar".into(), json!(similar));
    }
    Value::Object(answer)
}

fn summary(receipt: &Receipt) -> String {
    let record = &receipt.record;
    let position = match (record.instance, record.sequence) {
        (Some(instance), Some(sequence)) => format!("message {sequence} of instance {instance}"),
        _ => format!(
            "held for {} until {}",
            record
                .key
                .as_ref()
                .map(|key| clean(key.as_str()).into_owned())
                .unwrap_or_default(),
            record
                .hold_until
                .map(|until| until.to_string())
                .unwrap_or_default()
        ),
    };
    let again = if receipt.duplicate {
        ", which had come before"
    } else {
        ""
    };
    format!(
        "{}: {position}{again} (command {})",
        record.outcome(),
        record.id
    )
}
