//! The objects of one feed with an unknown detection. Input: each evaluation, and the beginning and
//! end of each list. Output: the counts in the [`Activity`](crate::rules::Activity) of the rule
//! sets, which are used for their status and for the warning on lists.

use super::Evaluation;
use super::evaluate::RuleSetBudgets;
use crate::rules::{RuleBook, RuleSet};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Number of objects that are remembered, some 200 bytes each. Of further objects, only namespace
/// and operation are remembered, until the next list.
const MAX_OBJECTS: usize = 250;

/// Shortest time between two lists that are requested here. A list costs the kube-apiserver as much
/// as the first list.
const RELIST_INTERVAL: Duration = Duration::from_mins(5);

/// The unknown detections of one feed. Dropping it removes them from the counts.
#[derive(Debug)]
pub(super) struct UnknownObjects {
    book: Arc<RuleBook>,
    /// The objects by their identity.
    objects: HashMap<Arc<str>, UnknownObject>,
    /// Objects beyond [`MAX_OBJECTS`]: one entry for each rule set, operation and namespace.
    beyond: BTreeMap<Many, u64>,
    /// Increases with each list. Objects with an older number were not in the list.
    list: u64,
    listing: bool,
    /// For each rule set of the book, true if this feed throttles it.
    throttled: Vec<bool>,
    /// True if a list was requested, and the time of the last list.
    relisted: Option<Instant>,
}

/// The objects of one namespace (None for cluster-scoped objects) with one unknown operation: the
/// index of the rule set in the book, the namespace and the operation.
type Many = (usize, Option<Arc<str>>, Arc<str>);

/// One object.
#[derive(Debug)]
struct UnknownObject {
    namespace: Option<Arc<str>>,
    /// The unknown operations by the index of the rule set in the book.
    operations: Vec<(usize, Vec<Arc<str>>)>,
    /// True if a rule set was not evaluated because it is throttled.
    skipped: bool,
    /// The list during or after which the object was last evaluated.
    list: u64,
}

impl UnknownObjects {
    pub(super) fn new(book: Arc<RuleBook>) -> Self {
        Self {
            throttled: vec![false; book.rule_sets.len()],
            book,
            objects: HashMap::new(),
            beyond: BTreeMap::new(),
            list: 0,
            listing: true,
            relisted: None,
        }
    }

    /// Called when a list of all objects begins. Unknown detections stay until the object is
    /// evaluated again, or until the list ends without the object.
    pub(super) fn reset(&mut self) {
        self.list += 1;
        self.listing = true;
    }

    /// Called when the list is complete. Objects that were not in it no longer exist.
    pub(super) fn synced(&mut self) {
        if !std::mem::take(&mut self.listing) {
            return;
        }
        let list = self.list;
        let gone: Vec<Arc<str>> = self
            .objects
            .iter()
            .filter(|(_, object)| object.list != list)
            .map(|(identity, _)| identity.clone())
            .collect();
        for identity in gone {
            self.removed(&identity);
        }
        let (book, beyond) = (&self.book, &mut self.beyond);
        beyond.retain(|(place, namespace, operation), last| {
            let keep = *last == list;
            if !keep && let Some(rule_set) = book.rule_sets.get(*place) {
                let operations = std::slice::from_ref(operation);
                rule_set
                    .activity
                    .remove_unknown(namespace.as_ref(), operations);
            }
            keep
        });
    }

