//! What requests need to know about this replica. Enters: its standing, and the leader's
//! answers to questions. Leaves: how current its index is, when a read may be answered from
//! it, and what other replicas are told.

use super::peer::{Link, LinkError, PeerAnswer};
use super::{Leadership, Standing, Succession, Term};
use crate::index::{IndexReader, Rv};
use crate::rules::Coverage;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The time between two questions if no read asks one.
const ASK_EVERY: Duration = Duration::from_secs(2);

/// The longest time for an answer. A read waits no longer for a leader that is paused.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// After a question without an answer, reads ask none for this long. They are answered with
/// what the replica has.
const QUIET: Duration = Duration::from_secs(1);

/// Questions in a row without an answer, after which the connection is given up.
const SILENT: u32 = 3;

/// If the stream does not bring a version that the leader has had for this long, it is given
/// up: after a failure of the network, one side may not know that the connection is closed.
const STUCK: Duration = Duration::from_secs(10);

/// A read waits this long for a version that the leader has and the mirror does not yet.
const CATCH_UP: Duration = Duration::from_secs(3);

/// Reads that may wait for one question. Further ones are answered with what is there.
const WAITING: usize = 1024;

/// Without a leader for longer than this, answers carry a warning.
const STALE: Duration = Duration::from_secs(15);

/// A replica that sees the leader renew its Lease, but has not reached it for this long, is
/// not ready any more: clients are better served by another one.
const CUT_OFF: Duration = Duration::from_secs(10);

/// The same for a replica whose requests the kube-apiserver does not answer, once the leader
/// had an answer this long after the first of them. Such a replica can authenticate and
/// authorize no new clients. Without the answer to the leader, the kube-apiserver may be away
/// for all replicas.
const UNANSWERED: Duration = Duration::from_secs(2);

/// When the kube-apiserver has answered the election of this replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct ClusterContact {
    /// When the last answer came.
    pub last: Option<Instant>,
    /// When the first request was sent that has no answer. None if the last one has.
    pub unanswered_since: Option<Instant>,
}

/// This replica, as requests see it. Cheap to clone.
#[derive(Clone)]
pub struct View(Arc<ViewState>);

struct ViewState {
    reader: IndexReader,
    standing: watch::Receiver<Standing>,
    questions: mpsc::Sender<oneshot::Sender<Rv>>,
    /// When the index was last known to hold all that the leader had.
    current: watch::Sender<Instant>,
    /// When the leader was last reached, or this replica began to follow it.
    reached: watch::Sender<Instant>,
    /// When the kube-apiserver has answered the election of this replica, …
    answers: watch::Sender<ClusterContact>,
    /// … and that of the leader, as far as is known here.
    leader_answered: watch::Sender<Option<Instant>>,
    /// When another replica last asked this one.
    asked: watch::Sender<Option<Instant>>,
    /// What the leader last said of its rule sets.
    coverage: watch::Sender<Option<Arc<Coverage>>>,
    /// The term in which this replica leads or led last, until that is over for its mirrors.
    served: watch::Sender<Option<(Term, CancellationToken)>>,
}

impl fmt::Debug for View {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("View").finish_non_exhaustive()
    }
}

/// How requests are answered, and the side of the mirror that makes it so.
pub fn view(reader: IndexReader, standing: watch::Receiver<Standing>) -> (View, Contact) {
    let (questions, asked) = mpsc::channel(WAITING);
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
    let contact = Contact {
        reader,
        asked,
        view: View(Arc::clone(&state)),
    };
    (View(state), contact)
}

impl View {
    /// That of a server without an election.
    pub fn alone(reader: IndexReader) -> Self {
        let start = reader.head();
        let standing = watch::Sender::new(Standing::Leading(Leadership::alone(start)));
        view(reader, standing.subscribe()).0
    }

