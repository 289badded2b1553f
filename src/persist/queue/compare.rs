//! Compares a list of all custom resources with the entries of the write queue. Records in each
//! entry the state of its custom resource, and creates an entry for each orphan that must be
//! deleted. An orphan is a custom resource whose operation is not in the index.

use super::entry::StoredState;
use super::listed::ListedResource;
use super::{COMPARE_INTERVAL, Queue};
use crate::clock;
use ifo_api::Text;
use jiff::Timestamp;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

/// The time from the comparison that finds an orphan until the queue deletes the orphan.
///
/// If the previous leader watched another kube-apiserver, it may have seen an operation that this
/// leader has not seen yet. If this leader detects the operation within the delay, the custom
/// resource stays.
pub(super) const ORPHAN_DELAY: Duration = Duration::from_secs(5);

/// The time from the first call of [`Queue::set_unsynced_rule_sets`] until the second comparison.
///
/// If the previous leader created a custom resource just before it lost the Lease, the creation may
/// arrive after the first comparison. The kube-apiserver ends each request after at most 60 s. So
/// the second comparison finds its result.
pub(super) const SECOND_COMPARE_DELAY: Duration = Duration::from_secs(65);

impl Queue {
    /// Compares a complete list of the custom resources with the entries.
    pub fn process_list(&mut self, found: Vec<ListedResource>, now: Instant) {
        self.process_success();
        let first = self.unsynced_rule_sets.as_ref().map(|(since, _)| *since);
        let second = first.map(|first| first + SECOND_COMPARE_DELAY);
        let second = second.filter(|at| *at > now);
        self.compare_at = second.unwrap_or(now + COMPARE_INTERVAL);
        // If the custom resource of a completed operation is missing in the list, a user or the
        // garbage collector has deleted it. Its entry does not change, so the queue does not create
        // the custom resource again.
        let listed: HashSet<Text> = found.iter().map(|found| found.name.clone()).collect();
        for (name, entry) in &mut self.entries {
            if !listed.contains(name) && !entry.is_completion_written() {
                entry.stored = StoredState::Absent;
            }
        }
        let retained = self.retained_orphans(&found);
        self.has_undecided_orphans = false;
        for found in found {
            let is_orphan = !self.entries.contains_key(&found.name);
            if is_orphan && retained.contains(&found.name) {
                continue;
            }
            if is_orphan && self.may_be_detected(&found) {
                self.has_undecided_orphans = true;
                continue;
            }
            let entry = self.entries.entry(found.name.clone()).or_default();
            if is_orphan {
                entry.not_before = Some(now + ORPHAN_DELAY);
            }
            entry.record_listed(found);
        }
    }

    /// Returns true if a rule set can still detect the operation of an orphan when its target is
    /// read. So a later comparison decides.
    fn may_be_detected(&self, found: &ListedResource) -> bool {
        let unsynced = self
            .unsynced_rule_sets
            .as_ref()
            .map(|(_, unsynced)| unsynced);
        let operation = &found.operation;
        let mut rule_sets = (operation.status.detected_by.iter()).chain([&operation.spec.rule_set]);
        !found.is_completed()
            && !found.namespace_deleted
            && unsynced.is_none_or(|unsynced| rule_sets.any(|name| unsynced.contains(&**name)))
    }

    /// Returns the names of the completed orphans that the queue keeps: the newest ones, so that
    /// they and the completed operations in the index are at most
    /// [`crate::persist::PersistSettings::retain_max`]. Orphans that are too old or whose namespace was
    /// deleted are not kept.
    fn retained_orphans(&self, found: &[ListedResource]) -> HashSet<Text> {
        if !self.settings.retain {
            return HashSet::new();
        }
        let in_index = self.entries.values().filter(|it| it.is_completed()).count();
        let free_slots = self.settings.retain_max.saturating_sub(in_index);
        let oldest = clock::now()
            .checked_sub(self.settings.retain_for)
            .unwrap_or(Timestamp::MIN);
        let mut orphans: Vec<(Timestamp, &Text)> = found
            .iter()
            .filter(|found| found.is_completed() && !found.namespace_deleted)
            .filter(|found| !self.entries.contains_key(&found.name))
            .filter_map(|found| Some((found.operation.status.completed?.0, &found.name)))
            .filter(|(completed, _)| *completed > oldest)
            .collect();
        orphans.sort_unstable_by(|a, b| b.cmp(a));
        orphans.truncate(free_slots);
        orphans.into_iter().map(|(_, name)| name.clone()).collect()
    }
}
