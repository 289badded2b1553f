//! The leadership of this replica (process): the replica's role in the leader election, and the
//! right of a leader to issue resourceVersions.

use crate::clock;
use crate::clock::BootTime;
use crate::index::Rv;
use ifo_api::Text;
use tokio::sync::watch;

/// The name of a leadership term. A leadership term is the time for which one leader holds the
/// Lease.
///
/// The name is the `holderIdentity` in the Lease. It consists of the UID of the leader's Pod, `_`,
/// and a random number. Outside a Pod, another random number replaces the UID. A replica chooses a
/// new number after `_` for each acquisition of the Lease, so no two terms have the same name.
pub type Term = Text;

/// A replica that leads now or has led before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leader {
    /// The leadership term of the replica.
    pub term: Term,
    /// The `HOST:PORT` at which other replicas connect to this leader. Empty if the Lease has no
    /// valid address.
    pub address: String,
}

/// The role of this replica.
#[derive(Clone, Debug, PartialEq)]
pub enum ReplicaRole {
    /// The Lease has not been read yet, or no replica leads, as far as this replica knows. If the
    /// last leader has released the Lease, the value is this leader and the last resourceVersion
    /// that it issued.
    Vacant(Option<(Leader, Rv)>),
    /// Another replica leads. While the kube-apiserver is unreachable, this is the leader from the
    /// last successful read of the Lease.
    Following(Leader),
    /// This replica leads.
    Leading(Leadership),
}

/// The right of this replica to lead during one term. All clones lose this right at the same time.
#[derive(Clone, Debug)]
pub struct Leadership {
    /// The leadership term.
    pub term: Term,
    /// The first resourceVersion of the term.
    pub start: Rv,
    grant: watch::Sender<LeadershipGrant>,
}

/// Two leaderships are equal if their terms are equal.
impl PartialEq for Leadership {
    fn eq(&self, other: &Self) -> bool {
        self.term == other.term
    }
}

/// The rights that the leader got with its last successful write of the Lease. This write was the
/// acquisition or a renewal.
#[derive(Clone, Copy, Debug)]
struct LeadershipGrant {
    /// The highest resourceVersion that the leader may issue.
    reserved: Rv,
    /// The time at which the leadership ends if the Lease is not renewed again.
    until: BootTime,
}

impl LeadershipGrant {
    fn has_expired(self) -> bool {
        // Without an election, the leadership never expires, so the clock is not read.
        self.until < BootTime::MAX && clock::boot() >= self.until
    }
}

impl Leadership {
    /// Creates the leadership of a server that runs without an election. This leadership is never
    /// lost, and all resourceVersions from `start` on are reserved.
    pub fn alone(start: Rv) -> Self {
        Self::new("alone".into(), start, Rv(Rv::MAX.0 - 1), BootTime::MAX)
    }

    /// Creates the leadership of a replica that acquires the Lease. The replica may issue
    /// resourceVersions up to `reserved`, and leads until the time `until`.
    pub(super) fn new(term: Term, start: Rv, reserved: Rv, until: BootTime) -> Self {
        let granted = LeadershipGrant { reserved, until };
        let grant = watch::Sender::new(granted);
        Self { term, start, grant }
    }

    /// Records a successful renewal of the Lease. If the leadership is already over, the renewal
    /// does not extend it.
    pub(super) fn renew(&self, reserved: Rv, until: BootTime) {
        self.grant.send_modify(|grant| {
            if !grant.has_expired() {
                (grant.reserved, grant.until) = (reserved, until);
            }
        });
    }

    /// Ends the leadership at once.
    pub(super) fn end(&self) {
        self.grant.send_modify(|grant| grant.until = clock::boot());
    }

    /// Returns the time at which the leadership ends if the Lease is not renewed again.
    pub(super) fn until(&self) -> BootTime {
        self.grant.borrow().until
    }

    /// Returns the highest resourceVersion that this replica may issue. Returns `Rv(0)` if the
    /// leadership is lost.
    ///
    /// The resourceVersions from [`Leadership::start`] to the returned one belong to this replica
    /// alone. Suppose that this process is paused after the call, and another replica takes
    /// over. The new leader then issues only higher resourceVersions.
    ///
    /// The index takes each new resourceVersion from the clock. If the clock is behind the last
    /// issued resourceVersion, the index adds 1 to the last issued one instead. If the new
    /// resourceVersion is above the value that this function returns, the leader does not issue it
    /// yet. The leader waits until a renewal of the Lease has reserved it.
    pub fn reserved(&self) -> Rv {
        let grant = *self.grant.borrow();
        if grant.has_expired() {
            Rv(0)
        } else {
            grant.reserved
        }
    }

    /// Waits until a resourceVersion above `rv` is reserved. Returns None if the leadership is
    /// lost. As in [`Leadership::lost`], the election ends this wait when the leadership expires.
    pub async fn reserved_above(&self, rv: Rv) -> Option<()> {
        let mut grant = self.grant.subscribe();
        let is_over_or_enough =
            |grant: &LeadershipGrant| grant.has_expired() || grant.reserved > rv;
        // `self` has the sender, so this wait cannot fail.
        let _ = grant.wait_for(is_over_or_enough).await;
        self.is_valid().then_some(())
    }

    /// Waits until the leadership is over. The passage of time alone does not end this wait: the
    /// election ends an expired leadership, and thus the wait.
    pub async fn lost(&self) {
        let mut grant = self.grant.subscribe();
        // `self` has the sender, so this wait cannot fail.
        let _ = grant.wait_for(|grant| grant.has_expired()).await;
    }

    /// Returns true while this replica leads. The leadership ends in these cases:
    ///
    /// - The kube-apiserver acknowledges no renewal of the Lease within the renew deadline.
    /// - The Lease has another holder.
    /// - This replica releases the Lease.
    pub fn is_valid(&self) -> bool {
        !self.grant.borrow().has_expired()
    }

    /// Returns the highest reserved resourceVersion, even if the leadership is lost.
    #[cfg(test)]
    pub(super) fn granted(&self) -> Rv {
        self.grant.borrow().reserved
    }
}
