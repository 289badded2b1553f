//! The leader election of the replicas (processes) of this server. The replica that holds the Lease
//! is the leader. The leader detects operations, such as migrations. All other replicas are
//! followers. A follower copies the leader's index (the operations in memory).
//!
//! Each replica runs this election. The leader renews the Lease once per retry period (1 s by
//! default). Each follower reads the Lease once per retry period.
//!
//! # When a replica acquires the Lease
//!
//! - **The leader's container has restarted.** The restarted replica has an empty index. It finds
//!   its own Pod as the last holder of the Lease, and a renewal that is less than one lease
//!   duration (8 s by default) old. If a follower has a copy of the operations, this follower
//!   acquires the Lease when the Lease expires. If no follower has a copy, the restarted replica
//!   acquires the Lease at once.
//! - **The leader has released the Lease**, because it shuts down. With the release, the leader
//!   writes its final version into the Lease. The final version is the last resourceVersion that
//!   the leader issued. A follower whose index has reached the final version acquires the Lease at
//!   once. Every other follower first waits for the additional time that is described below.
//! - **The leader has crashed.** The Lease does not change any more. After one lease duration, a
//!   follower that has copied the leader's index completely acquires the Lease. Every other
//!   follower also waits for the additional time.
//! - **There is no Lease**, because no replica has led yet, or because a user has deleted it. One
//!   replica creates the Lease. A replica that has led, or has completely copied a leader's index,
//!   waits for one lease duration after it noticed that there is no Lease. Every other replica also
//!   waits for the additional time. If the kube-apiserver does not answer for some seconds, the
//!   wait begins again, because another replica may have led in these seconds. A leader creates a
//!   deleted Lease again with its next renewal.
//!
//! During the additional time, a follower that has all changes of the last leader can acquire the
//! Lease first. The leader records in the Lease whether a follower is copying its index. If so, the
//! additional time is 10 s, and otherwise three retry periods.
//!
//! # Why two leaders never issue the same resourceVersion
//!
//! A resourceVersion of this server is a time in microseconds. With each write of the Lease, the
//! leader reserves resourceVersions: it writes the highest resourceVersion that it may issue before
//! the next write. The next leader starts above the reserved resourceVersions. So even a leader
//! that was paused for hours cannot issue a resourceVersion of the next leader.
//!
//! If a user edits, deletes or restores the Lease, the next leader may not know what the last
//! leader has reserved. But the reserved resourceVersions are usually at most 15 s ahead of the
//! last leader's clock. So each leader also starts at least 15 s ahead of its own clock.
//!
//! Each write of an existing Lease is a PUT with the `metadata.resourceVersion` that the replica
//! last read or wrote. So of two concurrent writes, the kube-apiserver refuses one as a conflict.
//!
//! # Clocks
//!
//! The election measures elapsed time with the boot clock, which also runs while a virtual machine
//! is paused. There is one exception: after a restart, the age of the last renewal comes from the
//! wall clock. Timers use tokio's clock, which stands still while a virtual machine is paused. So a
//! timer can fire late, but the decision after the timer uses the right time.

mod decision;
mod lease_requests;

use self::decision::ElectionDecision;
use self::lease_requests::SeenLease;
use super::leases::Leases;
use super::{Leadership, ReplicaRole, ReplicaStatus, Term};
use crate::clock;
use crate::clock::BootTime;
use crate::config::Timing;
use crate::telemetry::{FailureLog, Metrics};
use ifo_client::error_text::chain;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A conflict is a write of the Lease that failed because another client has changed the Lease.
/// After each of the first conflicts in a row, up to this number, the election tries again at once.
/// After each further conflict, it waits for one retry period.
const MAX_FAST_CONFLICTS: usize = 4;

/// The settings of the election, and the parts of this replica with which it works.
pub struct ElectionInputs {
    /// Reads and writes the Lease.
    pub leases: Leases,
    /// The time settings.
    pub timing: Timing,
    /// The UID of the replica's Pod. None outside a Pod.
    pub pod: Option<String>,
    /// The `HOST:PORT` at which other replicas connect to this replica. Empty if there is none.
    pub address: String,
    /// The election publishes the role of this replica in this status. From this status, the
    /// election also learns how current the replica's index is.
    pub status: ReplicaStatus,
    /// The metrics of the server.
    pub metrics: Arc<Metrics>,
    /// Creates the names of terms.
    pub random: fastrand::Rng,
}

