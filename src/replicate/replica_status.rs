//! The status of this replica (process of the server): its role, and how current its index is.
//! Request handlers read this status.
//!
//! The index has the operations in memory. One replica, the leader, detects operations. Each other
//! replica is a follower and copies the leader's index.
//!
//! A client that reads from a follower expects all changes that the leader had when the read
//! arrived. So the follower sends a state query to the leader, and the answer contains the leader's
//! newest resourceVersion. The follower waits until its own index has this resourceVersion, and
//! then answers the read. After a time limit, the follower answers the read from its index as it
//! is.
//!
//! This module sends the state queries of this replica, and answers the state queries of other
//! replicas.

use super::link::{Link, LinkError, PeerAnswer};
use super::{Leadership, ReplicaRole, Term};
use crate::index::{IndexReader, Rv};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The interval of state queries while no reads arrive. If a read arrives earlier, the follower
/// sends the next state query at once. If the leader of the current term does not answer a query,
/// the interval begins when [`NO_QUERY_PERIOD`] is over.
const QUERY_INTERVAL: Duration = Duration::from_secs(2);

/// The time limit of a state query. If the leader does not answer within this time, the follower
/// answers the waiting reads from its own index.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// If the leader of the current leadership term does not answer a state query, the follower sends
/// no further query for this time. Meanwhile, the follower answers reads from its own index at
/// once.
const NO_QUERY_PERIOD: Duration = Duration::from_secs(1);

/// After this number of consecutive unanswered state queries, the follower closes the connection to
/// the leader, and connects again.
const MAX_UNANSWERED_QUERIES: u32 = 3;

/// The time within which the watch must deliver the resourceVersion in the answer to a state query.
/// If the watch does not deliver it in time, the watch is broken. The follower then closes the
/// connection and connects again. For example, after a network failure, the leader may still answer
/// state queries, but the watch delivers no changes.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which a read waits until this replica has the leader's newest resourceVersion.
/// After this time, this replica answers the read from its own index.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// The largest number of reads that wait for one state query. This replica answers further reads
/// from its own index at once.
const MAX_WAITING_READS: usize = 1024;

/// If this replica's index has not been up to date for longer than this time, this replica adds a
/// `Warning` header to lists and new watches.
const STALE_AFTER: Duration = Duration::from_secs(15);

/// If this replica has not reached the leader for this time, although the leader renews its Lease,
/// this replica becomes unready. Clients then use another replica.
const UNREADY_WITHOUT_LEADER: Duration = Duration::from_secs(10);

/// If the kube-apiserver answers the leader, but not this replica, this replica becomes unready.
/// Without the kube-apiserver, a replica cannot authenticate and authorize new clients. If the
/// kube-apiserver does not answer the leader either, this replica stays ready, because no other
/// replica serves clients better.
///
/// The leader reports the time of the kube-apiserver's last answer to the leader. This replica
/// becomes unready if this answer came more than 2 s after its own first unanswered request.
const UNREADY_WITHOUT_ANSWER: Duration = Duration::from_secs(2);

/// The times at which the kube-apiserver answered the Lease requests of this replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterContact {
    /// The time of the last answer. None if the kube-apiserver has not answered yet.
    pub last: Option<Instant>,
    /// The time of the first request after the last answer. None if there was no such request.
    pub unanswered_since: Option<Instant>,
}

/// The role of this replica, and how current its index is. Clones share one state.
#[derive(Clone)]
pub struct ReplicaStatus(Arc<SharedReplicaStatus>);

