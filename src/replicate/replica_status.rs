//! The status of this replica (process of the server): its role, and how current its index is.
//! Request handlers read this status.
//!
//! The index has the operations in memory. One replica, the leader, detects operations. Each other
//! replica is a follower and copies the leader's index.
//!
//! A client that reads from a follower expects all changes that the leader had when the read
//! arrived. So the follower sends a state query to the leader, and the answer contains the leader's
//! newest resourceVersion. The follower waits until its own index has this resourceVersion, and
//! then answers the read. If this takes too long, the follower answers the read from its current
//! index.
//!
//! `queries.rs` sends the state queries of this replica. `peers.rs` answers the state queries of
//! other replicas.

mod peers;
mod queries;

use super::link::LinkError;
use super::{Leadership, ReplicaRole, Term};
use crate::index::{IndexReader, Rv};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The interval of state queries while no reads arrive. If a read arrives earlier, the follower
/// sends the next state query at once. If a query fails, the interval begins when
/// [`queries::NO_QUERY_PERIOD`] is over.
const QUERY_INTERVAL: Duration = Duration::from_secs(2);

/// The time limit of a state query. If the leader does not answer within this time, the follower
/// answers the waiting reads from its own index.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// After this number of consecutive unanswered state queries, the follower closes the connection to
/// the leader, and connects again.
const MAX_UNANSWERED_QUERIES: u32 = 3;

/// The time for which a read waits until this replica has the leader's newest resourceVersion.
/// After this time, this replica answers the read from its own index.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// If this replica's index can be further behind the leader's index than this time, this replica
/// adds a `Warning` header to lists and new watches.
const STALE_AFTER: Duration = Duration::from_secs(15);

/// If this replica has not reached the leader for this time, although its Lease has not expired,
/// this replica becomes unready. Clients then use another replica.
const UNREADY_WITHOUT_LEADER: Duration = Duration::from_secs(10);

/// If the kube-apiserver has not answered this replica for this time, but the leader still leads,
/// this replica becomes unready. Without the kube-apiserver, a replica cannot authenticate and
/// authorize new clients. If twice the renew deadline is longer than this time, twice the renew
/// deadline applies instead.
///
/// A leader that the kube-apiserver does not answer stops leading after the renew deadline (5 s by
/// default). While no replica leads, this replica stays ready, because no other replica serves
/// clients better.
const UNREADY_WITHOUT_ANSWER: Duration = Duration::from_secs(10);

/// The role of this replica, and how current its index is. The tasks of the replica share this
/// state. Clones share one state.
#[derive(Clone)]
pub struct ReplicaStatus(Arc<SharedReplicaStatus>);

struct SharedReplicaStatus {
    reader: IndexReader,
    role: watch::Sender<ReplicaRole>,
    in_sync: watch::Sender<Option<Term>>,
    final_version: watch::Sender<Option<Rv>>,
    /// Notified when a read waits for the next state query.
    query_wanted: Notify,
    /// The last answer of the leader. Before the first answer, a placeholder with the query number
    /// 0. None while this replica sends no state queries. Then reads do not wait.
    answer: watch::Sender<Option<LastAnswer>>,
    state: Mutex<TimedState>,
}

/// The number and the time of a state query, and the leader's newest resourceVersion in its answer.
#[derive(Clone, Copy)]
struct LastAnswer {
    query: u64,
    asked: Instant,
    head: Rv,
}

struct TimedState {
    /// The number of state queries that this replica has sent.
    queries: u64,
    /// This replica's index contains all changes that the leader had at this time.
    up_to_date_at: Instant,
    /// The start of the time limit [`UNREADY_WITHOUT_LEADER`]. Each of these events starts the time
    /// limit again:
    ///
    /// - The leader answers a state query.
    /// - This replica begins to follow a leader.
    /// - An attempt to connect to the leader fails, because our `APIService` is not registered.
    leader_reached_at: Instant,
    /// The reason why this replica does not copy the operations of the leader. None while this
    /// replica copies them, and before this replica has followed a leader.
    interruption: Option<LinkError>,
    /// The oldest answer whose resourceVersion this replica's index has not reached. Later answers
    /// do not replace this answer until the index has reached its resourceVersion.
    unreached: Option<LastAnswer>,
    /// The time of the last state query that this replica received from another replica. None if
    /// this replica has received no state query.
    last_peer_query: Option<Instant>,
    /// This replica becomes unready at this time, unless the kube-apiserver answers before.
    unready_at: Instant,
    /// The last leadership term in which this replica led. A leadership term is the time for which
    /// one leader holds the Lease. This replica sends the changes of this term to followers. The
    /// streams of changes to the followers end when the token is cancelled.
    ///
    /// None if this replica has not led yet, has stopped leading without releasing the Lease, or is
    /// shutting down.
    served: Option<(Term, CancellationToken)>,
}

