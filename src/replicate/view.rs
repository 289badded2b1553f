//! The state of this replica as requests see it.
//!
//! Input: the standing of the replica, and the leader's answers to state queries. Output: the age
//! of the index, the decision if a read can be answered from it, and the answers to state queries
//! of other replicas.

use super::peer::{Link, LinkError, PeerAnswer};
use super::{LeaderView, Leadership, Succession, Term};
use crate::index::{IndexReader, Rv};
use crate::rules::IncompleteRuleSets;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval of state queries if no read needs one.
const QUERY_INTERVAL: Duration = Duration::from_secs(2);

/// Time limit of a state query. A read waits no longer for a leader that is paused.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// After a state query without an answer, reads send no query for this time. They are answered from
/// the local index.
const NO_QUERY_PERIOD: Duration = Duration::from_secs(1);

/// The connection is closed after this number of consecutive queries without an answer.
const MAX_UNANSWERED_QUERIES: u32 = 3;

/// The connection is closed if the stream does not deliver a version that the leader has had for
/// this time. After a network failure, one side may not notice that the connection is closed.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for which a read waits for a version that the leader has and the mirror does not have yet.
const CATCH_UP_TIMEOUT: Duration = Duration::from_secs(3);

/// Largest number of reads that wait for one query. Further reads are answered from the local
/// index.
const MAX_WAITING_READS: usize = 1024;

/// After this time without a leader, responses carry a warning.
const STALE_AFTER: Duration = Duration::from_secs(15);

/// A replica becomes unready if the leader renews its Lease but this replica has not reached the
/// leader for this time. Clients are better served by another replica.
const UNREADY_WITHOUT_LEADER: Duration = Duration::from_secs(10);

/// A replica becomes unready if the kube-apiserver has stopped answering it, while the leader still
/// received an answer this long after the first request without one.
///
/// Such a replica cannot authenticate and authorize new clients. If the leader has no answer
/// either, the kube-apiserver may be unreachable for all replicas.
const UNREADY_WITHOUT_ANSWER: Duration = Duration::from_secs(2);

/// The times at which the kube-apiserver answered the election of this replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterContact {
    /// Time of the last answer.
    pub last: Option<Instant>,
    /// Time of the first request without an answer. None if the last request has one.
    pub unanswered_since: Option<Instant>,
}

/// The state of this replica for requests. Clones share it.
#[derive(Clone)]
pub struct View(Arc<ViewState>);

struct ViewState {
    reader: IndexReader,
    standing: watch::Receiver<LeaderView>,
    questions: mpsc::Sender<oneshot::Sender<Rv>>,
    /// Time at which the index was last known to have everything that the leader had.
    current: watch::Sender<Instant>,
    /// Time at which the leader was last reached, or at which this replica began to follow it.
    reached: watch::Sender<Instant>,
    /// Contact of this replica with the kube-apiserver.
    answers: watch::Sender<ClusterContact>,
    /// Last contact of the leader with the kube-apiserver, as far as this replica knows.
    leader_answered: watch::Sender<Option<Instant>>,
    /// Time of the last state query by another replica.
    asked: watch::Sender<Option<Instant>>,
    /// The last report of the leader about its rule sets.
    coverage: watch::Sender<Option<Arc<IncompleteRuleSets>>>,
    /// The term in which this replica leads or led last, until its mirrors no longer need that
    /// term.
    served: watch::Sender<Option<(Term, CancellationToken)>>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

/// The part of the view that the mirror updates.
pub fn view(reader: IndexReader, standing: watch::Receiver<LeaderView>) -> (View, LeaderQueries) {
    let (questions, asked) = mpsc::channel(MAX_WAITING_READS);
    let state = Arc::new(ViewState {
        reader: reader.clone(),
        standing,
        questions,
        current: watch::Sender::new(Instant::now()),
        reached: watch::Sender::new(Instant::now()),
        answers: watch::Sender::default(),
        leader_answered: watch::Sender::new(None),
        asked: watch::Sender::new(None),
        coverage: watch::Sender::new(None),
        served: watch::Sender::new(None),
    });
    let contact = LeaderQueries {
        reader,
        asked,
        view: View(Arc::clone(&state)),
    };
    (View(state), contact)
}

impl View {
    /// The view of a server without an election.
    pub fn alone(reader: IndexReader) -> Self {
        let start = reader.head();
        let standing = watch::Sender::new(LeaderView::Leading(Leadership::alone(start)));
        view(reader, standing.subscribe()).0
    }

