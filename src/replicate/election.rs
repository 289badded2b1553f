//! The leader election of the replicas (processes) of this server. The replica that holds the Lease
//! is the leader. The leader detects operations, such as migrations. All other replicas are
//! followers. A follower copies the leader's index (the operations in memory).
//!
//! Each replica runs this election. The leader renews the Lease once per retry period (1 s by
//! default). Each follower reads the Lease once per retry period.
//!
//! # When a replica acquires the Lease
//!
//! - **The leader's container has restarted.** The Lease still names the leader's Pod as the
//!   holder, and the last renewal is less than one lease duration (8 s by default) old. The index
//!   of the restarted replica is empty. If a follower has a copy of the operations, this follower
//!   acquires the Lease when the Lease expires. If no follower has a copy, the restarted replica
//!   acquires the Lease at once.
//! - **The leader has released the Lease**, because it shuts down. With the release, the leader
//!   writes its final version into the Lease. The final version is the last resourceVersion that
//!   the leader issued. A follower whose index has reached the final version acquires the Lease at
//!   once. Every other follower first waits for the additional time that is described below.
//! - **The leader has crashed.** The Lease does not change any more. After one lease duration, a
//!   follower that has copied the leader's index completely acquires the Lease. Every other
//!   follower also waits for the additional time.
//! - **No replica has led yet.** The first replica creates a Lease without a holder. A replica
//!   acquires this Lease one lease duration after this replica first read the Lease.
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
//! Each write of an existing Lease is a PUT with the `metadata.resourceVersion` that the replica last
//! read or wrote. So of two concurrent writes, the kube-apiserver refuses one as a conflict.
//!
//! # Clocks
//!
//! The election measures elapsed time with the boot clock, which also runs while a virtual machine
//! is paused. There is one exception: after a restart, the age of the last renewal comes from the
//! wall clock. Timers use tokio's clock, which stands still while a virtual machine is paused. So a
//! timer can fire late, but the decision after the timer uses the right time.

mod decision;
mod lease_requests;
mod publish;

use self::decision::ElectionDecision;
use self::lease_requests::{RESERVED_AHEAD, SeenLease, clock_version, micros};
use super::leadership::LeadershipGrant;
use super::replica_status::ClusterContact;
use super::{Leader, Leadership, LeaseError, LeaseStore, ReplicaRole, Term, Timing};
use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use crate::telemetry::Metrics;
use futures::FutureExt as _;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};

/// The largest number of attempts to write the Lease without a pause. If another client has changed
/// the Lease, a write fails with a conflict. Then this replica reads and writes the Lease again at
/// once. After this number of attempts, this replica waits for one retry period.
const MAX_FAST_CONFLICTS: usize = 5;

/// The time between two reads of the Lease after the leader has released it, while this replica lacks
/// changes of the leader. This replica then acquires the Lease soon after it has copied the changes.
const RELEASED_PERIOD: Duration = Duration::from_millis(50);

/// The values that the election reads from the other tasks of this replica, and the channels
/// between the election and these tasks.
pub struct ElectionInputs {
    /// The UID of the replica's Pod. None outside a Pod.
    pub pod: Option<String>,
    /// The `HOST:PORT` at which other replicas connect to this replica.
    pub address: String,
    /// Returns true if another replica currently copies this replica's index.
    pub is_index_copied: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Returns the newest resourceVersion of this replica's index. Returns zero if the index was
    /// never filled.
    pub head: Arc<dyn Fn() -> Rv + Send + Sync>,
    /// The leadership term (the time for which one leader holds the Lease) of the last leader whose
    /// index this replica has copied completely. None if there is no such leader.
    pub in_sync: watch::Receiver<Option<Term>>,
    /// Makes the election read the Lease soon. The mirror (the task that copies the leader's index)
    /// calls `notify_one` when the stream of changes from the leader ends.
    pub wake: Arc<Notify>,
    /// The times at which the kube-apiserver answered requests for the Lease. The election writes
    /// these times.
    pub cluster_contact: watch::Sender<ClusterContact>,
}