    /// Returns true if the detection is known on all objects.
    pub(super) fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.beyond.is_empty()
    }

    /// Returns true if the object is remembered.
    pub(super) fn contains(&self, identity: &str) -> bool {
        self.objects.contains_key(identity)
    }

    /// Records the evaluation of an object.
    pub(super) fn evaluated(&mut self, identity: &Arc<str>, evaluation: &Evaluation) {
        if evaluation.unknown.is_empty() {
            self.removed(identity);
            return;
        }
        let namespace = evaluation.subject.namespace.clone();
        let operations = self.by_rule_set(evaluation);
        let skipped = operations
            .iter()
            .any(|(place, _)| self.throttled.get(*place) == Some(&true));
        if let Some(known) = self.objects.get_mut(identity)
            && known.operations == operations
        {
            known.list = self.list;
            known.skipped = skipped;
            return;
        }
        self.removed(identity);
        if self.objects.len() == MAX_OBJECTS {
            self.remember_beyond(namespace.as_ref(), operations);
            return;
        }
        for (place, operations) in &operations {
            let rule_set = &self.book.rule_sets[*place];
            rule_set
                .activity
                .add_unknown(namespace.as_ref(), operations);
        }
        let remembered = UnknownObject {
            namespace,
            operations,
            skipped,
            list: self.list,
        };
        self.objects.insert(identity.clone(), remembered);
    }

    /// Removes an object that no longer exists or has no unknown detection.
    pub(super) fn removed(&mut self, identity: &Arc<str>) {
        let Some(object) = self.objects.remove(identity) else {
            return;
        };
        for (place, operations) in &object.operations {
            if let Some(rule_set) = self.book.rule_sets.get(*place) {
                rule_set
                    .activity
                    .remove_unknown(object.namespace.as_ref(), operations);
            }
        }
    }

    /// Updates which rule sets are throttled.
    pub(super) fn throttling(&mut self, allowances: &RuleSetBudgets) {
        for (place, rule_set) in self.book.rule_sets.iter().enumerate() {
            let now = allowances.is_throttled(place);
            let before = std::mem::replace(&mut self.throttled[place], now);
            match (before, now) {
                (false, true) => rule_set.activity.throttle(),
                (true, false) => rule_set.activity.release(),
                (false, false) | (true, true) => {}
            }
        }
    }

    /// Returns true if a new list is needed. Objects are not stored. So objects that a throttled
    /// rule set skipped, and objects that are not remembered, cannot be evaluated again without a
    /// list. Returns true at most once in [`RELIST_INTERVAL`].
    pub(super) fn wants_list(&mut self, now: Instant) -> bool {
        let skipped =
            self.objects.values().any(|object| object.skipped) && !self.throttled.contains(&true);
        let forgotten = self.objects.is_empty() && !self.beyond.is_empty();
        let recent = |at: Instant| now.duration_since(at) < RELIST_INTERVAL;
        if self.listing || self.relisted.is_some_and(recent) || !(skipped || forgotten) {
            return false;
        }
        self.relisted = Some(now);
        true
    }

    fn remember_beyond(
        &mut self,
        namespace: Option<&Arc<str>>,
        operations: Vec<(usize, Vec<Arc<str>>)>,
    ) {
        for (place, operations) in operations {
            for operation in operations {
                let key = (place, namespace.cloned(), operation.clone());
                if self.beyond.insert(key, self.list).is_none() {
                    let activity = &self.book.rule_sets[place].activity;
                    activity.add_unknown(namespace, &[operation]);
                }
            }
        }
    }

    fn by_rule_set(&self, evaluation: &Evaluation) -> Vec<(usize, Vec<Arc<str>>)> {
        let mut operations: Vec<(usize, Vec<Arc<str>>)> = Vec::new();
        for (rule_set, operation) in &evaluation.unknown {
            let own = |other: &Arc<RuleSet>| Arc::ptr_eq(other, rule_set);
            let Some(place) = self.book.rule_sets.iter().position(own) else {
                continue;
            };
            match operations.last_mut() {
                Some((last, of_last)) if *last == place => of_last.push(operation.clone()),
                _ => operations.push((place, vec![operation.clone()])),
            }
        }
        operations
    }
}

