//! Compares the custom resources with the records of the queue.
//!
//! Input: a list of the custom resources. Output: the stored state of each record, and a new record
//! for each orphan that must be completed or deleted. An orphan is a custom resource whose
//! operation is not in the index.

use super::record::{Record, StoredState, WantedState};
use super::{COMPARE_INTERVAL, Queue};
use crate::clock;
use crate::persist::store::Revision;
use crate::persist::written_summary::WrittenSummary;
use ifo_api::live::Phase;
use jiff::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Delay between the comparison that finds an orphan and the write for it. The previous leader may
/// have read the subject from a kube-apiserver that is ahead of the one that this leader reads.
/// Then this leader detects the same operation within the delay, and the orphan is not written.
pub(super) const ORPHAN_DELAY: Duration = Duration::from_secs(5);

/// Time from the first comparison, when all targets have been read, to the second one. The previous
/// leader may have sent a creation just before it lost the Lease. The kube-apiserver ends requests
/// after 60 s, so after 65 s the creation has succeeded or failed.
pub(super) const SECOND_COMPARE_DELAY: Duration = Duration::from_secs(65);

/// A custom resource in a list.
#[derive(Clone, Debug)]
pub(in crate::persist) struct ListedResource {
    pub name: Arc<str>,
    pub revision: Revision,
    pub summary: WrittenSummary,
    pub completed: Option<Timestamp>,
    /// The namespace of its subject, and the time at which the subject was last seen there.
    pub last_seen_in: Option<(String, Timestamp)>,
    /// True if that namespace was deleted. A new namespace of the same name may exist.
    pub namespace_deleted: bool,
    /// The rule sets that detect the operation.
    pub rule_sets: Vec<String>,
}

impl Queue {
    /// Processes a complete list: compares it with the records.
    pub fn compared(&mut self, found: Vec<ListedResource>, now: Instant) {
        self.pace.succeeded();
        let again = self
            .settled
            .iter()
            .map(|(since, _)| *since + SECOND_COMPARE_DELAY);
        let again = again.filter(|at| *at > now).min();
        self.compare_at = Some(again.unwrap_or(now + COMPARE_INTERVAL));
        let there: HashSet<Arc<str>> = found.iter().map(|found| found.name.clone()).collect();
        // Records of completed operations are left out: their custom resources are not created
        // again. They were deleted, for example by the garbage collector together with the subject.
        for name in self.names(|name, record| !there.contains(name) && !record.is_history()) {
            self.change(&name, now, |record| record.stored = StoredState::Absent);
        }
        let kept = self.kept(&found);
        self.has_undecided = false;
        for found in found {
            let mut orphan = None;
            if !self.records.contains_key(&found.name) {
                if kept.contains(&found.name) {
                    continue;
                }
                orphan = self.orphan(&found);
                if orphan.is_none() {
                    self.has_undecided = true;
                    continue;
                }
            }
            self.change(&found.name, now, |record| {
                if let Some(orphan) = orphan {
                    record.wanted = orphan;
                    record.not_before = Some(now + ORPHAN_DELAY);
                }
                let at = match &record.stored {
                    // The custom resource has not changed since the server's last write, so the
                    // stored state in the record is right. The summary of the listed object can
                    // differ from it: it includes labels of other clients, which a write keeps.
                    StoredState::Present(_, revision, _) if *revision == found.revision => return,
                    StoredState::Present(_, _, at) => *at,
                    _ => None,
                };
                record.stored = StoredState::Present(found.summary, found.revision, at);
            });
        }
    }

    /// Returns the wanted state of an orphan that is not kept. None if a rule set may still detect
    /// it.
    fn orphan(&self, found: &ListedResource) -> Option<WantedState> {
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

    /// Returns the completed orphans that the retention settings keep, the newest ones.
    fn kept(&self, found: &[ListedResource]) -> HashSet<Arc<str>> {
        if !self.settings.retain {
            return HashSet::new();
        }
        let phases = self.records.values().filter_map(Record::live_phase);
        let shown = phases.filter(|phase| *phase == Phase::Completed).count();
        let room = self.settings.retain_max.saturating_sub(shown);
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
        orphans.truncate(room);
        orphans.into_iter().map(|(_, name)| name.clone()).collect()
    }
}
