//! The status of a rule set in the API server. Enters: watch events, and the answers to our own
//! writes, in any order. Leaves: the newest status, and whether another client has edited it.

use ifo_api::ruleset::OperationRuleSetStatus;

/// What the API server is known to hold of a rule set, from the newest watch event or from
/// the answer to our own last write, whichever has the newer version.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldStatus {
    /// The resourceVersion. Rule sets from files have none.
    pub(super) version: Option<String>,
    pub(super) status: OperationRuleSetStatus,
    /// Whether another client has edited the status since our own last write.
    pub(super) edited: bool,
}

impl HeldStatus {
    /// A watch event shows this. True if it is newer than what is known. The event of our own
    /// write can come before the answer to it, or after it.
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

    /// Our own write of this status made this version.
    pub(super) fn answered(&mut self, version: Option<String>, status: OperationRuleSetStatus) {
        if version.is_some() && version != self.version {
            let is_newer = version.as_deref().is_some_and(|it| self.is_older_than(it));
            if !is_newer {
                return; // An event has already shown what came after our write.
            }
            self.version = version;
        }
        self.status = status;
        self.edited = false;
    }

    /// Whether `other` is newer than the known version. Kubernetes compares versions of one
    /// resource as numbers (KEP-5504). If a server has others, each change is taken for newer.
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
