//! One operation in the queue: what is wanted of it, what was written, and when the next
//! write of it is due.

use super::{Settings, Task, Unread};
use crate::index::Entry;
use crate::persist::look::Look;
use crate::persist::pace;
use crate::persist::store::Failure;
use ifo_api::live::Phase;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// See above.
#[derive(Debug, Default)]
pub(super) struct Record {
    pub wanted: Wanted,
    /// What is in the cluster, as far as is known.
    pub written: Option<Written>,
    /// Whether there may be one all the same, since a write was not answered.
    pub doubtful: bool,
    /// When the next write is, as the queue has it.
    pub due: Option<Instant>,
    /// Since when it should have been written.
    pub since: Option<Instant>,
    /// When something else was first wanted while it was being written: its place in line
    /// after that.
    pub changed: Option<Instant>,
    /// Not to be written before this time.
    pub not_before: Option<Instant>,
    pub writing: bool,
    /// Whether it was over before this process looked: if it is not in the cluster,
    /// somebody has removed it from there.
    pub restored: bool,
    /// How many writes of others had succeeded when it was first refused.
    pub refused_after: Option<u64>,
    /// Failures in a row.
    failures: u32,
}

#[derive(Debug, Default)]
pub(super) enum Wanted {
    /// What the index has, and since when it looks like this.
    Live((Arc<Entry>, Look), Instant),
    /// Nothing: the live object is gone.
    #[default]
    Gone,
    /// There never was a live object as long as this process runs.
    Orphan(Orphan),
}

/// A custom resource without a live object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Orphan {
    pub fate: Fate,
    /// When it started.
    pub started: Timestamp,
    /// Since when it was not detected any more, if it was settling.
    pub settling: Option<Timestamp>,
    /// The rule sets that may still detect it. It is let alone until their targets have
    /// been read.
    pub rule_sets: Box<[String]>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is history, and stays.
    Keep,
    /// It ended while nobody looked.
    End,
    /// Nobody is to see it any more.
    Delete,
}

#[derive(Clone, Debug)]
pub(super) struct Written {
    pub look: Look,
    pub uid: Option<Uuid>,
    /// When, if this process wrote it.
    pub at: Option<Instant>,
}

/// When to write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Never again: there is nothing, and nothing is wanted.
    Forget,
    /// Not as things are.
    Rest,
    /// Then, or at once.
    At(Instant),
}

impl Record {
    /// That of a custom resource without a live object, to be let alone for a while.
    pub fn orphan(orphan: Orphan, not_before: Instant) -> Self {
        Self {
            wanted: Wanted::Orphan(orphan),
            not_before: Some(not_before),
            ..Self::default()
        }
    }

    /// When what is wanted is to be written, back-off left aside.
    pub fn plan(
        &self,
        settings: &Settings,
        unread: Option<&Unread>,
        draining: bool,
        now: Instant,
    ) -> Plan {
        match &self.wanted {
            Wanted::Live((_, look), since) => {
                if look.phase == Phase::Completed && !settings.retain {
                    // It is deleted right after it; that takes the place of this write.
                    return Plan::Rest;
                }
                if look.phase == Phase::Active && unread.is_none() {
                    // Another server told of it. It may have ended since, and been written as
                    // such: nobody has looked yet.
                    return Plan::Rest;
                }
                let Some(written) = &self.written else {
                    let removed = self.restored && look.phase == Phase::Completed;
                    return if removed { Plan::Rest } else { Plan::At(now) };
                };
                if written.look == *look {
                    return Plan::Rest;
                }
                if draining || look.phase == Phase::Completed {
                    return Plan::At(now);
                }
                let last = written.at.map_or(now, |at| at + settings.resync);
                let settling = if look.settling {
                    *since + settings.settling
                } else {
                    now
                };
                Plan::At(last.max(settling))
            }
            Wanted::Gone if self.written.is_none() && !self.doubtful => Plan::Forget,
            Wanted::Gone => Plan::At(now),
            Wanted::Orphan(orphan) => {
                let may_come = |unread: &Unread| {
                    let mut rule_sets = orphan.rule_sets.iter();
                    rule_sets.any(|rule_set| unread.contains(rule_set))
                };
                // Whoever starts next will see them too.
                let rests = draining || orphan.fate == Fate::Keep;
                if rests || unread.is_none_or(may_come) {
                    Plan::Rest
                } else {
                    Plan::At(now)
                }
            }
        }
    }

    /// What to do when it is due. `doubled` is whether the operation is known under another
    /// name: then that one is its history.
    pub fn task(&self, doubled: bool) -> Task {
        let uid = self.written.as_ref().and_then(|written| written.uid);
        match &self.wanted {
            Wanted::Live((entry, look), _) => Task::Apply {
                entry: entry.clone(),
                look: *look,
                uid,
            },
            Wanted::Orphan(Orphan {
                fate: Fate::End, ..
            }) => Task::End { doubled },
            Wanted::Gone | Wanted::Orphan(_) => Task::Delete { uid },
        }
    }

    /// Something else is wanted.
    pub fn has_changed(&mut self, now: Instant) {
        if self.writing {
            self.changed.get_or_insert(now);
        }
    }

    /// It is written, and this is there now.
    pub fn succeeded(&mut self, written: Option<Written>) {
        if written.is_none() && matches!(self.wanted, Wanted::Orphan(_)) {
            self.wanted = Wanted::Gone;
        }
        self.written = written;
        self.doubtful = false;
        self.failures = 0;
        self.refused_after = None;
        self.not_before = None;
        self.since = None;
    }

    /// It is not, or nobody knows. It is tried again after at most `most`.
    pub fn failed(&mut self, failure: &Failure, most: Duration, now: Instant) {
        match failure {
            // Deleted by somebody, and perhaps made anew.
            Failure::Conflict(_) => {
                self.written = None;
                if matches!(&self.wanted, Wanted::Orphan(it) if it.fate == Fate::Delete) {
                    // What is there now is for the next comparison to find.
                    self.wanted = Wanted::Gone;
                }
            }
            Failure::Unreachable(..) => self.doubtful = true,
            // These are about all of them: the queue as a whole waits.
            Failure::Throttled(_) | Failure::Missing => return,
            Failure::Forbidden(_) | Failure::Invalid(_) => {}
        }
        self.not_before = Some(now + pace::delay(self.failures, most));
        self.failures = self.failures.saturating_add(1);
    }

    /// Whether the operation is over, still shown, and has been written as such.
    pub fn is_history(&self) -> bool {
        let Wanted::Live((_, look), _) = &self.wanted else {
            return false;
        };
        let written = self.written.as_ref();
        look.phase == Phase::Completed && written.is_some_and(|written| written.look == *look)
    }

    /// Whether it is to be deleted though it may not be there.
    pub fn is_doubtful_deletion(&self) -> bool {
        matches!(self.wanted, Wanted::Gone) && self.written.is_none()
    }
}
