//! The status of this replica (process of the server), which request handlers read: its role, and
//! how current its index is.
//!
//! The index has the operations in memory. One replica, the leader, detects operations. Each other
//! replica is a follower and copies the leader's index.
//!
//! A client that reads at a follower expects everything that the leader had when the read arrived.
//! So the follower sends a state query to the leader. The answer contains the leader's newest
//! resourceVersion. The follower waits until its own index has this resourceVersion. If this takes
//! too long, the follower answers the read from its index without waiting further.
//!
//! This module sends the state queries of this replica, and answers the state queries of other
//! replicas.

use super::leader_link_interface::{Link, LinkError, PeerAnswer};
use super::{Leadership, ReplicaRole, Succession, Term};
use crate::index::{IndexReader, Rv};
use crate::rules::IncompleteRuleSets;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// A follower sends a state query at least once in this time, even if no read arrives.
const QUERY_INTERVAL: Duration = Duration::from_secs(2);

/// The time limit of a state query. If the leader is paused, a read waits for this time. The read
/// is then answered from the local index.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// If the leader has not answered a state query, the follower sends no further query for this time.
/// Reads that arrive in the meantime are answered from the local index.
const NO_QUERY_PERIOD: Duration = Duration::from_secs(1);

/// The connection to the leader is closed after this number of consecutive unanswered queries.
const MAX_UNANSWERED_QUERIES: u32 = 3;

/// After a network failure, the watch of the leader's changes can be broken although the leader
/// still answers state queries. To detect this, the follower remembers the resourceVersion in an
/// answer. If the watch has not delivered this resourceVersion after this time, the follower closes
/// the connection and connects again.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which a read waits until this replica has the leader's newest resourceVersion.
/// After this time, the read is answered from the local index.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// The largest number of reads that wait for one state query. Further reads are answered from the
/// local index.
const MAX_WAITING_READS: usize = 1024;

/// If this replica's index has not been up to date for this time, lists and new watches get a
/// `Warning` header.
const STALE_AFTER: Duration = Duration::from_secs(15);

/// If the leader renews its Lease, but this replica has not reached the leader for this time, this
/// replica becomes unready. Clients then use another replica.
const UNREADY_WITHOUT_LEADER: Duration = Duration::from_secs(10);

/// If the kube-apiserver stops answering this replica, this replica cannot authenticate and
/// authorize new clients. Then two cases are distinguished:
///
/// - The kube-apiserver answers the leader later than this time after this replica's first
///   unanswered request. So only this replica is affected, and it becomes unready.
/// - The kube-apiserver does not answer the leader either. Then it may be unreachable for all
///   replicas, and this replica stays ready.
const UNREADY_WITHOUT_ANSWER: Duration = Duration::from_secs(2);

/// The times at which the kube-apiserver answered the Lease requests of this replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterContact {
    /// The time of the last answer.
    pub last: Option<Instant>,
    /// The time of the first unanswered request after the last answer. None if every request was
    /// answered.
    pub unanswered_since: Option<Instant>,
}

/// The role of this replica, and how current its index is. Clones share one state.
#[derive(Clone)]
pub struct ReplicaStatus(Arc<SharedReplicaStatus>);

struct SharedReplicaStatus {
    reader: IndexReader,
    role: watch::Receiver<ReplicaRole>,
    /// Each waiting read sends a channel here, and receives the leader's newest resourceVersion on
    /// that channel.
    query_requests: mpsc::Sender<oneshot::Sender<Rv>>,
    /// The last time at which this replica's index was known to have everything that the leader
    /// had.
    up_to_date_at: watch::Sender<Instant>,
    /// The last time at which the leader answered a state query of this replica. The time is also
    /// set when this replica begins to follow a leader, and while our `APIService` is not
    /// registered.
    leader_reached_at: watch::Sender<Instant>,
    /// True if our `APIService` is not registered, so that this replica cannot connect to the
    /// leader.
    unregistered: AtomicBool,
    /// The times at which the kube-apiserver answered this replica.
    answers: watch::Sender<ClusterContact>,
    /// The last time at which the kube-apiserver answered the leader, as the leader reported it.
    cluster_answered_leader_at: watch::Sender<Option<Instant>>,
    /// The time of the last state query that another replica sent to this one.
    last_peer_query: watch::Sender<Option<Instant>>,
    /// The leader's last report about rule sets that may miss operations.
    coverage: watch::Sender<Option<Arc<IncompleteRuleSets>>>,
    /// The leadership term (the time for which one leader holds the Lease) whose changes this
    /// replica serves to followers. It is the term in which this replica leads or led last. The
    /// token is cancelled to end the streams to the followers.
    ///
    /// None if this replica has not led yet, has lost the Lease without releasing it, or is
    /// shutting down.
    served: watch::Sender<Option<(Term, CancellationToken)>>,
}

impl fmt::Debug for ReplicaStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplicaStatus").finish_non_exhaustive()
    }
}

