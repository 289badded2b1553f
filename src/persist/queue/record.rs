//! One operation in the queue: its wanted state, the known state of its custom resource, and
//! when the next write is due.

use super::{AtStop, Done, Settings, Task, Unread};
use crate::index::Entry;
use crate::persist::look::Look;
use crate::persist::pace;
use crate::persist::store::{Failure, Revision};
use ifo_api::live::Phase;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// One operation, or one custom resource without an operation.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub wanted: Wanted,
    /// The custom resource in the cluster, as far as is known.
    pub stored: Stored,
    /// The time of the next job in the queue.
    pub due: Option<Instant>,
    /// Since when a write is due.
    pub since: Option<Instant>,
    /// When the wanted state first changed during the current job. This is its place in the
    /// queue afterwards.
    pub changed: Option<Instant>,
    /// Back-off: there is no job before this time.
    pub not_before: Option<Instant>,
    pub writing: bool,
    /// Whether the operation was completed long before this queue existed. If its custom
    /// resource is missing, somebody has deleted it.
    pub is_old: bool,
    /// How many writes of others had succeeded when it was first refused.
    pub refused_after: Option<u64>,
    /// Failures in a row.
    failures: u32,
}

#[derive(Debug, Default)]
pub(super) enum Wanted {
    /// The operation in the index, and since when it looks like this.
    Live((Arc<Entry>, Look), Instant),
    /// The live object was deleted: no custom resource is wanted.
    #[default]
    Gone,
    /// This queue has never had a live object for it.
    Orphan(Orphan),
}

/// A custom resource without a live object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    pub fate: Fate,
    /// The rule sets that may still detect it. It is left alone until their targets have been
    /// read.
    pub rule_sets: Box<[String]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is history and is kept.
    Keep,
    /// The operation ended unobserved: write its end.
    End,
    /// Delete it.
    Delete,
}

/// What is known of a custom resource.
#[derive(Clone, Debug, Default)]
pub(super) enum Stored {
    /// It does not exist.
    #[default]
    Absent,
    /// A write was not answered, or conflicted: it is read before the next write.
    Unknown,
    /// It exists.
    Present {
        look: Look,
        revision: Revision,
        /// When this queue wrote it last.
        at: Option<Instant>,
    },
}

/// When the next job is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Never: no custom resource exists and none is wanted.
    Forget,
    /// Not until something changes.
    Rest,
    /// At this time.
    At(Instant),
}

impl Record {
    /// Creates the record of an orphan that is left alone until `not_before`.
    pub fn orphan(orphan: Orphan, not_before: Instant) -> Self {
        Self {
            wanted: Wanted::Orphan(orphan),
            not_before: Some(not_before),
            ..Self::default()
        }
    }

    /// Decides when the next job is, without back-off.
    pub fn plan(
        &self,
        settings: &Settings,
        unread: Option<&Unread>,
        stopping: Option<AtStop>,
        now: Instant,
    ) -> Plan {
        match &self.wanted {
            Wanted::Live((_, look), since) => {
                if look.phase == Phase::Completed && !settings.retain {
                    // The live object is deleted next, and the custom resource with it.
                    return Plan::Rest;
                }
                if look.phase == Phase::Active && unread.is_none() {
                    // The operation was detected before a restart or by the previous leader.
                    // It may have ended since: its target has not been read yet.
                    return Plan::Rest;
                }
                let at = match &self.stored {
                    Stored::Absent if self.is_old && look.phase == Phase::Completed => {
                        return Plan::Rest;
                    }
                    Stored::Absent | Stored::Unknown => return Plan::At(now),
                    Stored::Present { look: stored, .. } if stored == look => return Plan::Rest,
                    Stored::Present { at, .. } => *at,
                };
                if stopping.is_some() || look.phase == Phase::Completed {
                    return Plan::At(now);
                }
                let last = at.map_or(now, |at| at + settings.resync);
                let settling = if look.settling {
                    *since + settings.settling
                } else {
                    now
                };
                Plan::At(last.max(settling))
            }
            Wanted::Gone if matches!(self.stored, Stored::Absent) => Plan::Forget,
            Wanted::Gone => Plan::At(now),
            Wanted::Orphan(orphan) => {
                let may_come = |unread: &Unread| {
                    let mut rule_sets = orphan.rule_sets.iter();
                    rule_sets.any(|rule_set| unread.contains(rule_set))
                };
                // The next process or the next leader finds the same orphans.
                let rests = stopping.is_some() || orphan.fate == Fate::Keep;
                if rests || unread.is_none_or(may_come) {
                    Plan::Rest
                } else {
                    Plan::At(now)
                }
            }
        }
    }

