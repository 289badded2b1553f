//! Finds out if rules detect more operations than the server shows.

use crate::output::complain;
use ifo_api::{Gvr, Source};
use ifo_engine::ClockReading;
use ifo_engine::detect::{Evaluation, FeedEvent};
use ifo_engine::rules::{RuleBook, RuleSet};
use ifo_engine::track::{Message, Tracker, TrackerSettings};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Gives all evaluations to a tracker, as the server does. The tracker enforces the bounds.
pub(super) struct BoundsCheck {
    tracker: Tracker,
    now: ClockReading,
}

impl BoundsCheck {
    /// Creates a check for these rules. All objects are evaluated at the time `now`.
    pub(super) fn new(books: &BTreeMap<Gvr, Arc<RuleBook>>, now: Timestamp) -> Self {
        let settings = TrackerSettings {
            debounce: Duration::ZERO,
            retain: None,
            max_records: 0,
            cluster_namespace: "".into(),
        };
        let now = ClockReading {
            wall: now,
            steady: Instant::now(),
        };
        let mut tracker = Tracker::new(settings, Arc::new(()));
        for (target, book) in books {
            let rules = Message::Rules {
                target: Arc::new(target.clone()),
                book: Some(book.clone()),
                removed: false,
            };
            tracker.advance(rules, now);
        }
        Self { tracker, now }
    }

    /// Adds the evaluation of an object.
    pub(super) fn add(&mut self, book: &RuleBook, evaluation: Evaluation) {
        let source = Source {
            target: Arc::new(book.target.clone()),
            namespace: None,
        };
        let event = FeedEvent::Evaluated {
            evaluation: Box::new(evaluation),
            read: self.now.steady,
        };
        let message = Message::Feed {
            source,
            generation: book.generation,
            event,
        };
        self.tracker.advance(message, self.now);
        self.tracker.take_changes();
    }
}

/// Prints a warning for each rule set of which the server would not show all operations. The caller
/// must call this function before it drops the tracker.
pub(super) fn report<'a>(rule_sets: impl IntoIterator<Item = &'a Arc<RuleSet>>) {
    for rule_set in rule_sets {
        if let Some(reached) = rule_set.activity.reached_bound() {
            let name = &rule_set.name;
            complain("warning", format!("{name}: too many operations: {reached}"));
        }
    }
}