/// Takes part in the election of the leader.
pub struct Election<S> {
    store: S,
    timing: Timing,
    inputs: ElectionInputs,
    metrics: Arc<Metrics>,
    random: fastrand::Rng,
    /// The first part of the names of this replica's terms: the UID of its Pod and `_`. Outside a
    /// Pod, a random number replaces the UID.
    prefix: String,
    /// The Lease as it was last read or written. None if the Lease does not exist.
    seen: Option<SeenLease>,
    /// True if a read of the Lease has succeeded, or has shown that no Lease exists.
    has_read: bool,
    /// The last known leader. None if this process has never seen a leader in the Lease.
    last_leader: Option<Leader>,
    /// A reserved resourceVersion from the Lease, and the time at which this process sent the
    /// request that returned the Lease. The election keeps the pair with the highest
    /// [`Election::reservation_floor`]. None if this process has seen no reservation.
    seen_reservation: Option<(Rv, BootTime)>,
    /// The leadership of this replica. None while this replica does not lead.
    leading: Option<OwnLeadership>,
    /// The last term in which this process acquired the Lease. None if there is no such term.
    last_own_term: Option<Term>,
    /// True if each holder that this process has read from the Lease is this Pod. Holders before
    /// the last acquisition by this process do not count.
    ///
    /// If the value is false and a read shows this Pod as the holder, an administrator has restored
    /// the Lease from a backup. The other holder may still lead.
    no_other_holder_seen: bool,
    /// The last resourceVersion that this replica issued. None until another task of this replica
    /// requests the release of the Lease. After this request, this replica never leads again.
    final_version_at_stop: Option<Rv>,
    /// The last problem with the Lease that the election logged. None if the problem is over.
    logged_problem: Option<String>,
}

/// The leadership of this replica.
struct OwnLeadership {
    leader: Leader,
    leadership: Leadership,
    grant: watch::Sender<LeadershipGrant>,
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

impl<S: LeaseStore> Election<S> {
    /// Creates a participant in the election that uses the Lease in `store`.
    pub fn new(store: S, timing: Timing, inputs: ElectionInputs, metrics: Arc<Metrics>) -> Self {
        Self::with_random(store, timing, inputs, metrics, fastrand::Rng::new())
    }

    pub(super) fn with_random(
        store: S,
        timing: Timing,
        inputs: ElectionInputs,
        metrics: Arc<Metrics>,
        mut random: fastrand::Rng,
    ) -> Self {
        let pod = inputs.pod.clone();
        let pod = pod.unwrap_or_else(|| format!("{:016x}", random.u64(..)));
        Self {
            store,
            timing,
            inputs,
            metrics,
            random,
            prefix: format!("{pod}_"),
            seen: None,
            has_read: false,
            last_leader: None,
            seen_reservation: None,
            leading: None,
            last_own_term: None,
            no_other_holder_seen: true,
            final_version_at_stop: None,
            logged_problem: None,
        }
    }

    /// Takes part in the election until the future is dropped. The future never completes.
    ///
    /// The election publishes the role of this replica on `role`.
    ///
    /// A message on `release` makes this replica stop leading and release the Lease. The message is
    /// the last resourceVersion that this replica issued. Afterwards, this replica only reads the
    /// Lease, and never leads again.
    pub async fn run(mut self, role: watch::Sender<ReplicaRole>, release: oneshot::Receiver<Rv>) {
        let mut release = release.fuse();
        loop {
            let pause = self.turn().await;
            self.publish(&role);
            if let Some(version) = self.wait(pause, &mut release).await {
                self.end_leadership("it releases the Lease");
                self.final_version_at_stop = Some(version);
                self.publish(&role);
            }
        }
    }

    /// Does one turn of the election. The leader renews the Lease. Any other replica reads the
    /// Lease, and acquires it if the rules at the top of this file allow this. Returns the time
    /// until the next turn.
    async fn turn(&mut self) -> Duration {
        let problem = match self.attempt().await {
            Ok(pause) => {
                self.report_problem(None);
                return pause;
            }
            Err(problem) => problem,
        };
        self.report_problem(Some(problem));
        // If this replica leads, the next turn must not be later than the end of the leadership.
        // Otherwise this replica would stop leading too late.
        let until = self.leading.as_ref().map(|it| it.grant.borrow().until);
        let left = until.map_or(Duration::MAX, |until| until.since(clock::boot()));
        left.min(self.timing.retry_period)
    }

    /// Does the work of [`Self::turn`], and returns the time until the next turn. An error is a
    /// text for the log.
    async fn attempt(&mut self) -> Result<Duration, String> {
        let begun = clock::boot();
        // The leader knows the Lease from its last write. So its first attempt writes without a
        // read.
        let mut is_known = self.leading.is_some();
        for _ in 0..MAX_FAST_CONFLICTS {
            if !std::mem::take(&mut is_known) {
                let read = self.read().await;
                read.map_err(|error| format!("cannot read the Lease: {error}"))?;
            }
            let written = match self.decide(clock::boot()) {
                ElectionDecision::Renew => self.renew().await,
                ElectionDecision::Create => self.create().await,
                ElectionDecision::Acquire => self.acquire().await,
                ElectionDecision::Release(version) => self.release(version).await,
                ElectionDecision::StopLeading(reason) => {
                    self.end_leadership(reason);
                    return Ok(Duration::ZERO);
                }
                ElectionDecision::Wait(until) => return Ok(self.pause(until)),
            };
            match written {
                Ok(()) if self.leading.is_some() => {
                    let took = clock::boot().since(begun);
                    return Ok(self.timing.retry_period.saturating_sub(took));
                }
                Err(error @ (LeaseError::Refused(_) | LeaseError::Unanswered(_))) => {
                    return Err(format!("cannot write the Lease: {error}"));
                }
                // In two cases, the loop reads the Lease again:
                // - The write failed, because another client has changed, created or deleted the
                //   Lease.
                // - The write succeeded, but this replica does not lead. For example, it has
                //   released the Lease.
                _ => {}
            }
        }
        Ok(self.timing.retry_period)
    }

