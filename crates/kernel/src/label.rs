//! Names as labels of metrics. Data can contain any number of names, and each one costs memory in the metrics recorder.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use metrics::Label;

/// The maximum number of names per label. Later names are counted as `other`.
const NAMES: usize = 1_000;

type Known = BTreeMap<&'static str, BTreeSet<Arc<str>>>;

/// Returns a name as a label: the name itself, or `other` if the label has too many names.
pub fn label(key: &'static str, name: &str) -> Label {
    static KNOWN: LazyLock<RwLock<Known>> = LazyLock::new(RwLock::default);
    let known = KNOWN.read().unwrap_or_else(PoisonError::into_inner);
    if let Some(name) = known.get(key).and_then(|names| names.get(name)) {
        return Label::new(key, name.clone());
    }
    drop(known);
    let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
    let names = known.entry(key).or_default();
    if names.len() >= NAMES && !names.contains(name) {
        return Label::from_static_parts(key, "other");
    }
    let name: Arc<str> = Arc::from(name);
    names.insert(name.clone());
    Label::new(key, name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_has_its_own_names_and_no_more_than_it_may() {
        let value = |key, name: &str| label(key, name).value().to_owned();
        for n in 0..NAMES {
            assert_eq!(value("one", &format!("n{n}")), format!("n{n}"));
        }
        assert_eq!(value("one", "late"), "other");
        assert_eq!(value("one", "n7"), "n7");
        assert_eq!(value("two", "late"), "late");
    }
}
