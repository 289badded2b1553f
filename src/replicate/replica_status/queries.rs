//! Sends the state queries of a follower to the leader. The answer contains the leader's newest
//! resourceVersion. [`ReplicaStatus::wait_until_current`] delays a read until this replica's index
//! has reached that resourceVersion.

use super::{LastAnswer, MAX_UNANSWERED_QUERIES, QUERY_INTERVAL, QUERY_TIMEOUT, ReplicaStatus};
use crate::index::Rv;
use crate::replicate::link::{Link, LinkError, PeerAnswer};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// If the leader does not answer a state query, or its answer is not usable, the follower sends no
/// further query for this time. Meanwhile, the follower answers reads from its own index at once.
const NO_QUERY_PERIOD: Duration = Duration::from_secs(1);

/// The time within which the follower's index must reach the resourceVersion in the answer to a
/// state query. Each page of the leader's list starts this time again. After this time, the
/// follower closes the connection and connects again.
///
/// For example, after a network failure, the leader may still answer state queries, but the watch
/// delivers no changes.
const STREAM_TIMEOUT: Duration = Duration::from_secs(10);

impl ReplicaStatus {
    /// Records the reason why the copy of the leader's index is interrupted. `reason` is None if
    /// the copy works.
    pub fn set_interruption(&self, reason: Option<LinkError>) {
        let mut state = self.state();
        if reason == Some(LinkError::NotRegistered) {
            // The time limit `UNREADY_WITHOUT_LEADER` counts only from the registration of our
            // `APIService`.
            state.leader_reached_at = Instant::now();
        }
        state.interruption = reason;
    }

    /// Sets whether this replica sends state queries, and reads wait for the answers.
    pub fn set_asking(&self, is_asking: bool) {
        let before_all_reads = LastAnswer {
            query: 0,
            asked: Instant::now(),
            head: Rv(0),
        };
        let answer = is_asking.then_some(before_all_reads);
        self.0.answer.send_replace(answer);
    }

    /// Records that this replica now follows a leader.
    pub(in crate::replicate) fn begin_following(&self) {
        self.set_interruption(None);
        self.set_asking(false);
        self.state().leader_reached_at = Instant::now();
    }

    /// Starts the time limit [`STREAM_TIMEOUT`] again, because a connection has begun or a page of
    /// the leader's list has arrived.
    pub(in crate::replicate) fn record_progress(&self) {
        self.state().unreached = None;
    }

    /// Sends state queries to the leader until the connection must be closed, and returns the
    /// reason. If reads are waiting, sends a query at once. One query serves all waiting reads. If
    /// no read arrives, sends the next query after [`QUERY_INTERVAL`].
    pub(in crate::replicate) async fn send_queries(&self, link: &Link) -> LinkError {
        let mut unanswered = 0;
        // The time at which the next query is sent even if no read is waiting.
        let mut next_query = Instant::now() + QUERY_INTERVAL;
        self.record_progress();
        loop {
            // The wait ends at `next_query` if no read arrives before.
            let _ = timeout_at(next_query, self.0.query_wanted.notified()).await;
            let is_late = |it: LastAnswer| it.asked.elapsed() > STREAM_TIMEOUT;
            if self.state().unreached.is_some_and(is_late) {
                return LinkError::Failed("the leader sends no objects and no changes".to_owned());
            }
            match self.ask(link).await {
                Ok(answer) if answer.leading => {
                    unanswered = 0;
                    next_query = Instant::now() + QUERY_INTERVAL;
                    continue;
                }
                // The other replica is reachable, but its answer is not usable.
                Ok(_) => unanswered = 0,
                Err(error) => {
                    unanswered += 1;
                    if error == LinkError::AnotherTerm || unanswered >= MAX_UNANSWERED_QUERIES {
                        return error;
                    }
                }
            }
            self.set_asking(false);
            sleep(NO_QUERY_PERIOD).await;
            self.set_asking(true);
            next_query = Instant::now() + QUERY_INTERVAL;
        }
    }

    /// Sends one state query, and records the answer. The caller uses two resourceVersions of the
    /// first answer of a connection:
    ///
    /// - [`PeerAnswer::oldest`]: if this replica needs the leader's whole state, it lists the state
    ///   at this resourceVersion, and then watches the later changes.
    /// - [`PeerAnswer::head`]: when this replica's index has this resourceVersion, this replica is
    ///   in sync.
    pub(in crate::replicate) async fn ask(&self, link: &Link) -> Result<PeerAnswer, LinkError> {
        let asked = Instant::now();
        self.state().queries += 1;
        let answer = timeout(QUERY_TIMEOUT, link.ask()).await;
        let late = || LinkError::Failed("the leader does not answer state queries".to_owned());
        let answer = answer.map_err(|_| late())??;
        let mut state = self.state();
        state.leader_reached_at = Instant::now();
        state.interruption = None;
        let last = LastAnswer {
            query: state.queries,
            asked,
            head: Rv(answer.head),
        };
        state.unreached.get_or_insert(last);
        self.0.answer.send_replace(Some(last));
        Ok(answer)
    }
}