impl Drop for UnknownObjects {
    fn drop(&mut self) {
        self.reset();
        self.synced();
        for (rule_set, throttled) in self.book.rule_sets.iter().zip(&self.throttled) {
            if *throttled {
                rule_set.activity.release();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::detect::evaluate::evaluate_within;
    use crate::rules::{ObjectScope, compile};
    use ifo_api::Gvr;
    use ifo_cel::Doc;
    use jiff::Timestamp;
    use serde_json::json;

    struct Feed {
        unknown: UnknownObjects,
        allowances: RuleSetBudgets,
    }

    impl Feed {
        fn new(expression: &str) -> Self {
            let target = Gvr {
                group: "g.io".into(),
                version: "v1".into(),
                resource: "things".into(),
            };
            let spec = json!({
                "component": "c", "target": target,
                "rules": [{"operation": "Working", "expression": expression}],
            });
            let spec = serde_json::from_value(spec).expect("a rule set");
            let rule_set = Arc::new(compile("a", &spec).expect("valid"));
            let book = RuleBook::new(1, target, "Thing".into(), true, vec![rule_set]);
            Self {
                unknown: UnknownObjects::new(Arc::new(book)),
                allowances: RuleSetBudgets::default(),
            }
        }

        /// A list or a change brings the object.
        fn evaluate(&mut self, name: &str, values: usize, second: i64) {
            let object = json!({"metadata": {"name": name}, "values": vec![1; values]});
            let json = object.to_string();
            let book = self.unknown.book.clone();
            let doc = Doc::parse(json.as_bytes(), &book.projection).expect("JSON");
            let now = Timestamp::from_second(second).expect("it is in range");
            let evaluation = evaluate_within(&book, &doc, now, &(), &mut self.allowances)
                .expect("it has a name");
            self.unknown.throttling(&self.allowances);
            self.unknown.evaluated(&name.into(), &evaluation);
        }

        /// Objects that are counted, and whether the rule set is throttled.
        fn shown(&self) -> (usize, bool) {
            let activity = &self.unknown.book.rule_sets[0].activity;
            let unknown = activity.unknown_on(ObjectScope::ALL);
            (unknown.objects, activity.is_throttled())
        }
    }

    /// Costs the cube of the number of values.
    const CUBIC_EXPRESSION: &str =
        "object.values.all(a, object.values.all(b, object.values.all(c, a + b + c > 0)))";

    #[test]
    fn objects_skipped_by_a_throttled_rule_set_are_relisted_after_recovery() {
        let mut feed = Feed::new(CUBIC_EXPRESSION);
        let names: Vec<String> = (0..12).map(|number| number.to_string()).collect();
        feed.unknown.reset();
        for name in &names {
            feed.evaluate(name, 300, 0);
        }
        feed.unknown.synced();
        assert_eq!(feed.shown(), (12, true));
        // The objects become small, but are not evaluated for ten seconds.
        for name in &names {
            feed.evaluate(name, 1, 5);
        }
        let now = Instant::now();
        assert_eq!(feed.shown(), (12, true));
        assert!(!feed.unknown.wants_list(now), "it would be skipped again");
        feed.evaluate("0", 1, 20);
        assert_eq!(feed.shown(), (11, false));
        assert!(feed.unknown.wants_list(now));
        assert!(!feed.unknown.wants_list(now), "once is enough");
        feed.unknown.reset();
        assert_eq!(feed.shown(), (11, false));
        for name in &names {
            feed.evaluate(name, 1, 21);
        }
        feed.unknown.synced();
        assert_eq!(feed.shown(), (0, false));
        assert!(!feed.unknown.wants_list(now + RELIST_INTERVAL));
    }

    #[test]
    fn beyond_the_remembered_limit_objects_are_unknown_until_the_next_list() {
        let mut feed = Feed::new("object.values[0] > 'text'");
        let names: Vec<String> = (0..MAX_OBJECTS + 5).map(|it| it.to_string()).collect();
        feed.unknown.reset();
        for name in &names {
            feed.evaluate(name, 1, 0);
        }
        feed.unknown.synced();
        assert_eq!(feed.shown().0, MAX_OBJECTS + 1, "at least one more");
        for name in &names {
            feed.evaluate(name, 0, 1);
        }
        assert_eq!(feed.shown().0, 1, "nothing tells whether it is over");
        assert!(feed.unknown.wants_list(Instant::now()));
        feed.unknown.reset();
        feed.unknown.synced();
        assert_eq!(feed.shown().0, 0);
    }

    #[test]
    fn dropping_the_feed_removes_its_counts() {
        let mut feed = Feed::new(CUBIC_EXPRESSION);
        for name in 0..MAX_OBJECTS + 5 {
            feed.evaluate(&name.to_string(), 300, 0);
        }
        assert_eq!(feed.shown(), (MAX_OBJECTS + 1, true));
        let book = feed.unknown.book.clone();
        drop(feed);
        let activity = &book.rule_sets[0].activity;
        assert_eq!(activity.unknown_on(ObjectScope::ALL).objects, 0);
        assert!(!activity.is_throttled());
    }
}