impl ReplicaStatus {
    /// Creates the status of a replica with the index of `reader`. The role is vacant at first.
    pub fn new(reader: IndexReader) -> Self {
        let now = Instant::now();
        Self(Arc::new(SharedReplicaStatus {
            reader,
            role: watch::Sender::new(ReplicaRole::Vacant(None)),
            in_sync: watch::Sender::default(),
            final_version: watch::Sender::default(),
            query_wanted: Notify::new(),
            answer: watch::Sender::new(None),
            state: Mutex::new(TimedState {
                queries: 0,
                up_to_date_at: now,
                leader_reached_at: now,
                interruption: None,
                unreached: None,
                last_peer_query: None,
                unready_at: now + UNREADY_WITHOUT_ANSWER,
                served: None,
            }),
        }))
    }

    /// Creates the status of a server that always leads, for tests and benchmarks.
    pub fn alone(reader: IndexReader) -> Self {
        let alone = Leadership::alone(reader.head());
        let status = Self::new(reader);
        status.role().send_replace(ReplicaRole::Leading(alone));
        status
    }

    /// Returns the reader of the index.
    pub fn reader(&self) -> &IndexReader {
        &self.0.reader
    }

    /// Returns the role of this replica. The election publishes it.
    pub fn role(&self) -> &watch::Sender<ReplicaRole> {
        &self.0.role
    }

    /// Returns the channel with the term of the last leader whose index this replica has copied
    /// completely. A term is the time for which one leader holds the Lease. The value is None if
    /// there is no such leader.
    ///
    /// At the start of a connection, the leader sends its newest resourceVersion. When this
    /// replica's index has reached that resourceVersion, the task that copies the index sets this
    /// value.
    pub fn in_sync(&self) -> &watch::Sender<Option<Term>> {
        &self.0.in_sync
    }

    /// Returns the channel with the last resourceVersion that this replica issued. The value is
    /// None until this replica has stopped leading for good. When the value is set, the election
    /// releases the Lease.
    pub(super) fn final_version(&self) -> &watch::Sender<Option<Rv>> {
        &self.0.final_version
    }

    /// Waits until this replica has all changes that the leader had when this method was called.
    /// The caller has received a read from a client, and answers the read after the wait.
    ///
    /// Returns false in these cases, in which this replica may lack changes:
    ///
    /// - This replica neither leads nor follows a leader.
    /// - The leader does not answer a state query within 1 s, or did not answer the last one.
    /// - This replica is not connected to the leader.
    /// - This replica does not have the changes 3 s after the answer.
    pub async fn wait_until_current(&self) -> bool {
        if !self.is_following() {
            return self.leads();
        }
        let (sent, mut answer) = (self.state().queries, self.0.answer.subscribe());
        self.0.query_wanted.notify_one();
        // Only a query that was sent after the arrival of the read has a current answer.
        let is_new = |it: &Option<LastAnswer>| it.is_none_or(|it| it.query > sent);
        let answered = tokio::time::timeout(QUERY_TIMEOUT, answer.wait_for(is_new)).await;
        let Ok(Some(LastAnswer { head, .. })) = answered.map(|it| it.ok().and_then(|it| *it))
        else {
            return false;
        };
        let reader = &self.0.reader;
        reader.wait_until_reached(head, CATCH_UP_TIMEOUT).await
    }

