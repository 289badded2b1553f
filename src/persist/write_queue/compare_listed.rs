//! Compares the listed custom resources with the entries of the write queue.
//!
//! The comparison updates the stored state of each queue entry. It also creates a queue entry for
//! each orphan that must be completed or deleted. An orphan is a custom resource whose operation is
//! not in the index.

use super::queue_entry::{QueueEntry, StoredState, WantedState};
use super::{COMPARE_INTERVAL, Queue};
use crate::clock;
use crate::persist::custom_resource_client::Revision;
use crate::persist::written_summary::WrittenSummary;
use ifo_api::live::Phase;
use jiff::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The time between the comparison that finds an orphan and the write that completes or deletes the
/// orphan. If the previous leader used another kube-apiserver, that kube-apiserver may have had
/// newer data about the subject. Then this leader detects the operation of the orphan a little
/// later, and the write is dropped.
pub(super) const ORPHAN_DELAY: Duration = Duration::from_secs(5);

/// The time from the first comparison to the second comparison. The previous leader may have sent a
/// creation just before it lost the Lease, and the first comparison can miss this custom resource.
/// The kube-apiserver ends each request after 60 s. So after 65 s, the creation has succeeded or
/// failed.
pub(super) const SECOND_COMPARE_DELAY: Duration = Duration::from_secs(65);

/// The fields of a listed custom resource that the comparison needs.
#[derive(Clone, Debug)]
pub(in crate::persist) struct ListedResource {
    pub name: Arc<str>,
    pub revision: Revision,
    pub summary: WrittenSummary,
    pub completed: Option<Timestamp>,
    /// The namespace of the subject, and the last time at which this namespace was known to exist.
    pub last_seen_in: Option<(String, Timestamp)>,
    /// True if this namespace was deleted after that time. A new namespace with the same name may
    /// exist.
    pub namespace_deleted: bool,
    /// The rule sets that detect the operation.
    pub rule_sets: Vec<String>,
}

impl Queue {
    /// Compares a complete list of the custom resources with the queue entries.
    pub fn process_list(&mut self, found: Vec<ListedResource>, now: Instant) {
        self.pace.record_success();
        let second = self
            .settled
            .iter()
            .map(|(since, _)| *since + SECOND_COMPARE_DELAY);
        let second = second.filter(|at| *at > now).min();
        self.compare_at = Some(second.unwrap_or(now + COMPARE_INTERVAL));
        let listed: HashSet<Arc<str>> = found.iter().map(|found| found.name.clone()).collect();
        // If the custom resource of a completed operation is missing, the garbage collector or
        // another client has deleted it. The custom resource is not created again, so the queue
        // entry does not change.
        for name in self.names(|name, queued| !listed.contains(name) && !queued.is_history()) {
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
                    // The custom resource has not changed since this server's last write, so the
                    // stored state in the queue entry is right. The summary in the list can differ
                    // from the stored state, because it includes labels of other clients.
                    StoredState::Present(_, revision, _) if *revision == found.revision => return,
                    StoredState::Present(_, _, at) => *at,
                    _ => None,
                };
                queued.stored = StoredState::Present(found.summary, found.revision, at);
            });
        }
    }

    /// Returns the wanted state of an orphan that must be completed or deleted. Returns None if the
    /// target of one of its rule sets is unread, because this rule set may still detect the
    /// operation.
    fn wanted_state_of_orphan(&self, found: &ListedResource) -> Option<WantedState> {
        if found.summary.phase == Phase::Completed || found.namespace_deleted {
            return Some(WantedState::Gone);
        }
        let (_, unread) = self.settled.as_ref()?;
        if found.rule_sets.iter().any(|name| unread.contains(name)) {
            return None;
        }
        let retain = self.settings.retain;
        Some(if retain {
            WantedState::Ended
        } else {
            WantedState::Gone
        })
    }

    /// Returns the names of the completed orphans that are retained: the newest orphans, as many as
    /// the settings allow.
    fn retained_orphans(&self, found: &[ListedResource]) -> HashSet<Arc<str>> {
        if !self.settings.retain {
            return HashSet::new();
        }
        let phases = self.entries.values().filter_map(QueueEntry::live_phase);
        let shown = phases.filter(|phase| *phase == Phase::Completed).count();
        let free_slots = self.settings.retain_max.saturating_sub(shown);
        let oldest = clock::now()
            .checked_sub(self.settings.retain_for)
            .unwrap_or(Timestamp::MIN);
        let mut orphans: Vec<(Timestamp, &Arc<str>)> = found
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