    /// Returns the time until this replica, which does not lead, reads the Lease again. `until` is
    /// the time at which this replica may acquire the Lease, if this time is known.
    fn pause(&self, until: Option<BootTime>) -> Duration {
        let released = self.seen.as_ref().and_then(|it| it.record.final_version);
        let period = match released.filter(|_| self.final_version_at_stop.is_none()) {
            Some(_) => RELEASED_PERIOD,
            None => self.timing.retry_period,
        };
        until.map_or(period, |until| until.since(clock::boot()).min(period))
    }

    /// Renews the Lease, which this replica holds.
    async fn renew(&mut self) -> Result<(), LeaseError> {
        let Some(leading) = self.leading.take() else {
            return Ok(());
        };
        let before = *leading.grant.borrow();
        let sent = clock::boot();
        let reserved = self.reservation(&leading).max(before.reserved);
        let within = before.until.since(sent);
        let written = self.write_as_holder(&leading, reserved, within).await;
        // If the answer arrives after the leadership expired, the renewal must not extend the
        // leadership. The next turn ends the leadership.
        if written.is_ok() && clock::boot() < before.until {
            leading.grant.send_replace(LeadershipGrant {
                reserved,
                until: sent + self.timing.renew_deadline,
                lost: false,
            });
        }
        self.leading = Some(leading);
        written?;
        self.metrics.lease_renewed(clock::boot().since(sent));
        Ok(())
    }

    /// Ends the leadership of this replica.
    fn end_leadership(&mut self, reason: &str) {
        let Some(leading) = self.leading.take() else {
            return;
        };
        leading.grant.send_modify(|grant| grant.lost = true);
        tracing::info!(term = %leading.leader.term, "this replica does not lead any more: {reason}");
        self.last_leader = Some(leading.leader);
    }

    /// Acquires the Lease for a new term.
    async fn acquire(&mut self) -> Result<(), LeaseError> {
        let Some(seen) = &self.seen else {
            return Err(LeaseError::NotFound);
        };
        let last_leader = seen.record.last.clone();
        let term = Term::from(format!("{}{:016x}", self.prefix, self.random.u64(..)));
        let boot = clock::boot();
        let head = (self.inputs.head)();
        let mut highest = self
            .reservation_floor()
            .unwrap_or(Rv(0))
            .max(head)
            .max(clock_version());
        if seen.record.reserved.is_none() {
            // If the Lease is new or a user has edited it, it can lack a reservation. But the last
            // leader may have reserved resourceVersions that no replica knows any more. Usually,
            // these resourceVersions are at most `RESERVED_AHEAD` ahead of the last leader's clock.
            // So if the clocks of the replicas agree, the new term starts above these
            // resourceVersions.
            highest = highest.max(Rv(clock_version().0.saturating_add(micros(RESERVED_AHEAD))));
        }
        let start = Rv(highest.0.saturating_add(1));
        let until = boot + self.timing.renew_deadline;
        let grant = LeadershipGrant {
            reserved: start,
            until,
            lost: false,
        };
        let (grant, leadership) = Leadership::new(term.clone(), start, grant);
        let own = OwnLeadership {
            leader: Leader {
                term: term.clone(),
                address: self.inputs.address.clone(),
            },
            leadership,
            grant,
            at: clock::now(),
            boot,
            transitions: seen.record.transitions.saturating_add(1),
        };
        let reserved = self.reservation(&own);
        own.grant.send_modify(|grant| grant.reserved = reserved);
        // If the write succeeds but its answer is lost, this Pod holds the Lease, but
        // `write_as_holder` returns an error. So this flag is set before the write.
        self.no_other_holder_seen = true;
        self.write_as_holder(&own, reserved, self.request_timeout())
            .await?;
        self.last_own_term = Some(term.clone());
        if clock::boot() >= until {
            return Ok(());
        }
        let other_leader = last_leader.filter(|last| !self.is_own_term(&last.term));
        if other_leader.is_some() {
            self.metrics.failed_over();
        }
        let from = other_leader.map_or(String::new(), |other| other.term.to_string());
        tracing::info!(%term, %start, from, "this replica leads");
        self.leading = Some(own);
        Ok(())
    }
}
