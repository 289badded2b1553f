//! What was there before a restart, taken up again: operations come back as they were,
//! and nothing of them ends or changes before their subjects and rules are known again.

use super::arbitrate::What;
use super::ledger::Identity;
use super::operation::{Operation, Restored};
use super::subject::Tracked;
use super::tracker::{Now, Tracker};
use crate::rules::Bookless;
use ifo_api::Key;
use ifo_api::live::InFlightOperation;
use std::collections::BTreeMap;

/// Operations that are taken up; those beyond are detected anew. As many take about 100 MB,
/// of the 256 MiB that the Deployment allows.
pub const MAX_RESTORED: usize = 50_000;

/// Operations that are over, by the second of their start, of which there is one each.
pub(super) type Pasts = BTreeMap<i64, Past>;

/// One that is over.
#[derive(Debug)]
pub(super) struct Past {
    /// The second in which it was.
    over: i64,
    key: Key,
    /// Whether there is a custom resource of it.
    is_written: bool,
}

impl Tracker {
    /// Takes up what somebody kept of the time before a restart, or what another server
    /// shows. What the server would not have written is left out, with a line in the log.
    pub(super) fn restore(
        &mut self,
        operations: Vec<InFlightOperation>,
        are_shown: bool,
        now: Now,
    ) {
        for object in operations {
            let name = object.metadata.name.clone().unwrap_or_default();
            if self.restored.len() >= MAX_RESTORED {
                tracing::warn!(
                    name,
                    "too many operations to restore; the rest is detected anew"
                );
                return;
            }
            let cluster_namespace = &self.ledger.settings.cluster_namespace;
            match Restored::read(object, cluster_namespace, now) {
                Ok(restored) => self.take_up(restored, are_shown, now),
                Err(error) => {
                    let name: String = name.chars().take(253).collect();
                    tracing::warn!(name, %error, "an operation is not restored");
                }
            }
        }
    }

    fn take_up(&mut self, restored: Restored, is_shown: bool, now: Now) {
        let Restored {
            identity,
            view,
            operation,
            ended,
        } = restored;
        let known = !self.restored.insert(operation.uid());
        if let Some(ended) = ended {
            // Who told first counts, but for this: what is over stays over, and whoever says
            // that it goes on has looked before it ended. An end that is told is better than
            // one that was only concluded, too.
            let concluded = self.concluded.remove(&operation.uid());
            if known && !concluded && !self.withdraw(&identity, &operation) {
                if !is_shown {
                    self.is_written(&identity, &operation);
                }
                return;
            }
            let end = ended.0;
            let shown = self.ledger.restore(&identity, &operation, ended, now);
            if known && !shown {
                self.ledger.take_back(&operation);
            }
            // What a rule says of a start may well be in the middle of another run.
            if !operation.is_start_told() {
                let id = (identity.clone(), operation.what.clone());
                let past = Past {
                    over: operation.detected_until(Some(end)).as_second(),
                    key: operation.key.clone(),
                    is_written: !is_shown,
                };
                let runs = self.past.entry(id).or_default();
                runs.insert(operation.start_second(), past);
            }
            self.conclude(&identity, operation.what, now);
            return;
        }
        if known {
            return;
        }
        let what = operation.what.clone();
        let tracked = self
            .subjects
            .entry(identity.clone())
            .or_insert_with(|| Box::new(Tracked::remembered(identity.clone(), view)));
        tracked.restore(operation, is_shown, &mut self.ledger, now);
        self.conclude(&identity, what, now);
    }

    /// A custom resource tells of what another server has told already.
    fn is_written(&mut self, identity: &Identity, operation: &Operation) {
        let id = (identity.clone(), operation.what.clone());
        let runs = self.past.get_mut(&id);
        if let Some(run) = runs.and_then(|it| it.get_mut(&operation.start_second())) {
            run.is_written = true;
        }
    }

    /// Of what is over, shows one at a time of each operation: two servers that went on side by
    /// side have each told what they saw. The one that started first stays, and persistence
    /// deletes the other; but none is deleted for one that is not written, and will not be.
    fn drop_doubles(&mut self) {
        for runs in std::mem::take(&mut self.past).into_values() {
            let mut runs: Vec<(i64, Past)> = runs.into_iter().collect();
            runs.sort_by_key(|(start, run)| (!run.is_written, *start));
            let mut stay: BTreeMap<i64, i64> = BTreeMap::new();
            for (start, run) in runs {
                let before = stay.range(..=start).next_back();
                let after = stay.range(start..).next();
                if before.is_some_and(|(_, over)| start < *over)
                    || after.is_some_and(|(later, _)| *later < run.over)
                {
                    self.ledger.drop_retained(run.key);
                } else {
                    stay.insert(start, run.over);
                }
            }
        }
    }

    /// Ends what was taken up as one that goes on, if a later run of it is over: it was by
    /// then. Custom resources are not written in the order of what they tell, so the end of a
    /// run may not be there yet when the whole of the next is.
    fn conclude(&mut self, identity: &Identity, what: What, now: Now) {
        let id = (identity.clone(), what);
        let Some(later) = self.ledger.last_start(&id) else {
            return;
        };
        let tracked = self.subjects.get_mut(identity);
        let over = tracked.and_then(|it| it.conclude(&id.1, later, &mut self.ledger, now));
        self.concluded.extend(over);
        self.forget_if_over(identity);
    }

    /// Whether this one was taken up as one that goes on; then it does no more.
    fn withdraw(&mut self, identity: &Identity, operation: &Operation) -> bool {
        let tracked = self.subjects.get_mut(identity);
        let withdrawn = tracked.is_some_and(|it| it.withdraw(operation, &mut self.ledger));
        self.forget_if_over(identity);
        withdrawn
    }

    /// All rule sets have been read: what no rule is about any more ends.
    pub(super) fn all_booked(&mut self, bookless: &Bookless, now: Now) {
        self.drop_doubles();
        let (books, feeds) = (&self.books, &self.feeds);
        for tracked in self.subjects.values_mut() {
            let namespace = tracked.view.subject.namespace.clone();
            let book = books.get(&tracked.target);
            let ruled = |operation: &str| {
                book.is_some_and(|book| book.has_rule(operation, namespace.as_deref()))
            };
            let gap = super::tracker::gap(feeds, tracked);
            let ledger = &mut self.ledger;
            tracked.all_booked(bookless, |what| ruled(&what.operation), gap, ledger, now);
        }
        self.subjects.retain(|_, tracked| !tracked.is_over());
    }
}
