//! Publishes the result of the election.
//!
//! Input: the state of the election. Output: the [`LeaderView`] of this replica, and one log line
//! for each problem with the Lease.

use super::super::record::LeaseRecord;
use super::super::{LeaderView, LeaseStore};
use super::Election;
use tokio::sync::watch;

impl<S: LeaseStore> Election<S> {
    /// Returns the standing of this replica.
    fn standing(&self) -> LeaderView {
        if let Some(leading) = &self.leading {
            return LeaderView::Leading(leading.leadership.clone());
        }
        if !self.has_read {
            return LeaderView::Unknown;
        }
        let record = self.seen.as_ref().map(|seen| &seen.record);
        let holder = record.and_then(LeaseRecord::holder);
        let has_expired = self.seen.as_ref().is_some_and(|seen| seen.has_expired);
        match &self.last {
            Some(last)
                if holder == Some(&last.term) && !has_expired && !self.is_own(&last.term) =>
            {
                LeaderView::Following(last.clone())
            }
            last => LeaderView::Vacant {
                last: last.clone(),
                final_version: if holder == self.led.as_ref() && holder.is_some() {
                    self.retired
                } else {
                    record.and_then(|record| record.final_version)
                },
            },
        }
    }

    /// Publishes the standing, if it has changed.
    pub(super) fn publish(&self, standing: &watch::Sender<LeaderView>) {
        let now = self.standing();
        self.metrics.leader(matches!(now, LeaderView::Leading(_)));
        standing.send_if_modified(|before| {
            let is_new = *before != now;
            if is_new {
                if let LeaderView::Following(leader) = &now {
                    tracing::info!(term = %leader.term, address = %leader.address, "this replica follows");
                }
                *before = now;
            }
            is_new
        });
    }

    /// Logs the beginning and the end of a problem, once each.
    pub(super) fn report(&mut self, problem: Option<String>) {
        if self.problem != problem {
            if let Some(problem) = &problem {
                tracing::warn!("{problem}");
            } else {
                tracing::info!("the Lease can be read and written again");
            }
            self.problem = problem;
        }
    }
}