/// Takes part in the election of the leader.
pub struct Election {
    inputs: ElectionInputs,
    /// The first part of the names of this replica's terms: the UID of its Pod and `_`. Outside a
    /// Pod, a random number replaces the UID.
    prefix: String,
    /// The Lease as this process last read or wrote it. Before the first read, `seen` looks like a
    /// Lease that does not exist.
    seen: SeenLease,
    /// The number of conflicts since the last turn without a failure. After a conflict, each turn
    /// begins with a read of the Lease, until a turn succeeds.
    conflicts: usize,
    /// The leadership of this replica. None while this replica does not lead.
    leading: Option<OwnLeadership>,
    /// The last term in which this process acquired the Lease. None if there is no such term.
    last_own_term: Option<Term>,
    /// Logs problems with the Lease.
    problems: FailureLog,
}

/// The leadership of this replica.
#[derive(Clone)]
struct OwnLeadership {
    leadership: Leadership,
    /// The time of the acquisition on the wall clock.
    at: Timestamp,
    /// The time of the acquisition on the boot clock. For each later reservation, the election
    /// computes the current time as `at` plus the time that has passed on the boot clock. The
    /// election does not read the wall clock again, because an administrator can set it back.
    boot: BootTime,
    /// The number of times that any replica has acquired the Lease so far, including this
    /// acquisition.
    transitions: i32,
}

impl Election {
    /// Creates a participant in the election.
    pub fn new(mut inputs: ElectionInputs) -> Self {
        let pod = inputs.pod.clone();
        let pod = pod.unwrap_or_else(|| format!("{:016x}", inputs.random.u64(..)));
        Self {
            inputs,
            prefix: format!("{pod}_"),
            seen: SeenLease::unread(),
            conflicts: 0,
            leading: None,
            last_own_term: None,
            problems: FailureLog::new("the Lease can be read and written again"),
        }
    }

    /// Takes part in the election until the future is dropped. The future never completes.
    ///
    /// The election publishes the role of this replica in its [`ReplicaStatus`].
    ///
    /// When the status has a final version, this replica stops leading and releases the Lease.
    /// Afterwards, this replica only reads the Lease, and never leads again.
    pub async fn run(mut self) {
        let mut stops = self.inputs.status.final_version().subscribe();
        loop {
            let pause = self.turn().await;
            self.publish();
            // When `stops` receives a final version, this replica must release the Lease.
            let _ = timeout(pause, stops.changed()).await;
        }
    }

    /// Does one turn of the election. The leader renews the Lease. Any other replica reads the
    /// Lease, and acquires it if the rules at the top of this file allow this. Returns the time
    /// until the next turn.
    async fn turn(&mut self) -> Duration {
        let next = self.attempt().await;
        // The next turn ends an expired leadership. So if this replica leads, the next turn begins
        // when the leadership expires, or earlier.
        let left = next.min(self.leadership_end()).since(clock::boot());
        left.min(self.inputs.timing.retry_period)
    }

