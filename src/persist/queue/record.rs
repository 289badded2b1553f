//! One operation in the queue: what is wanted of it, what was written, and when the next
//! write of it is due.

use super::{Settings, Task};
use crate::api::live::Phase;
use crate::index::Entry;
use crate::persist::look::Look;
use crate::persist::pace;
use crate::persist::store::Failure;
use std::sync::Arc;
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
    /// Not to be written before this time.
    pub not_before: Option<Instant>,
    pub writing: bool,
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
    /// There never was a live object as long as this process runs. One that is kept is
    /// history.
    Orphan { keep: bool },
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
    /// When what is wanted is to be written, back-off left aside.
    pub fn plan(&self, settings: &Settings, settled: bool, draining: bool, now: Instant) -> Plan {
        match &self.wanted {
            Wanted::Live((_, look), since) => {
                if look.phase == Phase::Completed && !settings.retain {
                    // It is deleted right after it; that takes the place of this write.
                    return Plan::Rest;
                }
                let Some(written) = &self.written else {
                    return Plan::At(now);
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
            Wanted::Orphan { keep: true } => Plan::Rest,
            // Whoever starts next will see them too.
            Wanted::Orphan { keep: false } if !settled || draining => Plan::Rest,
            Wanted::Gone | Wanted::Orphan { keep: false } => Plan::At(now),
        }
    }

    /// What to do when it is due.
    pub fn task(&self, retain: bool) -> Task {
        match &self.wanted {
            Wanted::Live((entry, look), _) => Task::Apply {
                entry: entry.clone(),
                look: *look,
                uid: self.written.as_ref().and_then(|written| written.uid),
            },
            Wanted::Orphan { .. } if retain && self.is_active() => Task::End,
            Wanted::Gone | Wanted::Orphan { .. } => Task::Delete,
        }
    }

    /// It is written, and this is there now.
    pub fn succeeded(&mut self, written: Option<Written>) {
        if written.is_none() && matches!(self.wanted, Wanted::Orphan { .. }) {
            self.wanted = Wanted::Gone;
        }
        self.written = written;
        self.doubtful = false;
        self.failures = 0;
        self.not_before = None;
        self.since = None;
    }

    /// It is not, or nobody knows.
    pub fn failed(&mut self, failure: &Failure, now: Instant) {
        match failure {
            // Deleted by somebody, and perhaps made anew.
            Failure::Conflict(_) => self.written = None,
            Failure::Unreachable(..) => self.doubtful = true,
            // These are about all of them: the queue as a whole waits.
            Failure::Throttled(_) | Failure::Missing => return,
            Failure::Forbidden(_) | Failure::Invalid(_) => {}
        }
        self.not_before = Some(now + pace::delay(self.failures, pace::MAX_OBJECT));
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

    fn is_active(&self) -> bool {
        let written = self.written.as_ref();
        written.is_some_and(|written| written.look.phase == Phase::Active)
    }
}