    /// Waits until this replica has all that the leader has when the read arrives. If the
    /// leader does not answer in time, the read is answered with what is there.
    pub async fn confirm(&self) {
        if !matches!(&*self.0.standing.borrow(), Standing::Following(_)) {
            return;
        }
        let (answer, head) = oneshot::channel();
        if self.0.questions.try_send(answer).is_err() {
            return;
        }
        if let Ok(Ok(head)) = tokio::time::timeout(ANSWER_WITHIN, head).await {
            self.0.reader.reached(head, CATCH_UP).await;
        }
    }

    /// How long ago this replica was last known to have all operations. Zero for the leader.
    pub fn lag(&self) -> Duration {
        match &*self.0.standing.borrow() {
            Standing::Leading(leadership) if leadership.is_valid() => {
                self.0.current.send_replace(Instant::now());
                Duration::ZERO
            }
            _ => self.0.current.borrow().elapsed(),
        }
    }

    /// Whether operations may be missing because no replica detects them, or this one does
    /// not reach the replica that does.
    pub fn is_stale(&self) -> bool {
        self.lag() > STALE
    }

    /// Why clients are better served by another replica, if that is so: another replica leads,
    /// and this one reaches either that replica or the kube-apiserver no more.
    pub fn impairment(&self) -> Option<&'static str> {
        if !matches!(&*self.0.standing.borrow(), Standing::Following(_)) {
            return None;
        }
        let silent = self.0.reached.borrow().elapsed();
        if silent > CUT_OFF {
            return Some("the leader renews its Lease, but this replica does not reach it");
        }
        // The leader answers only while its Lease is valid.
        let is_led = silent < ASK_EVERY + ANSWER_WITHIN;
        let since = self.0.answers.borrow().unanswered_since?;
        let leaders = (*self.0.leader_answered.borrow())?;
        let is_lost = leaders > since + UNANSWERED;
        (is_led && is_lost).then_some("the kube-apiserver answers the leader, but not this replica")
    }

    /// Where the election says when the kube-apiserver has answered it.
    pub fn answers(&self) -> watch::Sender<ClusterContact> {
        self.0.answers.clone()
    }

    /// Whether this replica leads.
    pub fn leads(&self) -> bool {
        matches!(&*self.0.standing.borrow(), Standing::Leading(leadership) if leadership.is_valid())
    }

    /// Whether this replica may answer although no other replica leads. While no replica has
    /// ever led, that is so once it is known what a server of an older release has. After a
    /// leader, this replica needs the operations that it mirrored: a container that was just
    /// restarted has none, and another replica may have them.
    pub fn is_without_leader(&self, succession: Succession) -> bool {
        match &*self.0.standing.borrow() {
            Standing::Leading(_) => true,
            Standing::Vacant { last: Some(_), .. } => self.0.reader.head() != Rv(0),
            Standing::Vacant { last: None, .. } => succession != Succession::Pending,
            Standing::Following(_) | Standing::Unknown => false,
        }
    }

    /// What the leader last said of its rule sets.
    pub fn coverage(&self) -> Option<Arc<Coverage>> {
        self.0.coverage.borrow().clone()
    }

    /// The answer to another replica's question, if this replica serves mirrors of `term`.
    pub fn answer(&self, term: &str, coverage: Coverage) -> Option<PeerAnswer> {
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

    /// Whether another replica mirrors this one: it asks from time to time.
    pub fn is_mirrored(&self) -> bool {
        let asked = *self.0.asked.borrow();
        asked.is_some_and(|asked| asked.elapsed() < ASK_EVERY * SILENT)
    }

    /// If this replica serves mirrors of `term`: what is cancelled when that term is over. A
    /// leader that has released its Lease goes on to serve its last term, so that the heir
    /// can mirror up to the final version.
    pub fn mirrored(&self, term: &str) -> Option<CancellationToken> {
        let served = self.0.served.borrow();
        let (own, ended) = served.as_ref()?;
        (own.as_str() == term).then(|| ended.child_token())
    }

    /// From now on this replica serves mirrors of `term`.
    pub fn serve(&self, term: &Term) {
        let new = Some((term.clone(), CancellationToken::new()));
        if let Some((_, ended)) = self.0.served.send_replace(new) {
            ended.cancel();
        }
    }

    /// Ends the streams of all mirrors, so that they look for the next leader. With `released`
    /// they may come back for the rest.
    pub fn end_streams(&self, released: bool) {
        self.0.served.send_modify(|served| {
            if let Some((term, ended)) = served.take() {
                ended.cancel();
                *served = released.then(|| (term, CancellationToken::new()));
            }
        });
    }
}