    /// Locks and returns the state. First updates `up_to_date_at`. If the index has reached the
    /// resourceVersion of an answer, it contains all changes that the leader had when the query was
    /// sent.
    fn state(&self) -> MutexGuard<'_, TimedState> {
        let state = self.0.state.lock();
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if let Some(reached) = state
            .unreached
            .take_if(|it| it.head <= self.0.reader.head())
        {
            state.up_to_date_at = state.up_to_date_at.max(reached.asked);
        }
        state
    }

    /// Returns the number of state queries that this replica has sent.
    #[cfg(test)]
    pub fn queries(&self) -> u64 {
        self.state().queries
    }

    fn is_following(&self) -> bool {
        matches!(&*self.0.role.borrow(), ReplicaRole::Following(_))
    }

    /// Returns the longest time by which this replica's index can be behind the leader's index.
    /// Returns zero on the leader.
    pub fn lag(&self) -> Duration {
        let is_leading = self.leads();
        let mut state = self.state();
        if is_leading {
            state.up_to_date_at = Instant::now();
        }
        state.up_to_date_at.elapsed()
    }

    /// Returns true if this replica's index can be more than 15 s behind the leader's index. The
    /// index can then lack operations. Possible causes: no replica leads, or this replica does not
    /// reach the leader.
    pub fn is_stale(&self) -> bool {
        self.lag() > STALE_AFTER
    }

    /// Waits until [`ReplicaStatus::is_stale`] returns true. Checks this once per second.
    pub async fn until_stale(self) {
        while !self.is_stale() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }

    /// Returns the reason why this replica must become unready: this replica does not reach the
    /// leader, or the kube-apiserver does not answer this replica. Returns None if this replica can
    /// stay ready. If no replica leads, this replica stays ready, because no other replica serves
    /// clients better.
    pub fn impairment(&self) -> Option<&'static str> {
        let is_following = self.is_following();
        let state = self.state();
        let is_unregistered = state.interruption == Some(LinkError::NotRegistered);
        if !is_following || is_unregistered {
            return None;
        }
        let since_leader_reached = state.leader_reached_at.elapsed();
        if since_leader_reached > UNREADY_WITHOUT_LEADER {
            return Some("this replica has not reached the leader for 10 s");
        }
        // This replica sends a state query about every 2 s, and a leader with a valid Lease answers
        // within 1 s. If the last answer is older than 3 s, the leader may have stopped leading.
        let is_led = since_leader_reached < QUERY_INTERVAL + QUERY_TIMEOUT;
        let is_lost = state.unready_at < Instant::now();
        (is_led && is_lost).then_some("the kube-apiserver answers the leader, but not this replica")
    }

    /// Returns the reason why this replica is not ready, or does not copy the operations of the
    /// leader. Returns None if no reason is known.
    pub fn unready_reason(&self) -> Option<String> {
        let interruption = self.state().interruption.clone();
        let cause = interruption.filter(|_| self.is_following());
        let reasons = [
            self.impairment().map(str::to_owned),
            cause.map(|cause| cause.to_string()),
        ];
        let reasons: Vec<_> = reasons.into_iter().flatten().collect();
        (!reasons.is_empty()).then(|| reasons.join(": "))
    }

    /// Records that the kube-apiserver has answered a request of the election.
    pub(super) fn cluster_answered(&self, renew_deadline: Duration) {
        let limit = UNREADY_WITHOUT_ANSWER.max(2 * renew_deadline);
        self.state().unready_at = Instant::now() + limit;
    }

    /// Returns true if this replica leads.
    pub fn leads(&self) -> bool {
        matches!(&*self.0.role.borrow(), ReplicaRole::Leading(leadership) if leadership.is_valid())
    }

    /// Returns true if this replica can be ready. There are three cases:
    ///
    /// - This replica leads.
    /// - This replica has completely copied the index of a leader. This leader may be gone now.
    /// - This replica follows a leader, but cannot connect to it because our `APIService` is not
    ///   registered. Before the registration, the kube-apiserver sends no requests to this replica.
    ///   An administrator registers the server after the Deployment is ready. Until this replica
    ///   has filled its index, it answers requests for operations with 429.
    ///
    /// Any other replica has no operations, for example a restarted container that finds no leader.
    /// It stays unready, because another replica may have the operations.
    pub fn has_joined(&self) -> bool {
        let is_unregistered = || self.state().interruption == Some(LinkError::NotRegistered);
        let is_in_sync = self.in_sync().borrow().is_some();
        self.leads() || is_in_sync || self.is_following() && is_unregistered()
    }
}