struct SharedReplicaStatus {
    reader: IndexReader,
    role: watch::Receiver<ReplicaRole>,
    /// The reads that wait for a state query. Each read receives the leader's newest
    /// resourceVersion on its channel.
    query_requests: mpsc::Sender<oneshot::Sender<Rv>>,
    /// The last time at which this replica's index certainly had all changes of the leader.
    up_to_date_at: watch::Sender<Instant>,
    /// The start of the time limit [`UNREADY_WITHOUT_LEADER`]. Each of these events starts the time
    /// limit again:
    ///
    /// - The leader answers a state query.
    /// - This replica begins to follow a leader.
    /// - An attempt to connect to the leader fails, because our `APIService` is not registered.
    leader_reached_at: watch::Sender<Instant>,
    /// True if our `APIService` is not registered. This replica takes the CA certificate of the
    /// leader from the `APIService`, so without it, this replica cannot connect to the leader.
    unregistered: AtomicBool,
    /// The reason why this replica does not copy the operations of the leader. None while it copies
    /// them, or while it does not follow a leader.
    interruption: watch::Sender<Option<String>>,
    /// The times at which the kube-apiserver answered this replica.
    cluster_contact: watch::Sender<ClusterContact>,
    /// The last time at which the kube-apiserver answered the leader, as the leader reported it.
    /// None if the leader has reported no answer.
    cluster_answered_leader_at: watch::Sender<Option<Instant>>,
    /// The time of the last state query that this replica received from another replica. None if
    /// this replica has received no state query.
    last_peer_query: watch::Sender<Option<Instant>>,
    /// The last leadership term in which this replica led. A leadership term is the time for which
    /// one leader holds the Lease. This replica sends the changes of this term to followers. The
    /// streams of changes to the followers end when the token is cancelled.
    ///
    /// None if this replica has not led yet, has stopped leading without releasing the Lease, or is
    /// shutting down.
    served: watch::Sender<Option<(Term, CancellationToken)>>,
}

impl fmt::Debug for ReplicaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaStatus").finish_non_exhaustive()
    }
}

/// Creates the [`ReplicaStatus`] for the request handlers, and the [`LeaderQueries`] for the
/// mirror. The mirror is the task that copies the leader's index, and it updates the status.
pub fn replica_status(
    reader: IndexReader,
    role: watch::Receiver<ReplicaRole>,
) -> (ReplicaStatus, LeaderQueries) {
    let (query_requests, waiting_reads) = mpsc::channel(MAX_WAITING_READS);
    let state = Arc::new(SharedReplicaStatus {
        reader: reader.clone(),
        role,
        query_requests,
        up_to_date_at: watch::Sender::new(Instant::now()),
        leader_reached_at: watch::Sender::new(Instant::now()),
        unregistered: AtomicBool::new(false),
        interruption: watch::Sender::new(None),
        cluster_contact: watch::Sender::default(),
        cluster_answered_leader_at: watch::Sender::new(None),
        last_peer_query: watch::Sender::new(None),
        served: watch::Sender::new(None),
    });
    let leader_queries = LeaderQueries {
        reader,
        waiting_reads,
        replica_status: ReplicaStatus(Arc::clone(&state)),
    };
    (ReplicaStatus(state), leader_queries)
}

impl ReplicaStatus {
    /// Creates the status of a server that runs without an election. Such a server always leads.
    pub fn alone(reader: IndexReader) -> Self {
        let start = reader.head();
        let role = watch::Sender::new(ReplicaRole::Leading(Leadership::alone(start)));
        replica_status(reader, role.subscribe()).0
    }

    /// Waits until this replica has all changes that the leader had when this method was called.
    /// The caller has received a read from a client, and answers the read after the wait.
    ///
    /// Also returns in these cases, in which this replica may lack changes:
    ///
    /// - This replica follows no leader.
    /// - The leader does not answer a state query within 1 s.
    /// - This replica does not have the changes 3 s after the answer.
    /// - 1024 other reads are already waiting for a state query.
    pub async fn wait_until_current(&self) {
        if !matches!(&*self.0.role.borrow(), ReplicaRole::Following(_)) {
            return;
        }
        let (answer, head) = oneshot::channel();
        if self.0.query_requests.try_send(answer).is_err() {
            return;
        }
        if let Ok(Ok(head)) = tokio::time::timeout(QUERY_TIMEOUT, head).await {
            self.0
                .reader
                .wait_until_reached(head, CATCH_UP_TIMEOUT)
                .await;
        }
    }

    /// Returns the time since this replica last certainly had all operations of the leader. Returns
    /// zero on the leader.
    pub fn lag(&self) -> Duration {
        match &*self.0.role.borrow() {
            ReplicaRole::Leading(leadership) if leadership.is_valid() => {
                self.0.up_to_date_at.send_replace(Instant::now());
                Duration::ZERO
            }
            _ => self.0.up_to_date_at.borrow().elapsed(),
        }
    }

