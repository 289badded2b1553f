//! The status of a rule set in the API server. Watch events and the answers to our own writes can
//! arrive in any order. This module keeps the newest status, and finds out whether another client
//! has edited it.

use ifo_api::ruleset::OperationRuleSetStatus;

/// The status of a rule set in the API server. It comes from a watch event or from the answer to
/// our own write, depending on which of them has the newer version.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldStatus {
    /// The resourceVersion. Rule sets from files have none.
    pub(super) version: Option<String>,
    pub(super) status: OperationRuleSetStatus,
    /// True if another client has edited the status since our last write.
    pub(super) edited: bool,
}

impl HeldStatus {
    /// Records the status of a watch event. Returns true if the event is newer than the known
    /// status. The event of our own write may arrive before or after the answer to the write.
    pub(super) fn observe(
        &mut self,
        version: Option<String>,
        status: Option<&OperationRuleSetStatus>,
    ) -> bool {
        let Some(version) = version.filter(|version| self.is_older_than(version)) else {
            return false;
        };
        let status = status.cloned().unwrap_or_default();
        self.edited |= status != self.status;
        self.status = status;
        self.version = Some(version);
        true
    }

    /// Records the status that our own write has set, and its version.
    pub(super) fn answered(&mut self, version: Option<String>, status: OperationRuleSetStatus) {
        if version.is_some() && version != self.version {
            let is_newer = version.as_deref().is_some_and(|it| self.is_older_than(it));
            if !is_newer {
                return; // An event of a later change has already arrived.
            }
            self.version = version;
        }
        self.status = status;
        self.edited = false;
    }

    /// Returns true if `other` is newer than the known version. Kubernetes compares the versions of
    /// one resource as numbers (KEP-5504). If a version is not a number, every other version counts
    /// as newer.
    fn is_older_than(&self, other: &str) -> bool {
        let Some(known) = &self.version else {
            return true;
        };
        match (known.parse::<u64>(), other.parse::<u64>()) {
            (Ok(known), Ok(other)) => known < other,
            _ => known != other,
        }
    }
}