/// Creates the [`ReplicaStatus`] that request handlers read. Also returns the [`LeaderQueries`],
/// with which the mirror (the task that copies the leader's index) updates this status.
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
        answers: watch::Sender::default(),
        cluster_answered_leader_at: watch::Sender::new(None),
        last_peer_query: watch::Sender::new(None),
        coverage: watch::Sender::new(None),
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

    /// Waits until this replica has everything that the leader had when the read arrived.
    ///
    /// The method also returns if the leader cannot be reached or does not answer in time. In each
    /// case, the caller answers the read from the local index.
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

    /// Returns the age of the last time at which this replica certainly had all operations of the
    /// leader. Returns zero on the leader.
    pub fn lag(&self) -> Duration {
        match &*self.0.role.borrow() {
            ReplicaRole::Leading(leadership) if leadership.is_valid() => {
                self.0.up_to_date_at.send_replace(Instant::now());
                Duration::ZERO
            }
            _ => self.0.up_to_date_at.borrow().elapsed(),
        }
    }

    /// Returns true if this replica's index has not been up to date for more than 15 s. Operations
    /// may be missing then: either no replica leads, or this replica does not reach the leader.
    pub fn is_stale(&self) -> bool {
        self.lag() > STALE_AFTER
    }

    /// Returns the reason why clients should use another replica: this replica does not reach the
    /// leader or the kube-apiserver. Returns None if no other replica leads, because another
    /// replica would then not serve clients better.
    pub fn impairment(&self) -> Option<&'static str> {
        if !matches!(&*self.0.role.borrow(), ReplicaRole::Following(_)) {
            return None;
        }
        if self.is_unregistered() {
            return None;
        }
        let silent = self.0.leader_reached_at.borrow().elapsed();
        if silent > UNREADY_WITHOUT_LEADER {
            return Some("the leader renews its Lease, but this replica does not reach it");
        }
        // After the first answer of a connection, only answers of a replica with a valid Lease
        // count. So a recent answer shows that a replica leads.
        let is_led = silent < QUERY_INTERVAL + QUERY_TIMEOUT;
        let since = self.0.answers.borrow().unanswered_since?;
        let leaders = (*self.0.cluster_answered_leader_at.borrow())?;
        let is_lost = leaders > since + UNREADY_WITHOUT_ANSWER;
        (is_led && is_lost).then_some("the kube-apiserver answers the leader, but not this replica")
    }

    /// Returns true if this replica follows a leader, but cannot connect to it because our
    /// `APIService` is not registered.
    ///
    /// Such a replica is ready nevertheless, for two reasons:
    ///
    /// - Before the registration, the kube-apiserver sends no requests to this replica.
    /// - An administrator registers the server after the Deployment is ready. So the Deployment
    ///   must become ready without the registration.
    ///
    /// Until this replica has copied the leader's index, it answers requests for operations with
    /// 429.
    pub fn is_unregistered(&self) -> bool {
        matches!(&*self.0.role.borrow(), ReplicaRole::Following(_))
            && self.0.unregistered.load(Ordering::Relaxed)
    }

    /// Returns the sender with which the election reports answers of the kube-apiserver.
    pub fn answers(&self) -> watch::Sender<ClusterContact> {
        self.0.answers.clone()
    }

    /// Returns true if this replica leads.
    pub fn leads(&self) -> bool {
        matches!(&*self.0.role.borrow(), ReplicaRole::Leading(leadership) if leadership.is_valid())
    }

    /// Returns true if this replica may be ready although no other replica leads.
    ///
    /// - If no replica has ever led, this replica becomes ready after the search for a server of an
    ///   older release has ended.
    /// - If a replica has led, this replica becomes ready when its index has been filled. A
    ///   container that was just restarted has an empty index, but another replica may have the
    ///   operations.
    pub fn is_ready_without_leader(&self, succession: Succession) -> bool {
        match &*self.0.role.borrow() {
            ReplicaRole::Leading(_) => true,
            ReplicaRole::Vacant { last: Some(_), .. } => self.0.reader.head() != Rv(0),
            ReplicaRole::Vacant { last: None, .. } => succession != Succession::Pending,
            ReplicaRole::Following(_) | ReplicaRole::Unknown => false,
        }
    }

    /// Returns the leader's last report about rule sets that may miss operations.
    pub fn coverage(&self) -> Option<Arc<IncompleteRuleSets>> {
        self.0.coverage.borrow().clone()
    }

    /// Answers a state query of another replica, which expects the changes of `term`. Returns None
    /// if this replica does not serve the changes of `term`.
    pub fn answer(&self, term: &str, coverage: IncompleteRuleSets) -> Option<PeerAnswer> {
        self.end_of_streams(term)?;
        self.0.last_peer_query.send_replace(Some(Instant::now()));
        Some(PeerAnswer {
            term: term.to_owned(),
            leading: self.leads(),
            head: self.0.reader.head(),
            oldest: self.0.reader.oldest(),
            cluster_answered: self.0.answers.borrow().last.map(|last| {
                let milliseconds = last.elapsed().as_millis();
                u64::try_from(milliseconds).unwrap_or(u64::MAX)
            }),
            coverage,
        })
    }

    /// Returns true if another replica copies this replica's index. A replica that copies the index
    /// sends a state query at least every 2 s. If no state query has arrived for 6 s, the result is
    /// false.
    pub fn is_mirrored(&self) -> bool {
        let last = *self.0.last_peer_query.borrow();
        last.is_some_and(|last| last.elapsed() < QUERY_INTERVAL * MAX_UNANSWERED_QUERIES)
    }

    /// Returns a token that is cancelled to end the streams of `term` to followers. Returns None if
    /// this replica does not serve the changes of `term`.
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
    /// leader. If `released` is true, followers can connect again and read the last changes of the
    /// term.
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
    /// Records whether this replica cannot connect to the leader because our `APIService` is not
    /// registered.
    pub fn set_unregistered(&self, unregistered: bool) {
        let state = &self.replica_status.0;
        state.unregistered.store(unregistered, Ordering::Relaxed);
        if unregistered {
            // The limit [`UNREADY_WITHOUT_LEADER`] starts when our `APIService` is registered.
            state.leader_reached_at.send_replace(Instant::now());
        }
    }

    /// Records that this replica now follows a leader.
    pub(super) fn begin(&self) {
        self.replica_status
            .0
            .leader_reached_at
            .send_replace(Instant::now());
    }

    /// Waits until `work` is done, and sends no state queries in the meantime. Reads that arrive
    /// while this method waits are answered from the local index at once.
    pub(super) async fn without_link<T>(&mut self, work: impl Future<Output = T>) -> T {
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

    /// Sends the first state query of a connection, and returns the answer. The answer contains the
    /// resourceVersions at which the copy of the index starts and is complete.
    pub(super) async fn first_answer(
        &mut self,
        link: &dyn Link,
        term: &Term,
    ) -> Result<PeerAnswer, LinkError> {
        let at = Instant::now();
        let query = tokio::time::timeout(QUERY_TIMEOUT, link.ask());
        let answer = self.without_link(query).await;
        let late = || LinkError::Failed("the leader does not answer".to_owned());
        let answer = answer.map_err(|_| late())??;
        if answer.term != term.as_str() {
            return Err(LinkError::AnotherTerm);
        }
        self.replica_status.record_answer(&answer, at);
        Ok(answer)
    }

    /// Sends one state query for all waiting reads, and at least one query in each
    /// [`QUERY_INTERVAL`]. Returns when the connection to the leader must be closed.
    pub(super) async fn send_queries(&mut self, link: &dyn Link, term: &Term) {
        let mut waiting = Vec::new();
        let mut unanswered = 0;
        // The state query whose answer is ahead of this replica's index: the time of the query, and
        // the resourceVersion in the answer.
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
                // The branch for reads comes second. If reads arrived all the time and their branch
                // were first, the other branch would never be polled.
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
                () = tokio::time::sleep(QUERY_INTERVAL) => {}
            }
            let at = Instant::now();
            // The leader answers queries, but the watch of its changes delivers nothing. So the
            // watch is broken.
            if unreached.is_some_and(|(asked, _)| at - asked > STREAM_TIMEOUT) {
                return;
            }
            match tokio::time::timeout(QUERY_TIMEOUT, link.ask()).await {
                Ok(Ok(answer)) if answer.is_of(term) => {
                    unanswered = 0;
                    self.replica_status.record_answer(&answer, at);
                    if unreached.is_none() {
                        unreached = Some((at, answer.head));
                    }
                    for read in waiting.drain(..) {
                        // The receiver is dropped if the client has disconnected.
                        let _ = read.send(answer.head);
                    }
                    continue;
                }
                // An unexpected answer or a refusal shows that the leader is reachable.
                Ok(Ok(_) | Err(LinkError::Refused(_))) => {}
                Ok(Err(LinkError::AnotherTerm)) => return,
                Ok(Err(_)) | Err(_) => unanswered += 1,
            }
            if unanswered >= MAX_UNANSWERED_QUERIES {
                return;
            }
            waiting.clear();
            self.without_link(tokio::time::sleep(NO_QUERY_PERIOD)).await;
        }
    }
}

impl ReplicaStatus {
    /// Records the leader's answer to a state query that was sent at the time `sent`.
    fn record_answer(&self, answer: &PeerAnswer, sent: Instant) {
        self.0.leader_reached_at.send_replace(Instant::now());
        let ago = answer.cluster_answered.map(Duration::from_millis);
        let answered = ago.and_then(|ago| sent.checked_sub(ago));
        self.0.cluster_answered_leader_at.send_replace(answered);
        let new = Some(Arc::new(answer.coverage.clone()));
        self.0.coverage.send_replace(new);
    }
}