/// The questions to the leader.
pub struct Contact {
    pub(super) reader: IndexReader,
    asked: mpsc::Receiver<oneshot::Sender<Rv>>,
    view: View,
}

impl Contact {
    /// This replica begins to follow a leader.
    pub(super) fn begin(&self) {
        self.view.0.reached.send_replace(Instant::now());
    }

    /// Waits for `work`. There is no link to the leader meanwhile, so reads that ask are
    /// answered with what is there.
    pub(super) async fn without_link<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut waiting = Vec::new();
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ = self.asked.recv_many(&mut waiting, WAITING) => waiting.clear(),
            }
        }
    }

    /// The answer to the first question, with which a copy begins.
    pub(super) async fn first_answer(
        &mut self,
        link: &dyn Link,
        term: &Term,
    ) -> Result<PeerAnswer, LinkError> {
        let at = Instant::now();
        let asked = tokio::time::timeout(ANSWER_WITHIN, link.ask());
        let asked = self.without_link(asked).await;
        let late = || LinkError::Failed("the leader does not answer".to_owned());
        let answer = asked.map_err(|_| late())??;
        if answer.term != term.as_str() {
            return Err(LinkError::AnotherTerm);
        }
        self.view.heard(&answer, at);
        Ok(answer)
    }

    /// Asks the questions of the reads, and one from time to time, until several in a row
    /// have no answer.
    pub(super) async fn questions(&mut self, link: &dyn Link, term: &Term) {
        let mut waiting = Vec::new();
        let mut silent = 0;
        // The moment of a question, and the head in its answer.
        let mut reaching: Option<(Instant, Rv)> = None;
        loop {
            let reached = async {
                match reaching {
                    Some((_, head)) => while !self.reader.reached(head, CATCH_UP).await {},
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                // Reads come second: there can always be another one.
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
                // Whoever came before the question shares it.
                _ = self.asked.recv_many(&mut waiting, WAITING) => {}
                () = tokio::time::sleep(ASK_EVERY) => {}
            }
            let at = Instant::now();
            // Questions are answered, but the stream brings nothing: it is dead.
            if reaching.is_some_and(|(asked, _)| at - asked > STUCK) {
                return;
            }
            match tokio::time::timeout(ANSWER_WITHIN, link.ask()).await {
                Ok(Ok(answer)) if answer.is_of(term) => {
                    silent = 0;
                    self.view.heard(&answer, at);
                    if reaching.is_none() {
                        reaching = Some((at, answer.head));
                    }
                    for read in waiting.drain(..) {
                        // A client may have gone away.
                        let _ = read.send(answer.head);
                    }
                    continue;
                }
                // It is there, whatever it says.
                Ok(Ok(_) | Err(LinkError::Refused(_))) => {}
                Ok(Err(LinkError::AnotherTerm)) => return,
                Ok(Err(_)) | Err(_) => silent += 1,
            }
            if silent >= SILENT {
                return;
            }
            waiting.clear();
            self.without_link(tokio::time::sleep(QUIET)).await;
        }
    }
}

impl View {
    /// The leader has answered a question that was asked at this time.
    fn heard(&self, answer: &PeerAnswer, asked: Instant) {
        self.0.reached.send_replace(Instant::now());
        let ago = answer.cluster_answered.map(Duration::from_millis);
        let answered = ago.and_then(|ago| asked.checked_sub(ago));
        self.0.leader_answered.send_replace(answered);
        let new = Some(Arc::new(answer.coverage.clone()));
        self.0.coverage.send_replace(new);
    }
}