    /// Returns true if this replica's index was last up to date more than 15 s ago. The index can
    /// then lack operations. Possible causes: no replica leads, or this replica does not reach the
    /// leader.
    pub fn is_stale(&self) -> bool {
        self.lag() > STALE_AFTER
    }

    /// Waits until [`ReplicaStatus::is_stale`] returns true. Notices this within a second.
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
        if !matches!(&*self.0.role.borrow(), ReplicaRole::Following(_)) {
            return None;
        }
        if self.is_unregistered() {
            return None;
        }
        let since_leader_reached = self.0.leader_reached_at.borrow().elapsed();
        if since_leader_reached > UNREADY_WITHOUT_LEADER {
            return Some("the leader renews its Lease, but this replica does not reach the leader");
        }
        // This replica sends a state query about every 2 s, and a leader with a valid Lease answers
        // within 1 s. If the last answer is older than 3 s, the leader may have stopped leading.
        let is_led = since_leader_reached < QUERY_INTERVAL + QUERY_TIMEOUT;
        let since = self.0.cluster_contact.borrow().unanswered_since?;
        let leaders = (*self.0.cluster_answered_leader_at.borrow())?;
        let is_lost = leaders > since + UNREADY_WITHOUT_ANSWER;
        (is_led && is_lost).then_some("the kube-apiserver answers the leader, but not this replica")
    }

    /// Returns the reason why this replica is not ready or has no operations yet. None if no reason
    /// is known.
    pub fn unready_reason(&self) -> Option<String> {
        let interruption = match &*self.0.role.borrow() {
            ReplicaRole::Following(_) => self.0.interruption.borrow().clone(),
            _ => None,
        };
        match (self.impairment(), interruption) {
            (Some(impairment), Some(cause)) => Some(format!("{impairment}: {cause}")),
            (None, Some(cause)) => Some(cause),
            (impairment, None) => impairment.map(str::to_owned),
        }
    }

    /// Returns true if this replica follows a leader, but cannot connect to it because our
    /// `APIService` is not registered.
    ///
    /// Such a replica is ready, for two reasons:
    ///
    /// - Before the registration, the kube-apiserver sends no requests to this replica.
    /// - An administrator registers the server after the Deployment is ready. So the Deployment
    ///   must become ready without the registration.
    ///
    /// Until this replica has filled its index, it answers requests for operations with 429.
    pub fn is_unregistered(&self) -> bool {
        matches!(&*self.0.role.borrow(), ReplicaRole::Following(_))
            && self.0.unregistered.load(Ordering::Relaxed)
    }

    /// Returns the sender with which the election reports answers of the kube-apiserver.
    pub fn cluster_contact(&self) -> watch::Sender<ClusterContact> {
        self.0.cluster_contact.clone()
    }

    /// Returns true if this replica leads.
    pub fn leads(&self) -> bool {
        matches!(&*self.0.role.borrow(), ReplicaRole::Leading(leadership) if leadership.is_valid())
    }

    /// Returns true if this replica is ready although it is not in sync with a leader. The
    /// result depends on the role of this replica:
    ///
    /// | Role of this replica | Result |
    /// |---|---|
    /// | it leads | true while its leadership is valid |
    /// | another replica leads | false |
    /// | the Lease has not been read yet | false |
    /// | no replica leads, and none has led before | true |
    /// | no replica leads, but one has led before | true if this replica's index was ever filled |
    ///
    /// The index of a restarted container was never filled. If such a replica were ready without a
    /// leader, it would serve an empty list, although another replica may have the operations.
    pub fn is_ready_without_leader(&self) -> bool {
        match &*self.0.role.borrow() {
            ReplicaRole::Leading(leadership) => leadership.is_valid(),
            ReplicaRole::Vacant { last: Some(_), .. } => self.0.reader.head() != Rv(0),
            ReplicaRole::Vacant { last: None, .. } => true,
            ReplicaRole::Following(_) | ReplicaRole::Unknown => false,
        }
    }

    /// Answers a state query of another replica. `term` is the term in the query. Returns None if
    /// this replica does not serve the changes of `term`.
    pub fn answer(&self, term: &str) -> Option<PeerAnswer> {
        self.end_of_streams(term)?;
        self.0.last_peer_query.send_replace(Some(Instant::now()));
        Some(PeerAnswer {
            term: term.to_owned(),
            leading: self.leads(),
            head: self.0.reader.head(),
            oldest: self.0.reader.oldest(),
            cluster_answered: self.0.cluster_contact.borrow().last.map(|last| {
                let milliseconds = last.elapsed().as_millis();
                u64::try_from(milliseconds).unwrap_or(u64::MAX)
            }),
        })
    }

    /// Returns true if another replica copies this replica's index: a state query has arrived in
    /// the last 6 s. A replica that copies the index sends a state query about every 2 s.
    pub fn is_index_copied(&self) -> bool {
        let last = *self.0.last_peer_query.borrow();
        last.is_some_and(|last| last.elapsed() < QUERY_INTERVAL * MAX_UNANSWERED_QUERIES)
    }

    /// Returns a token for the streams of `term` to followers. The streams end when the token is
    /// cancelled. Returns None if this replica does not serve the changes of `term`.
    ///
    /// A leader that has released its Lease still serves the changes of its last term, so that the
    /// next leader can copy them.
    pub fn end_of_streams(&self, term: &str) -> Option<CancellationToken> {
        let served = self.0.served.borrow();
        let (own, ended) = served.as_ref()?;
        (own.as_str() == term).then(|| ended.child_token())
    }

    /// Serves the changes of `term` to followers from now on. Ends the streams of the previous
    /// term.
    pub fn serve(&self, term: &Term) {
        let new = Some((term.clone(), CancellationToken::new()));
        if let Some((_, ended)) = self.0.served.send_replace(new) {
            ended.cancel();
        }
    }

    /// Ends the streams of changes to all followers, so that the followers look for the next
    /// leader. If this replica has released the Lease (`released`), followers may connect again to
    /// read the last changes of the term.
    pub fn end_streams(&self, released: bool) {
        self.0.served.send_modify(|served| {
            if let Some((term, ended)) = served.take() {
                ended.cancel();
                *served = released.then(|| (term, CancellationToken::new()));
            }
        });
    }
}

