//! The results of the election: the standing of this replica, and its right to lead.

use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// The name of one leadership: the holder identity in the Lease. It consists of the UID of the Pod,
/// `_`, and a random part for each acquisition. So a term is never resumed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term(Arc<str>);

impl Term {
    /// Creates a term with this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Returns the name, as it is in the Lease.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A replica that leads or has led.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// Its term.
    pub term: Term,
    /// `HOST:PORT` at which the other replicas reach it. Empty if the Lease has no valid address.
    pub address: String,
}

/// The role of this replica.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaderView {
    /// The Lease has not been read yet.
    Unknown,
    /// No replica leads.
    Vacant {
        /// The last known leader. None if there was no leader yet.
        last: Option<Leader>,
        /// The last version of that leader, if it released the Lease.
        final_version: Option<Rv>,
    },
    /// Another replica leads. While the kube-apiserver cannot be reached, this is the leader of the
    /// last read.
    Following(Leader),
    /// This replica leads.
    Leading(Leadership),
}

/// The right of this replica to lead, for one term. All clones lose it together.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// The term.
    pub term: Term,
    /// The first version of the term.
    pub start: Rv,
    grant: watch::Receiver<LeadershipGrant>,
}

/// Compares the terms of two leaderships.
impl PartialEq for Leadership {
    fn eq(&self, other: &Self) -> bool {
        self.term == other.term
    }
}

/// The rights from the last acknowledged renewal.
#[derive(Clone, Copy, Debug)]
pub(super) struct LeadershipGrant {
    /// The highest version that may be issued.
    pub reserved: Rv,
    /// Time at which the leadership ends without another renewal.
    pub until: BootTime,
    /// True if the leadership has ended for another reason.
    pub lost: bool,
}

impl Leadership {
    /// The leadership of a server without an election. It is never lost, and all versions from
    /// `start` on are reserved.
    pub fn alone(start: Rv) -> Self {
        let granted = LeadershipGrant {
            reserved: Rv(Rv::MAX.0 - 1),
            until: BootTime::MAX,
            lost: false,
        };
        Self {
            term: Term::new("alone"),
            start,
            grant: watch::channel(granted).1,
        }
    }

    /// Creates a leadership, and the sender that renews it.
    pub(super) fn new(
        term: Term,
        start: Rv,
        grant: LeadershipGrant,
    ) -> (watch::Sender<LeadershipGrant>, Self) {
        let (sender, grant) = watch::channel(grant);
        (sender, Self { term, start, grant })
    }

    /// Returns the highest version that this replica may issue. Rv(0) after the leadership is lost.
    ///
    /// No other term issues a version from [`Leadership::start`] to the returned version. This
    /// holds even if the process is paused after the call for any time. If the clock is ahead of
    /// this version, the next version is the one after the head, as long as it is reserved.
    pub fn reserved(&self) -> Rv {
        let grant = *self.grant.borrow();
        // Without an election the leadership has no end, so no clock is read.
        let is_over = grant.until < BootTime::MAX && clock::boot() >= grant.until;
        if grant.lost || is_over {
            return Rv(0);
        }
        grant.reserved
    }

    /// Waits until a version above `rv` is reserved. Returns false if the leadership is lost.
    pub async fn reserved_above(&self, rv: Rv) -> bool {
        let mut grant = self.grant.clone();
        loop {
            grant.mark_unchanged();
            if !self.is_valid() {
                return false;
            }
            if self.reserved() > rv {
                return true;
            }
            // An error means that the election was dropped, so the Lease is not renewed any more.
            if grant.changed().await.is_err() {
                return false;
            }
        }
    }

    /// Returns true if the last acknowledged renewal was sent within the renew deadline, no other
    /// holder was seen, and this replica did not release the Lease.
    pub fn is_valid(&self) -> bool {
        self.reserved() > Rv(0)
    }

    /// Returns the reserved version, even if the leadership is lost.
    #[cfg(test)]
    pub(super) fn granted(&self) -> Rv {
        self.grant.borrow().reserved
    }
}