    /// Does the work of [`Self::turn`], and returns the latest time of the next turn.
    async fn attempt(&mut self) -> BootTime {
        let next = clock::boot() + self.inputs.timing.retry_period;
        // The leader knows the Lease from its last write, so it reads the Lease only after a
        // conflict. A conflict shows that another client has changed the Lease, or that the answer
        // to an earlier write was lost. An expired leadership ends without a read.
        let leading = self.leading.as_ref();
        let must_read = leading.is_none_or(|own| self.conflicts > 0 && own.leadership.is_valid());
        if must_read && let Err(error) = self.read().await {
            self.report(&Err(format!("cannot read the Lease: {}", chain(&error))));
            return BootTime::MAX;
        }
        let done = match self.decide(clock::boot()) {
            ElectionDecision::Renew(own) => self.hold(&own).await.map(|()| next),
            ElectionDecision::Acquire => self.acquire().await.map(|()| next),
            ElectionDecision::Release(version) => self.release(version).await.map(|()| next),
            ElectionDecision::StopLeading(reason) => {
                self.end_leadership(reason);
                return clock::boot();
            }
            ElectionDecision::Wait(until) => Ok(until),
        };
        match done {
            Ok(next) => {
                self.conflicts = 0;
                self.report(&Ok(()));
                next
            }
            // After many consecutive conflicts, the cause is probably not another client. For
            // example, each creation of the Lease fails with a 404 if the namespace is missing. So
            // the election then logs the error and waits.
            Err(error) if is_conflict(&error) && self.conflicts < MAX_FAST_CONFLICTS => {
                self.conflicts += 1;
                clock::boot()
            }
            Err(error) => {
                self.report(&Err(format!("cannot write the Lease: {}", chain(&error))));
                BootTime::MAX
            }
        }
    }

    /// Returns the time at which this replica's leadership ends if the Lease is not renewed again.
    /// Returns [`BootTime::MAX`] if this replica does not lead.
    fn leadership_end(&self) -> BootTime {
        let leading = self.leading.as_ref();
        leading.map_or(BootTime::MAX, |it| it.leadership.until())
    }

    /// Ends the leadership of this replica.
    fn end_leadership(&mut self, reason: &str) {
        if let Some(OwnLeadership { leadership, .. }) = self.leading.take() {
            leadership.end();
            tracing::info!(term = %leadership.term, "this replica does not lead any more: {reason}");
        }
    }

    /// Acquires the Lease for a new term.
    async fn acquire(&mut self) -> kube::Result<()> {
        let record = &self.seen.record;
        let last_leader = record.last();
        let transitions = record.spec.lease_transitions.unwrap_or(0).saturating_add(1);
        let start = self.first_version(record);
        let number = self.inputs.random.u64(..);
        let term = Term::from(format!("{}{number:016x}", self.prefix));
        let boot = clock::boot();
        let until = boot + self.inputs.timing.renew_deadline;
        let own = OwnLeadership {
            leadership: Leadership::new(term.clone(), start, start, until),
            at: clock::now(),
            boot,
            transitions,
        };
        self.hold(&own).await?;
        self.last_own_term = Some(term.clone());
        if !own.leadership.is_valid() {
            return Ok(());
        }
        let other_leader = last_leader.filter(|last| !self.is_own_term(&last.term));
        if other_leader.is_some() {
            self.inputs.metrics.series.failovers.inc();
        }
        let from = other_leader.map_or(String::new(), |other| other.term.to_string());
        tracing::info!(%term, %start, from, "this replica leads");
        self.leading = Some(own);
        Ok(())
    }

    /// Returns the role of this replica.
    fn role(&self) -> ReplicaRole {
        if let Some(leading) = &self.leading {
            return ReplicaRole::Leading(leading.leadership.clone());
        }
        let record = &self.seen.record;
        let is_held = record.holder().is_some() && !self.seen.has_expired;
        match record.last() {
            Some(last) if is_held && !self.is_own_term(&last.term) => ReplicaRole::Following(last),
            last => ReplicaRole::Vacant(last.zip(record.final_version())),
        }
    }

    /// Publishes the role of this replica, if it has changed.
    fn publish(&self) {
        let now = self.role();
        let is_leading = matches!(now, ReplicaRole::Leading(_));
        self.inputs.metrics.series.leader.set(is_leading.into());
        self.inputs.status.role().send_if_modified(|before| {
            let is_new = *before != now;
            if let ReplicaRole::Following(leader) = &now
                && is_new
            {
                tracing::info!(term = %leader.term, address = %leader.address, "this replica follows a leader");
            }
            *before = now;
            is_new
        });
    }

    /// Logs the result of a turn, if it is a new problem or the end of a problem.
    fn report(&mut self, result: &Result<(), String>) {
        if let Some(problem) = self.problems.record(result) {
            tracing::warn!("{problem}");
        }
    }
}

/// Returns true if a write had no effect, because another client has changed, created or deleted
/// the Lease.
fn is_conflict(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}
