//! The leader election.
//!
//! Input: the Lease, and the version up to which this replica has mirrored. Output: the
//! [`LeaderView`] of this replica.
//!
//! | the Lease | who may take it, and when |
//! | --- | --- |
//! | is held by this Pod, which does not lead, and was renewed within its duration | this Pod, at once |
//! | was released | a replica that has the final version, at once; any replica after the precedence |
//! | has not changed for its duration | a replica in sync with the last term, at once; any replica after the precedence |
//! | was never held | any replica, one duration after it saw that |
//!
//! The precedence is 10 s if the last leader was mirrored, and otherwise three retry periods.
//!
//! Each write is a PUT with the resourceVersion that was read, so only one replica can acquire the
//! Lease.
//!
//! All decisions compare times of the boot clock. The timers use tokio's clock, which stops while a
//! virtual machine is paused. So a timer can fire late, but the comparison after it is right.

mod announce;
mod decision;
mod lease_knowledge;
mod wait;

use self::decision::ElectionDecision;
use self::lease_knowledge::{RESERVED_AHEAD, SeenLease, micros, wall};
use self::wait::ElectionEvent;
use super::leadership::LeadershipGrant;
use super::record::LeaseRecord;
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

/// Interval at which the Lease is read after an event, for one retry period. The event can arrive
/// before the Lease has changed.
const WAKE_INTERVAL: Duration = Duration::from_millis(100);

/// Number of consecutive conflicts after which the request is still repeated at once. Each conflict
/// means that another client wrote the Lease, and replicas do not write it that often.
const MAX_FAST_CONFLICTS: usize = 5;

/// The facts about this replica that the election needs.
pub struct Replica {
    /// The UID of its Pod. None outside a Pod.
    pub pod: Option<String>,
    /// `HOST:PORT` at which the other replicas reach it.
    pub address: String,
    /// True if another replica mirrors this one.
    pub is_mirrored: Arc<dyn Fn() -> bool + Send + Sync>,
    /// The version of its index. Zero if the index was never filled.
    pub head: Arc<dyn Fn() -> Rv + Send + Sync>,
    /// The term with which its mirror is in sync.
    pub in_sync: watch::Receiver<Option<Term>>,
    /// True if this replica may be the first holder of a Lease that was never held. False while a
    /// server of a release without a Lease is running, or while its operations are not loaded yet.
    pub may_begin: watch::Receiver<bool>,
    /// Makes the election read the Lease immediately. Notified when the stream from the leader
    /// ends.
    pub wake: Arc<Notify>,
    /// Receives the times at which the kube-apiserver has answered or failed to answer.
    pub answers: watch::Sender<ClusterContact>,
}

/// Takes part in the election of the leader.
pub struct Election<S> {
    store: S,
    timing: Timing,
    replica: Replica,
    metrics: Arc<Metrics>,
    random: fastrand::Rng,
    /// The prefix of the term names of this replica.
    prefix: String,
    /// The Lease as it was last read or written. None if it does not exist.
    seen: Option<SeenLease>,
    /// True if the Lease was ever read.
    has_read: bool,
    /// The last known leader.
    last: Option<Leader>,
    /// The highest reservation that this process has seen, and the time at which it was seen.
    floor: Option<(Rv, BootTime)>,
    /// The leadership of this replica.
    leading: Option<OwnLeadership>,
    /// The last term of this process.
    led: Option<Term>,
    /// False if another holder was seen. If the Lease then names this Pod as the holder again, it
    /// was restored from a backup, and another replica may lead.
    may_be_ours: bool,
    /// The final version, if this replica has released the Lease or must not lead any more.
    retired: Option<Rv>,
    /// Until this time, the Lease is read more often.
    hurry: BootTime,
    /// The problem that was logged last, while it lasts.
    problem: Option<String>,
    /// The reason to wait that was logged last.
    waits: Option<&'static str>,
}

/// The leadership of this replica.
struct OwnLeadership {
    leader: Leader,
    leadership: Leadership,
    grant: watch::Sender<LeadershipGrant>,
    acquired: Acquired,
}

/// The parts that stay the same during a term.
#[derive(Clone, Copy)]
struct Acquired {
    start: Rv,
    at: Timestamp,
    /// The boot clock at that time. The versions of a term follow the boot clock, because the wall
    /// clock can be set.
    boot: BootTime,
    transitions: i32,
}