    /// Waits until this replica has everything that the leader had when the read arrived.
    ///
    /// If the leader does not answer in time, the read is answered from the local index.
    pub async fn confirm(&self) {
        if !matches!(&*self.0.standing.borrow(), LeaderView::Following(_)) {
            return;
        }
        let (answer, head) = oneshot::channel();
        if self.0.questions.try_send(answer).is_err() {
            return;
        }
        if let Ok(Ok(head)) = tokio::time::timeout(QUERY_TIMEOUT, head).await {
            self.0.reader.reached(head, CATCH_UP_TIMEOUT).await;
        }
    }

    /// Returns the time since this replica was last known to have all operations. Zero on the
    /// leader.
    pub fn lag(&self) -> Duration {
        match &*self.0.standing.borrow() {
            LeaderView::Leading(leadership) if leadership.is_valid() => {
                self.0.current.send_replace(Instant::now());
                Duration::ZERO
            }
            _ => self.0.current.borrow().elapsed(),
        }
    }

    /// Returns true if operations may be missing: no replica detects them, or this replica does not
    /// reach the leader.
    pub fn is_stale(&self) -> bool {
        self.lag() > STALE_AFTER
    }

    /// Returns the reason for which clients are better served by another replica. The reason exists
    /// if another replica leads, and this replica reaches neither the leader nor the
    /// kube-apiserver.
    pub fn impairment(&self) -> Option<&'static str> {
        if !matches!(&*self.0.standing.borrow(), LeaderView::Following(_)) {
            return None;
        }
        let silent = self.0.reached.borrow().elapsed();
        if silent > UNREADY_WITHOUT_LEADER {
            return Some("the leader renews its Lease, but this replica does not reach it");
        }
        // The leader answers only while its Lease is valid.
        let is_led = silent < QUERY_INTERVAL + QUERY_TIMEOUT;
        let since = self.0.answers.borrow().unanswered_since?;
        let leaders = (*self.0.leader_answered.borrow())?;
        let is_lost = leaders > since + UNREADY_WITHOUT_ANSWER;
        (is_led && is_lost).then_some("the kube-apiserver answers the leader, but not this replica")
    }

    /// Returns the sender for contacts of the election with the kube-apiserver.
    pub fn answers(&self) -> watch::Sender<ClusterContact> {
        self.0.answers.clone()
    }

    /// Returns true if this replica leads.
    pub fn leads(&self) -> bool {
        matches!(&*self.0.standing.borrow(), LeaderView::Leading(leadership) if leadership.is_valid())
    }

    /// Returns true if this replica may answer although no replica leads.
    ///
    /// If no replica has ever led, this is true after the operations of a server of an older
    /// release are known. If a replica has led, this replica must have mirrored its operations. A
    /// container that was just restarted has none, and another replica may have them.
    pub fn is_without_leader(&self, succession: Succession) -> bool {
        match &*self.0.standing.borrow() {
            LeaderView::Leading(_) => true,
            LeaderView::Vacant { last: Some(_), .. } => self.0.reader.head() != Rv(0),
            LeaderView::Vacant { last: None, .. } => succession != Succession::Pending,
            LeaderView::Following(_) | LeaderView::Unknown => false,
        }
    }

    /// Returns the last report of the leader about its rule sets.
    pub fn coverage(&self) -> Option<Arc<IncompleteRuleSets>> {
        self.0.coverage.borrow().clone()
    }

    /// Answers a state query of another replica, if this replica serves mirrors of `term`.
    pub fn answer(&self, term: &str, coverage: IncompleteRuleSets) -> Option<PeerAnswer> {
        self.mirrored(term)?;
        self.0.asked.send_replace(Some(Instant::now()));
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

    /// Returns true if another replica mirrors this one. Mirrors send state queries periodically.
    pub fn is_mirrored(&self) -> bool {
        let asked = *self.0.asked.borrow();
        asked.is_some_and(|asked| asked.elapsed() < QUERY_INTERVAL * MAX_UNANSWERED_QUERIES)
    }

    /// Returns the token that is cancelled at the end of `term`, if this replica serves mirrors of
    /// it.
    ///
    /// A leader that has released its Lease still serves its last term, so that the next leader can
    /// mirror up to the final version.
    pub fn mirrored(&self, term: &str) -> Option<CancellationToken> {
        let served = self.0.served.borrow();
        let (own, ended) = served.as_ref()?;
        (own.as_str() == term).then(|| ended.child_token())
    }

    /// Serves mirrors of `term` from now on.
    pub fn serve(&self, term: &Term) {
        let new = Some((term.clone(), CancellationToken::new()));
        if let Some((_, ended)) = self.0.served.send_replace(new) {
            ended.cancel();
        }
    }

    /// Ends the streams of all mirrors, so that they look for the next leader. If `released` is
    /// true, they may come back for the remaining changes.
    pub fn end_streams(&self, released: bool) {
        self.0.served.send_modify(|served| {
            if let Some((term, ended)) = served.take() {
                ended.cancel();
                *served = released.then(|| (term, CancellationToken::new()));
            }
        });
    }
}

/// The state queries to the leader.
pub struct LeaderQueries {
    pub(super) reader: IndexReader,
    asked: mpsc::Receiver<oneshot::Sender<Rv>>,
    view: View,
}

impl LeaderQueries {
    /// Begins to follow a leader.
    pub(super) fn begin(&self) {
        self.view.0.reached.send_replace(Instant::now());
    }

