//! A list that goes on. Enters: what was listed, and what changes. Leaves: the operations
//! that a line is to be printed of, each once; the end of one that ended while nobody
//! could see it, too.

use crate::operation::{Operation, OperationKey};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What stands on the screen.
pub(super) struct Watched {
    /// Whether what is over is shown, too.
    all_phases: bool,
    /// The operations that were shown last as active; until all is told, what is over too.
    shown: BTreeMap<OperationKey, Operation>,
    /// What the watch has told since it began; None when it has told all once.
    told: Option<BTreeSet<OperationKey>>,
}

impl Watched {
    /// These were listed, and shown.
    pub(super) fn new(listed: Vec<Operation>, all_phases: bool) -> Self {
        Self {
            all_phases,
            shown: listed.into_iter().map(|it| (it.key(), it)).collect(),
            told: Some(BTreeSet::new()),
        }
    }

    /// One is as it is now. Returns it if that is news.
    pub(super) fn applied(&mut self, operation: Operation) -> Option<Operation> {
        let key = operation.key();
        if let Some(told) = &mut self.told {
            told.insert(key.clone());
        }
        match self.shown.get(&key) {
            Some(before) if before.version == operation.version => return None,
            // What was over before is no news.
            None if self.told.is_some() && !operation.active && !self.all_phases => return None,
            _ => {}
        }
        if operation.active || self.told.is_some() {
            self.shown.insert(key, operation.clone());
        } else {
            self.shown.remove(&key);
        }
        Some(operation)
    }

    /// One is gone. Returns how it ended if its end was not shown.
    pub(super) fn deleted(&mut self, operation: Operation) -> Option<Operation> {
        let before = self.shown.remove(&operation.key())?;
        before.active.then(|| ended(operation))
    }

    /// All that there is has been told. Returns the ends of what was listed and is no more.
    pub(super) fn synced(&mut self) -> Vec<Operation> {
        let Some(told) = self.told.take() else {
            return Vec::new();
        };
        let shown = std::mem::take(&mut self.shown);
        let active = shown.into_iter().filter(|(_, it)| it.active);
        let (there, gone): (BTreeMap<_, _>, BTreeMap<_, _>) =
            active.partition(|(key, _)| told.contains(key));
        self.shown = there;
        gone.into_values().map(ended).collect()
    }
}

/// The last that is known of an operation that is gone: nobody saw how it ended.
fn ended(mut operation: Operation) -> Operation {
    if operation.active {
        operation.active = false;
        "Ended".clone_into(&mut operation.state);
        operation.raw = operation.raw.as_deref().and_then(ended_object);
    }
    operation
}

fn ended_object(raw: &RawValue) -> Option<Box<RawValue>> {
    let mut object: Value = serde_json::from_str(raw.get()).ok()?;
    let status = object.get_mut("status")?.as_object_mut()?;
    status.insert("phase".to_owned(), json!("Completed"));
    status.insert("state".to_owned(), json!("Ended"));
    to_raw_value(&object).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshots;

    fn at(name: &str, version: &str) -> Operation {
        let subject = format!("VirtualMachine/{name}");
        let more = json!({"metadata": {"resourceVersion": version}});
        snapshots::operation("shop", &subject, "Migrating", 65, more)
    }

    fn over(name: &str, version: &str) -> Operation {
        Operation {
            active: false,
            state: "Succeeded".to_owned(),
            ..at(name, version)
        }
    }

    fn state(shown: Option<Operation>) -> Option<String> {
        shown.map(|it| it.state)
    }

    #[test]
    fn what_was_listed_and_what_was_over_before_is_no_news() {
        let mut watched = Watched::new(vec![at("a", "1")], false);
        assert_eq!(state(watched.applied(at("a", "1"))), None);
        assert_eq!(state(watched.applied(over("b", "2"))), None);
        assert_eq!(
            state(watched.applied(at("c", "3"))).as_deref(),
            Some("Progressing")
        );
        assert!(watched.synced().is_empty());
        assert_eq!(
            state(watched.applied(over("c", "4"))).as_deref(),
            Some("Succeeded")
        );
        // Its end was shown.
        assert_eq!(state(watched.deleted(over("c", "4"))), None);
    }

    #[test]
    fn what_ends_between_the_listing_and_the_watch_is_shown_so() {
        let mut watched = Watched::new(vec![at("a", "1"), at("b", "1")], false);
        assert_eq!(
            state(watched.applied(over("a", "2"))).as_deref(),
            Some("Succeeded")
        );
        let gone = watched.synced();
        assert_eq!(gone.len(), 1);
        assert_eq!((&*gone[0].subject.name, &*gone[0].state), ("b", "Ended"));
        assert!(watched.synced().is_empty());
    }

    #[test]
    fn what_was_gone_when_the_watch_came_back_ends_once() {
        let mut watched = Watched::new(vec![at("a", "1")], false);
        watched.applied(at("a", "1"));
        watched.synced();
        let end = watched.deleted(at("a", "1")).expect("it was active");
        assert!(!end.active);
        let raw: Value = serde_json::from_str(end.raw.expect("it was kept").get()).expect("JSON");
        assert_eq!(raw["status"]["phase"], "Completed");
        assert_eq!(raw["status"]["state"], "Ended");
        assert_eq!(state(watched.deleted(at("a", "1"))), None);
    }

    #[test]
    fn ten_thousand_that_were_listed_are_told_again_in_no_time() {
        let all: Vec<Operation> = (0..10_000).map(|it| at(&format!("vm-{it}"), "1")).collect();
        let mut watched = Watched::new(all.clone(), false);
        let started = std::time::Instant::now();
        assert!(all.into_iter().all(|it| watched.applied(it).is_none()));
        // Looking through all of them for each takes minutes.
        assert!(started.elapsed() < std::time::Duration::from_secs(10));
        assert!(watched.synced().is_empty());
    }
}
