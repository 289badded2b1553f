//! Sends the state queries of a follower to the leader. The answer contains the leader's newest
//! resourceVersion. [`ReplicaStatus`] has the reads that wait for it.

use super::link::{Link, LinkError, PeerAnswer};
use super::replica_status::{
    CATCH_UP_TIMEOUT, LastAnswer, MAX_UNANSWERED_QUERIES, QUERY_INTERVAL, QUERY_TIMEOUT,
    ReplicaStatus,
};
use super::{ReplicaRole, Term};
use crate::index::{IndexReader, Rv};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// If the leader of the current leadership term does not answer a state query, the follower sends
/// no further query for this time. Meanwhile, the follower answers reads from its own index at
/// once.
const NO_QUERY_PERIOD: Duration = Duration::from_secs(1);

/// The time within which the watch must deliver the resourceVersion in the answer to a state query.
/// If the watch does not deliver it in time, the watch is broken. The follower then closes the
/// connection and connects again. For example, after a network failure, the leader may still answer
/// state queries, but the watch delivers no changes.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);

/// Sends state queries to the leader.
pub struct LeaderQueries(ReplicaStatus);

/// Creates the [`ReplicaStatus`] for the request handlers, and the [`LeaderQueries`] for the
/// mirror. The mirror is the task that copies the leader's index, and it updates the status.
pub fn replica_status(
    reader: IndexReader,
    role: watch::Receiver<ReplicaRole>,
) -> (ReplicaStatus, LeaderQueries) {
    let status = ReplicaStatus::new(reader, role);
    (status.clone(), LeaderQueries(status))
}

impl LeaderQueries {
    pub(super) fn reader(&self) -> &IndexReader {
        &self.0.shared().reader
    }

    /// Records the state of our `APIService`. If `is_unregistered` is true, our `APIService` is not
    /// registered, and this replica cannot connect to the leader.
    pub fn set_unregistered(&self, is_unregistered: bool) {
        let mut state = self.0.state();
        state.is_unregistered = is_unregistered;
        if is_unregistered {
            // The time limit `UNREADY_WITHOUT_LEADER` counts only from the registration of our
            // `APIService`.
            state.leader_reached_at = Instant::now();
        }
    }

    /// Records why the copy of the leader's index is interrupted, or None while the copy works.
    pub fn set_interruption(&self, reason: Option<String>) {
        self.0.state().interruption = reason;
    }

    /// Decides if reads wait for the next state query.
    pub fn set_asking(&self, is_asking: bool) {
        let before_all_reads = LastAnswer {
            query: 0,
            asked: Instant::now(),
            head: Rv(0),
        };
        let answer = is_asking.then_some(before_all_reads);
        self.0.shared().answer.send_replace(answer);
    }

    /// Records that this replica now follows a leader.
    pub(super) fn begin(&self) {
        self.set_interruption(None);
        self.set_asking(false);
        self.0.state().leader_reached_at = Instant::now();
    }

    /// Sends the first state query of a connection, and returns the answer. The caller uses two
    /// resourceVersions of the answer:
    ///
    /// - [`PeerAnswer::oldest`]: if this replica needs the leader's whole state, it lists the state
    ///   at this resourceVersion, and then watches the later changes.
    /// - [`PeerAnswer::head`]: when this replica's index has this resourceVersion, this replica is
    ///   in sync.
    pub(super) async fn first_answer(
        &self,
        link: &dyn Link,
        term: &Term,
    ) -> Result<PeerAnswer, LinkError> {
        let asked = Instant::now();
        let answer = self.ask(link).await?;
        if answer.term != term.as_str() {
            return Err(LinkError::AnotherTerm);
        }
        self.record_answer(&answer, asked);
        self.set_interruption(None);
        Ok(answer)
    }

    /// Sends state queries to the leader until the connection must be closed, and returns the
    /// reason. If reads are waiting, sends a query at once. One query serves all waiting reads. If
    /// no read arrives, sends the next query after [`QUERY_INTERVAL`].
    pub(super) async fn send_queries(&self, link: &dyn Link, term: &Term) -> LinkError {
        let mut unanswered = 0;
        // The time at which the next query is sent even if no read is waiting.
        let mut next_query = Instant::now() + QUERY_INTERVAL;
        // An answer whose resourceVersion this replica's index has not reached. Until then, later
        // answers do not replace it.
        let mut unreached: Option<LastAnswer> = None;
        loop {
            let reached = async {
                let Some(LastAnswer { head, .. }) = unreached else {
                    return std::future::pending().await;
                };
                while !self
                    .reader()
                    .wait_until_reached(head, CATCH_UP_TIMEOUT)
                    .await
                {}
            };
            tokio::select! {
                // The branches are polled in this order. If the branch for reads came first, a
                // constant stream of reads would keep the branch `reached` from being polled.
                biased;
                () = reached => {
                    if let Some(LastAnswer { asked, .. }) = unreached.take() {
                        let mut state = self.0.state();
                        state.up_to_date_at = state.up_to_date_at.max(asked);
                    }
                    continue;
                }
                () = self.0.shared().query_wanted.notified() => {}
                () = tokio::time::sleep_until(next_query) => {}
            }
            let asked = Instant::now();
            // If the watch has not delivered the resourceVersion of an answer in time, the watch is
            // broken.
            if unreached.is_some_and(|it| asked - it.asked > STREAM_TIMEOUT) {
                return LinkError::Failed("the leader's watch delivers no changes".to_owned());
            }
            match self.ask(link).await {
                Ok(answer) if answer.is_of(term) => {
                    unanswered = 0;
                    next_query = asked + QUERY_INTERVAL;
                    unreached.get_or_insert(self.record_answer(&answer, asked));
                    continue;
                }
                // The other replica is reachable, but its answer is not usable.
                Ok(_) | Err(LinkError::Refused(_) | LinkError::NotAuthorized(_)) => {
                    unanswered = 0;
                }
                Err(LinkError::AnotherTerm) => return LinkError::AnotherTerm,
                Err(_) => unanswered += 1,
            }
            if unanswered >= MAX_UNANSWERED_QUERIES {
                return unanswered_queries();
            }
            self.set_asking(false);
            tokio::time::sleep(NO_QUERY_PERIOD).await;
            self.set_asking(true);
            next_query = Instant::now() + QUERY_INTERVAL;
        }
    }

    /// Sends one state query.
    async fn ask(&self, link: &dyn Link) -> Result<PeerAnswer, LinkError> {
        self.0.state().queries += 1;
        let answer = tokio::time::timeout(QUERY_TIMEOUT, link.ask()).await;
        answer.unwrap_or_else(|_| Err(unanswered_queries()))
    }

    /// Records the leader's answer to the last state query, which was sent at the time `asked`.
    fn record_answer(&self, answer: &PeerAnswer, asked: Instant) -> LastAnswer {
        let ago = answer.cluster_answered.map(Duration::from_millis);
        let mut state = self.0.state();
        state.leader_reached_at = Instant::now();
        state.cluster_answered_leader_at = ago.and_then(|ago| asked.checked_sub(ago));
        let answer = LastAnswer {
            query: state.queries,
            asked,
            head: answer.head,
        };
        self.0.shared().answer.send_replace(Some(answer));
        answer
    }
}

fn unanswered_queries() -> LinkError {
    LinkError::Failed("the leader does not answer state queries".to_owned())
}