    /// Waits for `work`. During this time there is no link to the leader. Reads that need a state
    /// query are answered from the local index.
    pub(super) async fn without_link<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut waiting = Vec::new();
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = self.asked.recv_many(&mut waiting, MAX_WAITING_READS) => waiting.clear(),
            }
        }
    }

    /// Waits for the first answer, with which the copy of the index begins.
    pub(super) async fn first_answer(
        &mut self,
        link: &dyn Link,
        term: &Term,
    ) -> Result<PeerAnswer, LinkError> {
        let at = Instant::now();
        let asked = tokio::time::timeout(QUERY_TIMEOUT, link.ask());
        let asked = self.without_link(asked).await;
        let late = || LinkError::Failed("the leader does not answer".to_owned());
        let answer = asked.map_err(|_| late())??;
        if answer.term != term.as_str() {
            return Err(LinkError::AnotherTerm);
        }
        self.view.heard(&answer, at);
        Ok(answer)
    }

    /// Sends the queries of reads, and one query periodically. Returns when several consecutive
    /// queries have no answer.
    pub(super) async fn questions(&mut self, link: &dyn Link, term: &Term) {
        let mut waiting = Vec::new();
        let mut silent = 0;
        // The time of a query, and the head version in its answer.
        let mut reaching: Option<(Instant, Rv)> = None;
        loop {
            let reached = async {
                match reaching {
                    Some((_, head)) => while !self.reader.reached(head, CATCH_UP_TIMEOUT).await {},
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Reads come second, because there can always be another read.
                biased;
                () = reached => {
                    if let Some((at, _)) = reaching.take() {
                        self.view.0.current.send_if_modified(|current| {
                            let is_later = at > *current;
                            *current = at.max(*current);
                            is_later
                        });
                    }
                    continue;
                }
                // Reads that arrived before the query was sent share its answer.
                _ = self.asked.recv_many(&mut waiting, MAX_WAITING_READS) => {}
                () = tokio::time::sleep(QUERY_INTERVAL) => {}
            }
            let at = Instant::now();
            // Queries are answered but the stream delivers nothing, so the stream is broken.
            if reaching.is_some_and(|(asked, _)| at - asked > STREAM_TIMEOUT) {
                return;
            }
            match tokio::time::timeout(QUERY_TIMEOUT, link.ask()).await {
                Ok(Ok(answer)) if answer.is_of(term) => {
                    silent = 0;
                    self.view.heard(&answer, at);
                    if reaching.is_none() {
                        reaching = Some((at, answer.head));
                    }
                    for read in waiting.drain(..) {
                        // The client may have disconnected.
                        let _ = read.send(answer.head);
                    }
                    continue;
                }
                // Any answer shows that the leader is reachable.
                Ok(Ok(_) | Err(LinkError::Refused(_))) => {}
                Ok(Err(LinkError::AnotherTerm)) => return,
                Ok(Err(_)) | Err(_) => silent += 1,
            }
            if silent >= MAX_UNANSWERED_QUERIES {
                return;
            }
            waiting.clear();
            self.without_link(tokio::time::sleep(NO_QUERY_PERIOD)).await;
        }
    }
}

impl View {
    /// Records the leader's answer to a query that was sent at the time `asked`.
    fn heard(&self, answer: &PeerAnswer, asked: Instant) {
        self.0.reached.send_replace(Instant::now());
        let ago = answer.cluster_answered.map(Duration::from_millis);
        let answered = ago.and_then(|ago| asked.checked_sub(ago));
        self.0.leader_answered.send_replace(answered);
        let new = Some(Arc::new(answer.coverage.clone()));
        self.0.coverage.send_replace(new);
    }
}
