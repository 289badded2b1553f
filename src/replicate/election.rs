//! The leader election: uses the Lease to decide whether this replica leads, and publishes the
//! result.
//!
//! The resourceVersions of operations are times in microseconds. With each renewal of the Lease,
//! the leader reserves the resourceVersions of the next seconds by writing the highest one into the
//! Lease.
//!
//! The leader renews the Lease once per retry period, and each other replica reads the Lease once
//! per retry period. A replica may acquire the Lease in these cases:
//!
//! - The Lease names this Pod as its holder, and was renewed within the lease duration. This
//!   happens when the container has restarted in its Pod. Usually the replica acquires the Lease at
//!   once.
//! - The Lease was released. The Lease then contains the final version: the last resourceVersion
//!   that the leader issued. A replica whose index has reached the final version acquires the Lease
//!   at once. Other replicas acquire the Lease after an additional wait.
//! - The Lease has not changed for one lease duration. A replica that has all changes of the last
//!   leader acquires the Lease at once. Other replicas acquire it after an additional wait.
//! - The Lease exists, but was never held. A replica acquires the Lease one lease duration after
//!   its first read of the Lease.
//!
//! During the additional wait, a replica that has all changes can acquire the Lease first. The wait
//! is 10 s if a follower copied the last leader's index, and otherwise three retry periods.
//!
//! Each write of the Lease is a PUT with the Lease's own resourceVersion from the last read. So if
//! two replicas write at the same time, only one PUT succeeds.
//!
//! All decisions compare times of the boot clock. The timers use tokio's clock, which stops while a
//! virtual machine is paused. So a timer can fire late, but the comparison after it is right.

mod decision;
mod lease_requests;
mod publish_role;
mod wait;

use self::decision::ElectionDecision;
use self::lease_requests::{RESERVED_AHEAD, SeenLease, clock_version, micros};
use self::wait::ElectionEvent;
use super::leadership::LeadershipGrant;
use super::lease_contents::LeaseRecord;
use super::view::ClusterContact;
use super::{Leader, LeaderView, Leadership, LeaseError, LeaseStore, Term, Timing};
use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use crate::telemetry::Metrics;
use jiff::Timestamp;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, oneshot, watch};

/// The time between two reads of the Lease in the first retry period after an
/// [`ElectionEvent::Woken`], such as the end of the stream of changes from the leader. This event
/// can arrive shortly before the Lease changes, so the Lease is read several times.
const WAKE_INTERVAL: Duration = Duration::from_millis(100);

/// The number of attempts to write the Lease in one turn. After a conflict with another client, the
/// Lease is read and written again at once. After this number of attempts, the next attempt comes
/// one retry period later.
const MAX_FAST_CONFLICTS: usize = 5;

/// What the election needs to know about this replica.
pub struct Replica {
    /// The UID of the replica's Pod. None outside a Pod.
    pub pod: Option<String>,
    /// The `HOST:PORT` at which other replicas connect to this one.
    pub address: String,
    /// Returns true if another replica copies this replica's index.
    pub is_mirrored: Arc<dyn Fn() -> bool + Send + Sync>,
    /// Returns the newest resourceVersion of this replica's index. Zero if the index was never
    /// filled.
    pub head: Arc<dyn Fn() -> Rv + Send + Sync>,
    /// The leadership term (the time for which one leader holds the Lease) whose changes are all in
    /// this replica's index. None if there is no such term.
    pub in_sync: watch::Receiver<Option<Term>>,
    /// True if this replica may take a Lease that was never held. False while a server of release
    /// 0.1.0, which uses no Lease, is running, and while its operations are not copied yet.
    pub may_begin: watch::Receiver<bool>,
    /// Makes the election read the Lease immediately. Another task notifies it when the stream of
    /// changes from the leader ends.
    pub wake: Arc<Notify>,
    /// Receives the times at which the kube-apiserver answered or failed to answer.
    pub answers: watch::Sender<ClusterContact>,
}