    /// The job that is due.
    pub fn task(&self) -> Task {
        match (&self.wanted, &self.stored) {
            (Wanted::Orphan(it), _) if it.fate == Fate::End => Task::End,
            (Wanted::Live((entry, look), _), Stored::Absent) => Task::Create {
                entry: entry.clone(),
                look: *look,
            },
            (
                Wanted::Live((entry, look), _),
                Stored::Present {
                    look: old,
                    revision,
                    ..
                },
            ) => Task::Change {
                entry: entry.clone(),
                look: *look,
                revision: revision.clone(),
                relabels: old.labels != look.labels,
            },
            (Wanted::Live((entry, _), _), Stored::Unknown) => Task::Read {
                entry: Some(entry.clone()),
            },
            (Wanted::Gone | Wanted::Orphan(_), Stored::Present { revision, .. }) => Task::Delete {
                revision: revision.clone(),
            },
            (Wanted::Gone | Wanted::Orphan(_), _) => Task::Read { entry: None },
        }
    }

    /// The wanted state has changed.
    pub fn has_changed(&mut self, now: Instant) {
        if self.writing {
            self.changed.get_or_insert(now);
        }
    }

    /// A job succeeded.
    pub fn succeeded(&mut self, done: &Done, now: Instant) {
        self.not_before = None;
        if let Wanted::Orphan(orphan) = &mut self.wanted {
            match done {
                Done::Written(..) => orphan.fate = Fate::Keep,
                // Somebody else has ended it.
                Done::Read(Some((look, _))) if look.phase == Phase::Completed => {
                    if orphan.fate == Fate::End {
                        orphan.fate = Fate::Keep;
                    }
                }
                Done::Read(Some(_)) => {}
                Done::Read(None) | Done::Deleted => self.wanted = Wanted::Gone,
            }
        }
        let (found, at) = match done {
            Done::Written(look, revision) => {
                self.failures = 0;
                self.refused_after = None;
                self.since = None;
                (Some((*look, revision)), Some(now))
            }
            Done::Read(found) => (found.as_ref().map(|(look, it)| (*look, it)), None),
            Done::Deleted => (None, None),
        };
        self.stored = found.map_or(Stored::Absent, |(look, revision)| Stored::Present {
            look,
            revision: revision.clone(),
            at,
        });
    }

    /// A job failed. It is tried again after at most `most`.
    pub fn failed(&mut self, failure: &Failure, most: Duration, now: Instant) {
        match failure {
            Failure::Gone | Failure::Conflict(_) | Failure::Unreachable(..) => {
                self.stored = Stored::Unknown
            }
            // These are about all writes: the queue as a whole waits.
            Failure::Throttled(_) | Failure::Missing => return,
            Failure::Forbidden(_) | Failure::Invalid(_) => {}
        }
        self.not_before = Some(now + pace::delay(self.failures, most));
        self.failures = self.failures.saturating_add(1);
    }

    /// Whether the operation is completed, still shown, and has been written as such.
    pub fn is_history(&self) -> bool {
        match (&self.wanted, &self.stored) {
            (Wanted::Live((_, look), _), Stored::Present { look: stored, .. }) => {
                look.phase == Phase::Completed && look == stored
            }
            _ => false,
        }
    }
}