impl<S: LeaseStore> Election<S> {
    /// Creates an election with the Lease in `store`.
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
            floor: None,
            leading: None,
            led: None,
            may_be_ours: true,
            retired: None,
            hurry: clock::boot(),
            problem: None,
            waits: None,
        }
    }

    /// Takes part in the election until the future is dropped. Never ends.
    ///
    /// `release` gives up the leadership. It contains the last version that was issued. After that,
    /// this replica only observes the Lease and never leads again.
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
                ElectionEvent::Woken => self.hurry = clock::boot() + self.timing.retry_period,
                ElectionEvent::Release(version) => {
                    self.lose("it releases the Lease");
                    self.retired = Some(version);
                    self.publish(&standing);
                }
            }
        }
    }

    /// Performs one turn: renews the Lease, or reads it and acquires it if this replica may.
    /// Returns the time of the next turn.
    async fn turn(&mut self) -> Duration {
        let problem = match self.attempt().await {
            Ok(pause) => {
                self.report(None);
                return pause;
            }
            Err(problem) => problem,
        };
        self.report(Some(problem));
        // The timer fires when the leadership ends, so the loss is noticed at once.
        let until = self.leading.as_ref().map(|it| it.grant.borrow().until);
        let left = until.map_or(Duration::MAX, |until| until.since(clock::boot()));
        left.min(self.timing.retry_period)
    }

    /// Does the work of [`Self::turn`]. The error is a text for the log.
    async fn attempt(&mut self) -> Result<Duration, String> {
        let begun = clock::boot();
        // The leader has written the Lease itself, so it need not read it.
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
                    self.lose(reason);
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
                // The write succeeded, or another client was faster.
                _ => {}
            }
        }
        Ok(self.timing.retry_period)
    }

    /// Returns the time that a replica without leadership waits before it reads the Lease again.
    fn pause(&mut self, until: Option<BootTime>, reason: &'static str) -> Duration {
        if self.waits.replace(reason) != Some(reason) {
            // Usually the Lease has a holder, and every follower waits for this time.
            if self.seen.as_ref().is_some_and(|seen| seen.record.is_held) {
                tracing::debug!("{reason}");
            } else {
                tracing::info!("{reason}");
            }
        }
        let is_hurried = clock::boot() < self.hurry;
        let period = if is_hurried {
            WAKE_INTERVAL
        } else {
            self.timing.retry_period
        };
        let left = until.map(|until| until.since(clock::boot()));
        left.map_or(period, |left| left.min(period))
    }

    /// Renews the Lease of this replica.
    async fn renew(&mut self) -> Result<(), LeaseError> {
        let Some(leading) = &self.leading else {
            return Ok(());
        };
        let (leader, acquired) = (leading.leader.clone(), leading.acquired);
        let before = *leading.grant.borrow();
        let sent = clock::boot();
        let reserved = self.reservation(&acquired).max(before.reserved);
        let within = before.until.since(sent);
        self.hold(&leader, &acquired, reserved, within).await?;
        self.metrics.lease_renewed(clock::boot().since(sent));
        // The leadership ended before the answer arrived. The next turn handles the loss.
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
    fn lose(&mut self, reason: &str) {
        let Some(leading) = self.leading.take() else {
            return;
        };
        leading.grant.send_modify(|grant| grant.lost = true);
        tracing::info!(term = %leading.leader.term, "this replica does not lead any more: {reason}");
        self.last = Some(leading.leader);
    }

    /// Creates a Lease without a holder. It contains the highest reservation that this process
    /// knows, for replicas that have never seen the deleted Lease.
    async fn create(&mut self) -> Result<(), LeaseError> {
        let record = LeaseRecord {
            last: self.last.clone(),
            reserved: self.floor(),
            duration: self.timing.lease_duration,
            ..LeaseRecord::default()
        };
        self.write(&record, self.limit()).await
    }

    async fn release(&mut self, version: Rv) -> Result<(), LeaseError> {
        let Some(seen) = &self.seen else {
            return Ok(());
        };
        let record = LeaseRecord {
            is_held: false,
            final_version: Some(version),
            // client-go does the same.
            duration: Duration::from_secs(1),
            acquired: None,
            ..seen.record.clone()
        };
        self.write(&record, self.limit()).await?;
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
        let mut highest = self.floor().unwrap_or(Rv(0)).max(head).max(wall());
        if seen.record.reserved.is_none() {
            // The Lease is new or was edited by a user. A reservation can exist that no replica
            // remembers. If the clocks agree, it is at most this far ahead.
            highest = highest.max(Rv(wall().0.saturating_add(micros(RESERVED_AHEAD))));
        }
        let acquired = Acquired {
            start: Rv(highest.0.saturating_add(1)),
            at: clock::now(),
            boot,
            transitions: seen.record.transitions.saturating_add(1),
        };
        let reserved = self.reservation(&acquired);
        // The write can succeed even if its answer is lost.
        self.may_be_ours = true;
        self.hold(&leader, &acquired, reserved, self.limit())
            .await?;
        let until = boot + self.timing.renew_deadline;
        self.led = Some(term.clone());
        if clock::boot() >= until {
            return Ok(());
        }
        let grant = LeadershipGrant {
            reserved,
            until,
            lost: false,
        };
        let (grant, leadership) = Leadership::new(term.clone(), acquired.start, grant);
        let others = before.filter(|before| !self.is_own(&before.term));
        if let Some(before) = &others {
            self.metrics.failed_over();
            tracing::info!(%term, start = %acquired.start, from = %before.term, "this replica leads");
        } else {
            tracing::info!(%term, start = %acquired.start, "this replica leads");
        }
        self.waits = None;
        self.leading = Some(OwnLeadership {
            leader,
            leadership,
            grant,
            acquired,
        });
        Ok(())
    }

    /// Writes the Lease with this replica as its holder.
    async fn hold(
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
        self.write(&record, within.min(self.limit())).await
    }
}