/// Takes part in the election of the leader.
pub struct Election<S> {
    store: S,
    timing: Timing,
    replica: Replica,
    metrics: Arc<Metrics>,
    random: fastrand::Rng,
    /// The first part of the names of this replica's terms: the UID of its Pod and `_`.
    prefix: String,
    /// The Lease as it was last read or written. None if the Lease does not exist.
    seen: Option<SeenLease>,
    /// True if a read of the Lease has succeeded, or has shown that no Lease exists.
    has_read: bool,
    /// The last known leader.
    last: Option<Leader>,
    /// The highest reserved resourceVersion that this process has read in the Lease, and the time
    /// at which this process read it.
    seen_reservation: Option<(Rv, BootTime)>,
    /// The leadership of this replica. None while it does not lead.
    leading: Option<OwnLeadership>,
    /// The last term in which this process acquired the Lease.
    last_own_term: Option<Term>,
    /// False after this process has read a Lease with another holder. If a later read shows this
    /// Pod as the holder, the Lease was restored from a backup. Then another replica may lead, so
    /// this replica must not acquire the Lease at once.
    may_be_ours: bool,
    /// The last resourceVersion that this replica issued. It is set when this replica must release
    /// the Lease. From then on, this replica never leads again.
    own_final_version: Option<Rv>,
    /// Until this time, the Lease is read once per [`WAKE_INTERVAL`].
    read_often_until: BootTime,
    /// The problem in the last log line about a problem. None after the problem is over.
    logged_problem: Option<String>,
    /// The reason in the last log line about waiting.
    logged_wait: Option<&'static str>,
}

/// The leadership of this replica.
struct OwnLeadership {
    leader: Leader,
    leadership: Leadership,
    grant: watch::Sender<LeadershipGrant>,
    acquired: Acquired,
}

/// The values that stay the same during a leadership term.
#[derive(Clone, Copy)]
struct Acquired {
    /// The first resourceVersion of the term.
    start: Rv,
    /// The time of the acquisition on the wall clock.
    at: Timestamp,
    /// The time of the acquisition on the boot clock. Reservations later in the term are computed
    /// from the time since then on the boot clock, because a user can set the wall clock.
    boot: BootTime,
    /// How often the Lease was acquired so far, by any replica.
    transitions: i32,
}

impl<S: LeaseStore> Election<S> {
    /// Creates a participant in the election that uses the Lease in `store`.
    pub fn new(store: S, timing: Timing, replica: Replica, metrics: Arc<Metrics>) -> Self {
        Self::with_random(store, timing, replica, metrics, fastrand::Rng::new())
    }

    pub(super) fn with_random(
        store: S,
        timing: Timing,
        replica: Replica,
        metrics: Arc<Metrics>,
        mut random: fastrand::Rng,
    ) -> Self {
        let pod = replica.pod.clone();
        let pod = pod.unwrap_or_else(|| format!("{:016x}", random.u64(..)));
        Self {
            store,
            timing,
            replica,
            metrics,
            random,
            prefix: format!("{pod}_"),
            seen: None,
            has_read: false,
            last: None,
            seen_reservation: None,
            leading: None,
            last_own_term: None,
            may_be_ours: true,
            own_final_version: None,
            read_often_until: clock::boot(),
            logged_problem: None,
            logged_wait: None,
        }
    }

    /// Takes part in the election until the future is dropped. The future never completes.
    ///
    /// The role of this replica is sent to `standing`. A message on `release` ends the leadership.
    /// The message contains the last resourceVersion that this replica issued. This replica then
    /// releases the Lease. Afterwards it only reads the Lease, and never leads again.
    pub async fn run(
        mut self,
        standing: watch::Sender<LeaderView>,
        release: oneshot::Receiver<Rv>,
    ) {
        let mut release = Some(release);
        loop {
            let pause = self.turn().await;
            self.publish(&standing);
            match self.wait(pause, &mut release).await {
                ElectionEvent::Timer => {}
                ElectionEvent::Woken => {
                    self.read_often_until = clock::boot() + self.timing.retry_period;
                }
                ElectionEvent::Release(version) => {
                    self.end_leadership("it releases the Lease");
                    self.own_final_version = Some(version);
                    self.publish(&standing);
                }
            }
        }
    }

