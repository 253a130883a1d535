//! The content of a store in the end, in a form in which two of them can be compared.

use std::collections::HashMap;

use abide::history::Entry;
use abide::model::Instance;
use abide::store::Filter;
use abide::{Abide, Status};
use serde_json::{Value, json};

/// The parts of an instance that must be the same however often its workers died.
#[derive(Debug, PartialEq)]
pub struct Snapshot {
    pub machine: String,
    pub input: Value,
    pub status: Status,
    pub result: Option<Value>,
    pub error: Option<String>,
    pub history: Vec<String>,
}

/// Every instance of a store, in the order in which they were made.
pub async fn instances(abide: &Abide) -> Vec<Instance> {
    let (mut found, mut before) = (Vec::new(), None);
    loop {
        let page = abide.list(&Filter::default(), before, 500).await.unwrap();
        found.extend(page.items);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    found.sort_by_key(|instance| instance.id);
    found
}

/// Takes a snapshot of every instance of a store. `keeps` selects the events, and `times` keeps their times.
pub async fn snapshots(
    abide: &Abide,
    times: bool,
    keeps: impl Fn(&Entry) -> bool,
) -> Vec<Snapshot> {
    let instances = instances(abide).await;
    let known = HashMap::new();
    let mut names = Names { known, times };
    for instance in &instances {
        names.of(&instance.id.to_string());
    }
    let mut all = Vec::new();
    for instance in instances {
        let history = abide.history(instance.id).await.unwrap();
        let history = history.iter().filter(|entry| keeps(entry));
        let history = history.map(|entry| names.normalised(entry)).collect();
        all.push(Snapshot {
            machine: instance.machine.to_string(),
            input: instance.state.to().unwrap(),
            status: instance.status,
            result: instance.result.map(|result| result.to().unwrap()),
            error: instance.row.last_error,
            history,
        });
    }
    all
}

/// Describes the first difference.
pub fn difference(left: &[Snapshot], right: &[Snapshot]) -> Option<String> {
    if left == right {
        return None;
    }
    for (index, (left, right)) in left.iter().zip(right).enumerate() {
        if left == right {
            continue;
        }
        let both = left.history.iter().zip(&right.history);
        let same = both.take_while(|(left, right)| left == right).count();
        let brief = |snapshot: &Snapshot| {
            let Snapshot {
                status,
                result,
                error,
                history,
                ..
            } = snapshot;
            let from = same.saturating_sub(6).min(history.len());
            let to = (same + 6).min(history.len());
            format!(
                "{status}, result {result:?}, error {error:?}, {} events, of which\n    {}",
                history.len(),
                history[from..to].join("\n    ")
            )
        };
        return Some(format!(
            "instance {index} ({}) differs, from event {same} on:\n  without: {}\n  with:    {}",
            left.machine,
            brief(left),
            brief(right)
        ));
    }
    Some(format!("{} instances, and {}", left.len(), right.len()))
}

/// Ids by the order in which they were met.
struct Names {
    known: HashMap<String, usize>,
    /// `true` if times are compared.
    times: bool,
}

impl Names {
    fn of(&mut self, id: &str) -> usize {
        let next = self.known.len();
        *self.known.entry(id.to_owned()).or_insert(next)
    }

    /// Formats an event without the parts that differ from one run to another.
    fn normalised(&mut self, entry: &Entry) -> String {
        let mut value = serde_json::to_value(&entry.what).unwrap();
        let what = &mut value["data"];
        let differs = match what["operation_kind"].as_str() {
            Some("random" | "uuid") => true,
            Some("now") => !self.times,
            _ => false,
        };
        if differs {
            what["outcome"] = json!("any");
        }
        self.rename(&mut value);
        value.to_string()
    }

    fn rename(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                fields.remove("duration_us");
                fields.remove("attempt");
                for (name, value) in fields.iter_mut() {
                    match (name.as_str(), &*value) {
                        (
                            "id" | "child" | "parent" | "command_id" | "update_id" | "message"
                            | "wait_id" | "next_run" | "previous_run",
                            Value::String(id),
                        ) => {
                            *value = json!(self.renamed(&id.clone()));
                        }
                        ("deadline" | "due_at", _) if !self.times => *value = json!("then"),
                        _ => self.rename(value),
                    }
                }
            }
            Value::Array(values) => values.iter_mut().for_each(|value| self.rename(value)),
            _ => {}
        }
    }

    /// A wait's id holds that of its instance, and of its operation, or that of a signal.
    fn renamed(&mut self, id: &str) -> String {
        let parts = id.split(':').map(|part| {
            if part.len() < 6 {
                part.to_owned()
            } else {
                format!("#{}", self.of(part))
            }
        });
        parts.collect::<Vec<_>>().join(":")
    }
}
