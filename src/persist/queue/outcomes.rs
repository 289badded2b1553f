//! What successes and failures of single writes mean for all of them: whether to go on, to
//! wait, or to look at what is there again.

use super::super::pace;
use super::super::store::Failure;
use super::record::Stored;
use super::{Queue, REFUSALS};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

impl Queue {
    /// A write succeeded: adapts the pace, and tries again what was refused.
    pub(super) fn succeeded(&mut self, name: &Arc<str>, now: Instant) {
        self.pace.succeeded();
        self.successes += 1;
        self.refused.remove(name);
        if std::mem::take(&mut self.refusals) < REFUSALS {
            return;
        }
        // Every write was refused for a while. So others may have changed the cluster since,
        // and what was refused may be allowed now.
        self.compare_at = self.compare_at.map(|at| at.min(now));
        for name in self.names(|name, _| self.refused.contains(name)) {
            if let Some(record) = self.records.get_mut(&name) {
                record.not_before = None;
            }
            self.plan(&name, now);
        }
    }

    /// A write was refused. If others have succeeded since its first refusal, the refusal is
    /// about this object and delays no other one. Otherwise it may be about all objects, and
    /// few are tried until one succeeds. Returns the longest time until the next attempt.
    pub(super) fn forbidden(&mut self, name: &Arc<str>, now: Instant) -> Duration {
        let successes = self.successes;
        let known = self.records.get_mut(name);
        let since = known.map(|record| *record.refused_after.get_or_insert(successes));
        if since.is_some_and(|since| since < successes) {
            return pace::MAX_OBJECT;
        }
        let most = if self.refusals + 1 < REFUSALS {
            pace::MAX_REFUSED
        } else {
            pace::PROBE
        };
        self.pace.wait(pace::delay(self.refusals, most), now);
        self.refusals = self.refusals.saturating_add(1);
        self.settings.requeue.min(pace::MAX_OBJECT)
    }

    /// A request failed: adapts the pace of all writes.
    pub(super) fn failed(&mut self, failure: &Failure, now: Instant) {
        match failure {
            Failure::Missing => {
                // The custom resources were deleted with their CRD.
                for record in self.records.values_mut() {
                    if matches!(std::mem::take(&mut record.stored), Stored::Present { .. }) {
                        record.is_old = false;
                    }
                }
                self.halt(now);
            }
            // Only lists come here: `forbidden` handles writes. No list means no writes.
            Failure::Forbidden(_) => {
                self.unlisted = self.unlisted.saturating_add(1);
                if self.unlisted >= REFUSALS {
                    self.halt(now);
                } else {
                    self.pace.failed(None, now);
                }
            }
            Failure::Throttled(after) => self.pace.wait(*after, now),
            Failure::Unreachable(_, after) => self.pace.failed(*after, now),
            Failure::Gone | Failure::Conflict(_) | Failure::Invalid(_) => {}
        }
    }

    /// Nothing can be written for a while. The next step after that is a comparison.
    fn halt(&mut self, now: Instant) {
        self.pace.wait(self.settings.requeue, now);
        if self.compare_at.is_some() {
            self.compare_at = Some(now);
        }
    }

    /// Forgets a refusal, because the write is not wanted any more. If it was the last refused
    /// one, a comparison soon finds out whether requests succeed.
    pub(super) fn pardon(&mut self, name: &Arc<str>, now: Instant) {
        if self.refused.remove(name) && self.refused.is_empty() {
            let soon = now + self.settings.requeue;
            self.compare_at = self.compare_at.map(|at| at.min(soon));
        }
    }
}
