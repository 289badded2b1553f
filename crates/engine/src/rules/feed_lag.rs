//! Measures whether a feed (the watch of one resource) evaluates changes in time. If the changes of
//! a feed wait for too long, lists may miss operations.
//!
//! The feed records the time since which it has always had work to do. Other threads read this
//! time. So they notice a delay even while the thread of the feed is busy.

use super::evaluation_time::lock;
use super::{Fact, Report, RuleBook, RuleSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// If work of a feed has waited for longer than this time, the rule sets of the feed may miss
/// operations.
pub const MAX_LAG: Duration = Duration::from_secs(5);

/// The time since which work has been waiting. None if no work waits. One task writes the time, and
/// any thread reads it.
#[derive(Debug, Default)]
pub struct WorkWaitingSince(Mutex<Option<Instant>>);

impl WorkWaitingSince {
    /// Records that work has been waiting since `at`. Does nothing if older work already waits.
    pub fn begin(&self, at: Instant) {
        lock(&self.0).get_or_insert(at);
    }

    /// Records that all work from before `at` is done, and that other work has been waiting since
    /// `at`.
    pub fn restart(&self, at: Instant) {
        *lock(&self.0) = Some(at);
    }

    /// Records that no work waits.
    pub fn end(&self) {
        *lock(&self.0) = None;
    }

    /// Returns true if work has been waiting for more than [`MAX_LAG`] at `now`.
    pub fn is_late(&self, now: Instant) -> bool {
        lock(&self.0).is_some_and(|since| now.saturating_duration_since(since) > MAX_LAG)
    }
}

/// The waiting work of one feed. While some of this work is late, the rule sets of the feed count
/// as behind. After this value is dropped, the work of the feed no longer counts.
#[derive(Debug)]
pub struct FeedLag {
    /// The time since which the feed has always had a change that it has not evaluated yet. So no
    /// change has waited for longer than this.
    pub changes: Arc<WorkWaitingSince>,
    /// The time since which stored objects have been waiting for their next evaluation.
    pub reevaluation: Arc<WorkWaitingSince>,
    _reports: Vec<Report>,
}

impl FeedLag {
    /// Creates the value for a feed without waiting work, and reports the value to each rule set
    /// that the feed evaluates. `namespace` is the namespace of the feed, or None if the feed
    /// covers all namespaces.
    ///
    /// `thread` is the last time at which the thread of the feed ran a periodic task. While the
    /// thread is blocked, the feed cannot record that changes wait. In this case, `thread` becomes
    /// late instead.
    pub fn new(book: &RuleBook, namespace: Option<&str>, thread: &Arc<WorkWaitingSince>) -> Self {
        let (changes, reevaluation) = (Arc::default(), Arc::default());
        let covers = |it: &&Arc<RuleSet>| namespace.is_none() || it.covers(namespace);
        let rule_sets = book.rule_sets.iter().filter(covers);
        let reports = rule_sets.flat_map(|it| {
            let all = [&changes, &reevaluation, thread];
            all.map(|work| it.activity.report(Fact::Watched(work.clone())))
        });
        Self {
            _reports: reports.collect(),
            changes,
            reevaluation,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::compile;
    use ifo_api::Gvr;

    #[test]
    fn work_is_late_if_the_oldest_work_waits_for_more_than_five_seconds() {
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let waiting = WorkWaitingSince::default();
        assert!(!waiting.is_late(after(60)), "no work waits");
        waiting.begin(after(60));
        waiting.begin(after(64));
        assert!(!waiting.is_late(after(65)));
        assert!(waiting.is_late(after(66)));
        waiting.restart(after(64));
        assert!(!waiting.is_late(after(66)));
        assert!(waiting.is_late(after(70)));
        waiting.end();
        assert!(!waiting.is_late(after(70)));
    }

    #[test]
    fn the_rule_sets_of_a_feed_are_behind_while_its_thread_is_blocked() {
        let target = Gvr {
            group: "g.io".into(),
            version: "v1".into(),
            resource: "things".into(),
        };
        let spec = serde_json::json!({
            "component": "c", "target": target,
            "rules": [{"operation": "Working", "expression": "true"}],
        });
        let spec = serde_json::from_value(spec).expect("the test's rule set is valid");
        let rule_set = Arc::new(compile("a", &spec).expect("the test's rule set compiles"));
        let book = RuleBook::new(1, target, "Thing".into(), true, vec![rule_set.clone()]);
        let begin = Instant::now();
        let after = |seconds| begin + Duration::from_secs(seconds);
        let thread = Arc::new(WorkWaitingSince::default());
        let lag = FeedLag::new(&book, None, &thread);
        thread.restart(after(1));
        assert!(!rule_set.activity.is_behind(after(6)));
        assert!(rule_set.activity.is_behind(after(7)));
        thread.restart(after(7));
        assert!(!rule_set.activity.is_behind(after(7)));
        assert!(rule_set.activity.is_behind(after(20)));
        drop(lag);
        assert!(!rule_set.activity.is_behind(after(20)), "no feed is left");
    }
}
