//! Compares a list of all custom resources with the entries of the write queue. A queue entry
//! contains the stored and the wanted state of the custom resource of one operation.
//!
//! The comparison records in each queue entry the state of the custom resource in the cluster.
//! There is one exception: if the custom resource of a completed operation was deleted, its queue
//! entry does not change.
//!
//! An orphan is a custom resource whose operation is not in the index (the operations in memory).
//! The comparison creates a queue entry for each orphan that must be completed or deleted.

use super::queue_entry::{QueueEntry, StoredState, WantedState};
use super::{COMPARE_INTERVAL, Queue};
use crate::clock;
use crate::persist::client::Revision;
use crate::persist::written_summary::WrittenSummary;
use ifo_api::Text;
use ifo_api::live::Phase;
use jiff::Timestamp;
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest time from the comparison that finds an orphan until the queue completes or deletes
/// the orphan.
///
/// The delay matters after a failover. If the previous leader watched another kube-apiserver, the
/// previous leader may have seen an operation that this leader has not seen yet. If this leader
/// detects the operation within the delay, the custom resource is neither completed nor deleted.
pub(super) const ORPHAN_DELAY: Duration = Duration::from_secs(5);

/// The time from the first call of [`Queue::set_unsynced_rule_sets`] until the second comparison.
/// The first comparison usually runs at once after this call.
///
/// If the previous leader created a custom resource just before it lost the Lease, the creation may
/// arrive after the first comparison. The kube-apiserver ends each request after at most 60 s. So
/// after 65 s, the creation has succeeded or failed, and the second comparison finds its result.
pub(super) const SECOND_COMPARE_DELAY: Duration = Duration::from_secs(65);

/// The fields of a listed custom resource that the comparison needs.
#[derive(Clone, Debug)]
pub(in crate::persist) struct ListedResource {
    pub name: Text,
    pub revision: Revision,
    pub summary: WrittenSummary,
    /// The time at which the operation completed. None if the operation is in flight.
    pub completed: Option<Timestamp>,
    /// The namespace of the subject, and the last time at which this namespace is known to have
    /// existed. None if the subject is cluster-scoped, or if this time is unknown.
    pub last_seen_in: Option<(Text, Timestamp)>,
    /// True if the namespace of the subject was deleted after the time in `last_seen_in`, even if a
    /// new namespace has the same name.
    pub namespace_deleted: bool,
    /// The rule sets that detect the operation.
    pub rule_sets: Vec<Text>,
}

impl Queue {
    /// Compares a complete list of the custom resources with the queue entries.
    pub fn process_list(&mut self, found: Vec<ListedResource>, now: Instant) {
        self.pace.record_success();
        let second = self
            .unsynced_rule_sets
            .iter()
            .map(|(since, _)| *since + SECOND_COMPARE_DELAY);
        let second = second.filter(|at| *at > now).min();
        self.compare_at = Some(second.unwrap_or(now + COMPARE_INTERVAL));
        let listed: HashSet<Text> = found.iter().map(|found| found.name.clone()).collect();
        // If the custom resource of a completed operation is missing in the list, a user or the
        // garbage collector has deleted it. The queue entry of this operation does not change, so
        // the queue does not create the custom resource again.
        for name in
            self.names(|name, queued| !listed.contains(name) && !queued.is_completion_written())
        {
            self.change(&name, now, |queued| queued.stored = StoredState::Absent);
        }
        let retained = self.retained_orphans(&found);
        self.has_undecided_orphans = false;
        for found in found {
            let mut orphan = None;
            if !self.entries.contains_key(&found.name) {
                if retained.contains(&found.name) {
                    continue;
                }
                orphan = self.wanted_state_of_orphan(&found);
                if orphan.is_none() {
                    self.has_undecided_orphans = true;
                    continue;
                }
            }
            self.change(&found.name, now, |queued| {
                if let Some(orphan) = orphan {
                    queued.wanted = orphan;
                    queued.not_before = Some(now + ORPHAN_DELAY);
                }
                let at = match &queued.stored {
                    // The custom resource has not changed since this queue last wrote or read it.
                    // So the queue keeps its own summary. The summary of the list can differ,
                    // because it can contain labels of other clients.
                    StoredState::Present(_, revision, _) if *revision == found.revision => return,
                    StoredState::Present(_, _, at) => *at,
                    _ => None,
                };
                queued.stored = StoredState::Present(found.summary, found.revision, at);
            });
        }
    }

    /// Returns the wanted state of an orphan. If the orphan is completed, or its namespace was
    /// deleted, the state is `Gone`. For other orphans, the method returns None in two cases:
    ///
    /// - A rule set of the orphan is unsynced ([`super::UnsyncedRuleSets`]). The rule set can still
    ///   detect the operation when its target is read. So a later comparison decides.
    /// - The queue does not know yet which rule sets are unsynced.
    fn wanted_state_of_orphan(&self, found: &ListedResource) -> Option<WantedState> {
        if found.summary.phase == Phase::Completed || found.namespace_deleted {
            return Some(WantedState::Gone);
        }
        let (_, unsynced) = self.unsynced_rule_sets.as_ref()?;
        if found
            .rule_sets
            .iter()
            .any(|name| unsynced.contains(&**name))
        {
            return None;
        }
        let retain = self.settings.retain;
        Some(if retain {
            WantedState::Completed
        } else {
            WantedState::Gone
        })
    }

    /// Returns the names of the completed orphans that the queue keeps, by these rules:
    ///
    /// - An orphan that is older than [`super::PersistSettings::retain_for`] is not kept.
    /// - The orphans and the completed operations in the index together are at most
    ///   [`super::PersistSettings::retain_max`]. If there are more, only the newest orphans are
    ///   kept.
    /// - If the namespace of the subject was deleted, the orphan is not kept.
    /// - If completed operations are not retained, no orphan is kept.
    fn retained_orphans(&self, found: &[ListedResource]) -> HashSet<Text> {
        if !self.settings.retain {
            return HashSet::new();
        }
        let phases = self.entries.values().filter_map(QueueEntry::live_phase);
        let completed_in_index = phases.filter(|phase| *phase == Phase::Completed).count();
        let free_slots = self.settings.retain_max.saturating_sub(completed_in_index);
        let oldest = clock::now()
            .checked_sub(self.settings.retain_for)
            .unwrap_or(Timestamp::MIN);
        let mut orphans: Vec<(Timestamp, &Text)> = found
            .iter()
            .filter(|found| found.summary.phase == Phase::Completed && !found.namespace_deleted)
            .filter(|found| self.live_phase(&found.name).is_none())
            .filter_map(|found| Some((found.completed?, &found.name)))
            .filter(|(completed, _)| *completed > oldest)
            .collect();
        orphans.sort_unstable_by(|a, b| b.cmp(a));
        orphans.truncate(free_slots);
        orphans.into_iter().map(|(_, name)| name.clone()).collect()
    }
}