/// Sends state queries to the leader.
pub struct LeaderQueries {
    pub(super) reader: IndexReader,
    waiting_reads: mpsc::Receiver<oneshot::Sender<Rv>>,
    replica_status: ReplicaStatus,
}

impl LeaderQueries {
    /// Records the state of our `APIService`. If `unregistered` is true, our `APIService` is not
    /// registered, and this replica cannot connect to the leader.
    pub fn set_unregistered(&self, unregistered: bool) {
        let state = &self.replica_status.0;
        state.unregistered.store(unregistered, Ordering::Relaxed);
        if unregistered {
            // The time limit `UNREADY_WITHOUT_LEADER` counts only from the registration of our
            // `APIService`.
            state.leader_reached_at.send_replace(Instant::now());
        }
    }

    /// Records why the copy of the leader's index is interrupted, or None while the copy works.
    pub fn set_interruption(&self, reason: Option<String>) {
        let interruption = &self.replica_status.0.interruption;
        interruption.send_replace(reason);
    }

    /// Records that this replica now follows a leader.
    pub(super) fn begin(&self) {
        self.set_interruption(None);
        self.replica_status
            .0
            .leader_reached_at
            .send_replace(Instant::now());
    }

    /// Waits until `work` is done, and returns its result. Meanwhile, this replica cannot send
    /// state queries for reads, so reads are answered from the local index at once.
    pub(super) async fn without_queries<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut waiting = Vec::new();
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = self.waiting_reads.recv_many(&mut waiting, MAX_WAITING_READS) => waiting.clear(),
            }
        }
    }

    /// Sends the first state query of a connection, and returns the answer. The caller uses two
    /// resourceVersions of the answer:
    ///
    /// - [`PeerAnswer::oldest`]: if this replica needs the leader's whole state, it lists the state
    ///   at this resourceVersion, and then watches the later changes.
    /// - [`PeerAnswer::head`]: when this replica's index has this resourceVersion, this replica is
    ///   in sync.
    pub(super) async fn first_answer(
        &mut self,
        link: &dyn Link,
        term: &Term,
    ) -> Result<PeerAnswer, LinkError> {
        let at = Instant::now();
        let query = tokio::time::timeout(QUERY_TIMEOUT, link.ask());
        let answer = self.without_queries(query).await;
        let answer = answer.map_err(|_| unanswered_queries())??;
        if answer.term != term.as_str() {
            return Err(LinkError::AnotherTerm);
        }
        self.replica_status.record_answer(&answer, at);
        self.set_interruption(None);
        Ok(answer)
    }

    /// Sends state queries to the leader until the connection must be closed, and returns the
    /// reason. If reads are waiting, sends a query at once. One query serves all waiting reads. If
    /// no read arrives, sends the next query after [`QUERY_INTERVAL`].
    pub(super) async fn send_queries(&mut self, link: &dyn Link, term: &Term) -> LinkError {
        let mut waiting = Vec::new();
        let mut unanswered = 0;
        // The time at which the next query is sent even if no read is waiting.
        let mut next_query = Instant::now() + QUERY_INTERVAL;
        // The time of a query, and the resourceVersion in its answer. When this replica's index
        // reaches this resourceVersion, the variable becomes None. Until then, later answers do not
        // replace it.
        let mut unreached: Option<(Instant, Rv)> = None;
        loop {
            let reached = async {
                match unreached {
                    Some((_, head)) => {
                        while !self.reader.wait_until_reached(head, CATCH_UP_TIMEOUT).await {}
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // The branches are polled in this order. If the branch for reads came first, a
                // constant stream of reads would keep the branch `reached` from being polled.
                biased;
                () = reached => {
                    if let Some((at, _)) = unreached.take() {
                        self.replica_status.0.up_to_date_at.send_if_modified(|up_to_date_at| {
                            let is_later = at > *up_to_date_at;
                            *up_to_date_at = at.max(*up_to_date_at);
                            is_later
                        });
                    }
                    continue;
                }
                // All reads that arrived before the query is sent share its answer.
                _ = self.waiting_reads.recv_many(&mut waiting, MAX_WAITING_READS) => {}
                () = tokio::time::sleep_until(next_query) => {}
            }
            let at = Instant::now();
            // If the watch has not delivered the resourceVersion of an answer in time, the watch is
            // broken.
            if unreached.is_some_and(|(asked, _)| at - asked > STREAM_TIMEOUT) {
                return LinkError::Failed("the leader's watch delivers no changes".to_owned());
            }
            match tokio::time::timeout(QUERY_TIMEOUT, link.ask()).await {
                Ok(Ok(answer)) if answer.is_of(term) => {
                    unanswered = 0;
                    next_query = at + QUERY_INTERVAL;
                    self.replica_status.record_answer(&answer, at);
                    if unreached.is_none() {
                        unreached = Some((at, answer.head));
                    }
                    for read in waiting.drain(..) {
                        // If the client of a read has disconnected, the receiver is dropped, and
                        // the send fails.
                        let _ = read.send(answer.head);
                    }
                    continue;
                }
                // The other replica is reachable, but its answer is not usable.
                Ok(Ok(_) | Err(LinkError::Refused(_) | LinkError::NotAuthorized(_))) => {
                    unanswered = 0;
                }
                Ok(Err(LinkError::AnotherTerm)) => return LinkError::AnotherTerm,
                Ok(Err(_)) | Err(_) => unanswered += 1,
            }
            if unanswered >= MAX_UNANSWERED_QUERIES {
                return unanswered_queries();
            }
            waiting.clear();
            self.without_queries(tokio::time::sleep(NO_QUERY_PERIOD))
                .await;
            next_query = Instant::now() + QUERY_INTERVAL;
        }
    }
}

fn unanswered_queries() -> LinkError {
    LinkError::Failed("the leader does not answer state queries".to_owned())
}

impl ReplicaStatus {
    /// Records the leader's answer to a state query that was sent at the time `sent`.
    fn record_answer(&self, answer: &PeerAnswer, sent: Instant) {
        self.0.leader_reached_at.send_replace(Instant::now());
        let ago = answer.cluster_answered.map(Duration::from_millis);
        let answered = ago.and_then(|ago| sent.checked_sub(ago));
        self.0.cluster_answered_leader_at.send_replace(answered);
    }
}
