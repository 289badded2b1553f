//! The results of the election: the standing of this replica, and the right to lead.

use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use std::fmt;
use std::sync::Arc;
use tokio::sync::watch;

/// One leadership: the holder identity of the Lease. It consists of the UID of the Pod,
/// `_`, and a random part for each acquisition. So no term is ever resumed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Term(Arc<str>);

impl Term {
    /// The term with this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// Its name, as the Lease has it.
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
    /// `HOST:PORT` at which the other replicas reach it. Empty if the Lease does not have
    /// a usable address.
    pub address: String,
}

/// The role of this replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Standing {
    /// The Lease has not been read yet.
    Unknown,
    /// No replica leads.
    Vacant {
        /// The last known leader. None if there was no leader yet.
        last: Option<Leader>,
        /// The last version of that leader, if it released the Lease.
        final_version: Option<Rv>,
    },
    /// Another replica leads. While the kube-apiserver cannot be reached, this stays the
    /// replica that led when the Lease was last read.
    Following(Leader),
    /// This replica leads.
    Leading(Leadership),
}

/// The right of this replica to lead, for one term. All clones are lost together.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// The term.
    pub term: Term,
    /// The first version of the term.
    pub start: Rv,
    grant: watch::Receiver<Grant>,
}

/// Leaderships are equal if their terms are.
impl PartialEq for Leadership {
    fn eq(&self, other: &Self) -> bool {
        self.term == other.term
    }
}

/// What the last acknowledged renewal grants.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    /// The highest version that may be issued.
    pub reserved: Rv,
    /// When the leadership ends without another renewal.
    pub until: BootTime,
    /// Whether the leadership has ended for another reason.
    pub lost: bool,
}

impl Leadership {
    /// That of a server without an election: it is never lost, and has all versions from
    /// `start` on.
    pub fn alone(start: Rv) -> Self {
        let granted = Grant {
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

    /// A leadership, and the sender that renews it.
    pub(super) fn new(term: Term, start: Rv, grant: Grant) -> (watch::Sender<Grant>, Self) {
        let (sender, grant) = watch::channel(grant);
        (sender, Self { term, start, grant })
    }

    /// The highest version that this replica may issue. Rv(0) once the leadership is lost.
    ///
    /// No other term issues a version from [`Leadership::start`] to this one, even if this
    /// process is paused after the call for any time. So a version that was read here stays
    /// safe to issue. A clock may run ahead of this version; then the next version is the
    /// one after the head, as long as that is reserved.
    pub fn reserved(&self) -> Rv {
        let grant = *self.grant.borrow();
        // Without an election there is no end, and so no clock to read.
        let is_over = grant.until < BootTime::MAX && clock::boot() >= grant.until;
        if grant.lost || is_over {
            return Rv(0);
        }
        grant.reserved
    }

    /// Waits until a version above `rv` is reserved. False once the leadership is lost.
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
            // An error means that the election was dropped, so nothing renews any more.
            if grant.changed().await.is_err() {
                return false;
            }
        }
    }

    /// True while the last acknowledged renewal was sent within the renew deadline, no
    /// other holder was seen, and this replica did not release the Lease.
    pub fn is_valid(&self) -> bool {
        self.reserved() > Rv(0)
    }

    /// What was reserved, even if the leadership is lost.
    #[cfg(test)]
    pub(super) fn granted(&self) -> Rv {
        self.grant.borrow().reserved
    }
}
