//! Answers the state queries of followers, and ends the streams of changes to them.

use super::{MAX_UNANSWERED_QUERIES, QUERY_INTERVAL, ReplicaStatus};
use crate::replicate::Term;
use crate::replicate::link::PeerAnswer;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

impl ReplicaStatus {
    /// Answers a state query of another replica. `term` is the term in the query. Returns None if
    /// this replica does not serve the changes of `term`.
    pub fn answer(&self, term: &str) -> Option<PeerAnswer> {
        self.end_of_streams(term)?;
        self.state().last_peer_query = Some(Instant::now());
        Some(PeerAnswer {
            leading: self.leads(),
            head: self.0.reader.head().0,
            oldest: self.0.reader.oldest().0,
        })
    }

    /// Returns true if another replica copies this replica's index: a state query has arrived in
    /// the last 6 s. A replica that copies the index sends a state query about every 2 s.
    pub fn is_index_copied(&self) -> bool {
        let last = self.state().last_peer_query;
        last.is_some_and(|last| last.elapsed() < QUERY_INTERVAL * MAX_UNANSWERED_QUERIES)
    }

    /// Returns a token for the streams of `term` to followers. The streams end when the token is
    /// cancelled. Returns None if this replica does not serve the changes of `term`.
    ///
    /// A leader that has released its Lease still serves the changes of its last term, so that the
    /// next leader can copy them.
    pub fn end_of_streams(&self, term: &str) -> Option<CancellationToken> {
        let state = self.state();
        let (own, ended) = state.served.as_ref()?;
        (*own == *term).then(|| ended.child_token())
    }

    /// Serves the changes of `term` to followers from now on. Ends the streams of the previous
    /// term.
    pub fn serve(&self, term: &Term) {
        self.end_streams(false);
        self.state().served = Some((term.clone(), CancellationToken::new()));
    }

    /// Ends the streams of changes to all followers, so that the followers look for the next
    /// leader. If this replica has released the Lease (`released`), followers may connect again to
    /// read the last changes of the term.
    pub fn end_streams(&self, released: bool) {
        let mut state = self.state();
        if let Some((term, ended)) = state.served.take() {
            ended.cancel();
            state.served = released.then(|| (term, CancellationToken::new()));
        }
    }
}
