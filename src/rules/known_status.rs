//! A cache of the status that a rule set has in the cluster. Watch events, and the answers to the
//! controller's own writes, can arrive in any order. This module keeps the newest status, and finds
//! out whether another client has edited this status.

use ifo_api::ruleset::OperationRuleSetStatus;

/// The newest known status of a rule set in the cluster. The status comes from a watch event, or
/// from the answer to the controller's own write.
#[derive(Clone, Debug, Default)]
pub(super) struct KnownStatus {
    /// The resourceVersion of the rule set. `None` for a rule set from a file.
    pub(super) version: Option<String>,
    pub(super) status: OperationRuleSetStatus,
    /// True if an event since the controller's last recorded write contained a different status.
    /// Usually, another client has edited the status then. The event can also show the controller's
    /// own write, if the event arrives before the answer to the write.
    pub(super) edited: bool,
}

impl KnownStatus {
    /// Records the status in a watch event. Ignores an event that is not newer than the known status.
    pub(super) fn observe(
        &mut self,
        version: Option<String>,
        status: Option<&OperationRuleSetStatus>,
    ) {
        let Some(version) = version.filter(|version| self.is_older_than(version)) else {
            return;
        };
        let status = status.cloned().unwrap_or_default();
        self.edited |= status != self.status;
        self.status = status;
        self.version = Some(version);
    }

    /// Records the status that the controller itself has written. `version` is the resourceVersion
    /// of the rule set after this write. `None` for a rule set from a file or a deleted rule set.
    pub(super) fn record_own_write(
        &mut self,
        version: Option<String>,
        status: OperationRuleSetStatus,
    ) {
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

    /// Returns true if `other` is newer than the known version. resourceVersions of one resource
    /// can be compared as numbers (KEP-5504). If one of the two versions is not a number, every
    /// different version counts as newer.
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