    /// Renews the Lease if this replica leads. Otherwise reads the Lease, and acquires it if the
    /// rules at the top of this file allow this. Returns the time until the next turn.
    async fn turn(&mut self) -> Duration {
        let problem = match self.attempt().await {
            Ok(pause) => {
                self.report_problem(None);
                return pause;
            }
            Err(problem) => problem,
        };
        self.report_problem(Some(problem));
        // The next turn comes at the latest when the leadership expires, so that this replica stops
        // leading in time.
        let until = self.leading.as_ref().map(|it| it.grant.borrow().until);
        let left = until.map_or(Duration::MAX, |until| until.since(clock::boot()));
        left.min(self.timing.retry_period)
    }

    /// Does the work of [`Self::turn`]. An error is a text for the log.
    async fn attempt(&mut self) -> Result<Duration, String> {
        let begun = clock::boot();
        // The leader does not read the Lease, because it knows the Lease from its last write.
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
                ElectionDecision::Lose(reason) => {
                    self.end_leadership(reason);
                    return Ok(Duration::ZERO);
                }
                ElectionDecision::Wait(until, reason) => return Ok(self.pause(until, reason)),
            };
            match written {
                Ok(()) if self.leading.is_some() => {
                    let took = clock::boot().since(begun);
                    return Ok(self.timing.retry_period.saturating_sub(took));
                }
                Err(error @ (LeaseError::Refused(_) | LeaseError::Unanswered(_))) => {
                    return Err(format!("cannot write the Lease: {error}"));
                }
                // Either the write succeeded, but this replica does not lead, for example because
                // it released the Lease. Or the write failed, because another client has changed
                // the Lease. In both cases, the Lease is read again.
                _ => {}
            }
        }
        Ok(self.timing.retry_period)
    }

    /// Returns the time until a replica that does not lead reads the Lease again.
    fn pause(&mut self, until: Option<BootTime>, reason: &'static str) -> Duration {
        if self.logged_wait.replace(reason) != Some(reason) {
            // If the Lease has a holder, waiting is the normal state of a follower. So the log line
            // has the level debug.
            if self.seen.as_ref().is_some_and(|seen| seen.record.is_held) {
                tracing::debug!("{reason}");
            } else {
                tracing::info!("{reason}");
            }
        }
        let is_hurried = clock::boot() < self.read_often_until;
        let period = if is_hurried {
            WAKE_INTERVAL
        } else {
            self.timing.retry_period
        };
        let left = until.map(|until| until.since(clock::boot()));
        left.map_or(period, |left| left.min(period))
    }

    /// Renews the Lease, which this replica holds.
    async fn renew(&mut self) -> Result<(), LeaseError> {
        let Some(leading) = &self.leading else {
            return Ok(());
        };
        let (leader, acquired) = (leading.leader.clone(), leading.acquired);
        let before = *leading.grant.borrow();
        let sent = clock::boot();
        let reserved = self.reservation(&acquired).max(before.reserved);
        let within = before.until.since(sent);
        self.write_as_holder(&leader, &acquired, reserved, within)
            .await?;
        self.metrics.lease_renewed(clock::boot().since(sent));
        // If the leadership expired before the answer arrived, the renewal must not extend it. The
        // next turn then ends the leadership.
        if clock::boot() < before.until
            && let Some(leading) = &self.leading
        {
            leading.grant.send_replace(LeadershipGrant {
                reserved,
                until: sent + self.timing.renew_deadline,
                lost: false,
            });
        }
        Ok(())
    }

    /// Ends the leadership of this replica.
    fn end_leadership(&mut self, reason: &str) {
        let Some(leading) = self.leading.take() else {
            return;
        };
        leading.grant.send_modify(|grant| grant.lost = true);
        tracing::info!(term = %leading.leader.term, "this replica does not lead any more: {reason}");
        self.last = Some(leading.leader);
    }

    /// Creates a Lease without a holder. The new Lease contains the highest reservation that this
    /// process knows. If a user has deleted an earlier Lease, other replicas may never have read
    /// that reservation.
    async fn create(&mut self) -> Result<(), LeaseError> {
        let record = LeaseRecord {
            last: self.last.clone(),
            reserved: self.reservation_floor(),
            duration: self.timing.lease_duration,
            ..LeaseRecord::default()
        };
        self.write(&record, self.request_timeout()).await
    }

    /// Removes the holder from the Lease, and writes the final version into it.
    async fn release(&mut self, version: Rv) -> Result<(), LeaseError> {
        let Some(seen) = &self.seen else {
            return Ok(());
        };
        let record = LeaseRecord {
            is_held: false,
            final_version: Some(version),
            // client-go also writes a duration of one second when it releases a Lease.
            duration: Duration::from_secs(1),
            acquired: None,
            ..seen.record.clone()
        };
        self.write(&record, self.request_timeout()).await?;
        tracing::info!(%version, "the Lease was released");
        Ok(())
    }

    /// Acquires the Lease for a new term.
    async fn acquire(&mut self) -> Result<(), LeaseError> {
        let Some(seen) = &self.seen else {
            return Err(LeaseError::NotFound);
        };
        let before = seen.record.last.clone();
        let term = Term::new(&format!("{}{:016x}", self.prefix, self.random.u64(..)));
        let leader = Leader {
            term: term.clone(),
            address: self.replica.address.clone(),
        };
        let boot = clock::boot();
        let head = (self.replica.head)();
        let mut highest = self
            .reservation_floor()
            .unwrap_or(Rv(0))
            .max(head)
            .max(clock_version());
        if seen.record.reserved.is_none() {
            // The Lease contains no reservation, because it is new or a user has edited it. But the
            // last leader may have reserved resourceVersions that no replica knows. If the clocks
            // of the replicas agree, these resourceVersions are at most `RESERVED_AHEAD` ahead of
            // the clock of this replica.
            highest = highest.max(Rv(clock_version().0.saturating_add(micros(RESERVED_AHEAD))));
        }
        let acquired = Acquired {
            start: Rv(highest.0.saturating_add(1)),
            at: clock::now(),
            boot,
            transitions: seen.record.transitions.saturating_add(1),
        };
        let reserved = self.reservation(&acquired);
        // This is set before the write, because the write can succeed although its answer is lost.
        self.may_be_ours = true;
        self.write_as_holder(&leader, &acquired, reserved, self.request_timeout())
            .await?;
        let until = boot + self.timing.renew_deadline;
        self.last_own_term = Some(term.clone());
        if clock::boot() >= until {
            return Ok(());
        }
        let grant = LeadershipGrant {
            reserved,
            until,
            lost: false,
        };
        let (grant, leadership) = Leadership::new(term.clone(), acquired.start, grant);
        let others = before.filter(|before| !self.is_own_term(&before.term));
        if let Some(before) = &others {
            self.metrics.failed_over();
            tracing::info!(%term, start = %acquired.start, from = %before.term, "this replica leads");
        } else {
            tracing::info!(%term, start = %acquired.start, "this replica leads");
        }
        self.logged_wait = None;
        self.leading = Some(OwnLeadership {
            leader,
            leadership,
            grant,
            acquired,
        });
        Ok(())
    }

    /// Writes the Lease with this replica as the holder.
    async fn write_as_holder(
        &mut self,
        leader: &Leader,
        acquired: &Acquired,
        reserved: Rv,
        within: Duration,
    ) -> Result<(), LeaseError> {
        let record = LeaseRecord {
            last: Some(leader.clone()),
            is_held: true,
            reserved: Some(reserved),
            is_mirrored: (self.replica.is_mirrored)(),
            duration: self.timing.lease_duration,
            acquired: Some(acquired.at),
            transitions: acquired.transitions,
            ..LeaseRecord::default()
        };
        self.write(&record, within.min(self.request_timeout()))
            .await
    }
}
