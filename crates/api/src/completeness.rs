//! Types and texts that state whether a list of operations is complete, or why operations may be
//! missing from it. The server sends an [`Incomplete`] in two headers. `Warning` (RFC 7234, section
//! 5.5) contains a sentence for people. [`INCOMPLETE_HEADER`] contains JSON for the plugin.

use crate::metadata::{Metadata, api_version};
use crate::{Collection, Key, Text};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum number of rule sets that an answer names. Further rule sets are only counted, because
/// kubectl prints the warning on one line, and proxies limit the size of headers.
pub const MAX_NAMED: usize = 10;

/// Name of the header that marks a list or watch of operations as complete. An answer with neither
/// this header nor [`INCOMPLETE_HEADER`] does not state whether it is complete. Such an answer
/// comes from another server, or is about another resource, such as records.
pub const COMPLETE_HEADER: &str = "ifo-complete";

/// Name of the header with the [`Incomplete`] of a list or watch of operations, as JSON. A list or
/// watch of activities has this header only with [`Incomplete::NotConfirmed`].
pub const INCOMPLETE_HEADER: &str = "ifo-incomplete";

/// Name of a request header with the names of rule sets, separated by commas. The server answers as
/// if these rule sets missed no operations.
///
/// The plugin names the rule sets that the user ignores, and those that cannot detect the selected
/// operations. The plugin cannot leave out these rule sets itself, because an answer names at most
/// [`MAX_NAMED`] broken rule sets. The plugin would not know whether others are broken.
pub const IGNORED_HEADER: &str = "ifo-ignored-rule-sets";

/// Name of a request header with a label selector. The server answers as if rule sets whose
/// operations the selector cannot match missed no operations.
///
/// The flags of the plugin ignore case, but label selectors do not. So the plugin lists more
/// operations than the user asks for, and selects the components and operations of the user in this
/// header.
pub const SELECTOR_HEADER: &str = "ifo-completeness-selector";

/// The rule sets that may miss operations, at one version of the index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gaps {
    /// True if the server has read the rule sets of the cluster.
    pub rule_sets_are_read: bool,
    /// Number of all rule sets.
    pub total: usize,
    /// The components of all rule sets.
    #[serde(default)]
    pub components: BTreeSet<Text>,
    /// Rule sets that may miss operations, sorted by name.
    pub rule_sets: Vec<Gap>,
}

/// A rule set that may miss operations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Gap {
    /// Name of the rule set.
    pub rule_set: Text,
    /// Reason in a few words, such as `does not compile`, in the format of [`Named::reason`].
    pub reason: String,
    /// True if the rule set is being compiled, or if its target is being listed. These reasons
    /// usually end soon.
    #[serde(default)]
    pub is_being_read: bool,
    /// Component that the rule set belongs to, such as `kubevirt`. Empty if it is unknown.
    pub component: Text,
    /// Kind of the objects that the rule set watches. None if it is unknown.
    pub kind: Option<Text>,
    /// Names of the operations that may be missing. Empty if they are unknown.
    pub operations: Vec<Text>,
    /// The namespaces in which operations may be missing. None means all namespaces.
    pub namespaces: Option<BTreeSet<Text>>,
    /// True if operations on cluster-scoped objects may be missing.
    pub cluster_scoped: bool,
    /// True if the rule set lacks the field `nodes`, so that no operation on a node can be missing.
    #[serde(default)]
    pub lacks_nodes: bool,
}

impl Gap {
    /// Returns true if operations on objects in `namespace` may be missing. None stands for all
    /// namespaces. If `cluster_scoped` is true, also returns true if operations on cluster-scoped
    /// objects may be missing.
    pub fn affects(&self, namespace: Option<&str>, cluster_scoped: bool) -> bool {
        let in_namespace = match (&self.namespaces, namespace) {
            (Some(own), Some(namespace)) => own.contains(namespace),
            (Some(own), None) => !own.is_empty(),
            (None, _) => true,
        };
        in_namespace || self.cluster_scoped && cluster_scoped
    }
}

/// The object of the index that contains the [`Gaps`]. Followers copy this object from the leader.
/// The leader does not serve it to other clients.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GapsObject {
    /// Always `live.ifo.kubevirt.io/v1alpha1`.
    pub api_version: Text,
    /// Always [`GAPS_KIND`].
    pub kind: Text,
    /// The name, and empty values in all other fields.
    pub metadata: Metadata,
    /// The rule sets that may miss operations.
    pub status: Gaps,
}

/// The kind of a [`GapsObject`].
pub const GAPS_KIND: &str = "Gaps";

impl GapsObject {
    /// Creates the object.
    pub fn new(gaps: Gaps) -> Self {
        Self {
            api_version: api_version(),
            kind: GAPS_KIND.into(),
            metadata: Metadata {
                name: "gaps".into(),
                ..Metadata::default()
            },
            status: gaps,
        }
    }

    /// Returns the key of the object in the index.
    pub fn key() -> Key {
        Collection::Gaps.key("", "gaps")
    }
}

/// The reason why operations may be missing from a list. The `Display` text of a reason is the text
/// of the `Warning` header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "camelCase")]
pub enum Incomplete {
    /// The cluster has no rule set.
    #[error("no rule set is installed, so no operation can be detected")]
    NoRuleSets,
    /// The server has not read the rule sets of the cluster yet.
    #[error("the rule sets have not been read yet, operations may be missing")]
    NotRead,
    /// The replica of the server that answers has not been up to date for more than 15 s. For
    /// example, no replica detects operations, or this replica cannot reach the replica that
    /// detects operations.
    #[error(
        "this server has not been up to date for more than 15 s, operations may be missing \
         or over"
    )]
    NotCurrent,
    /// No replica has confirmed, as the leader, that the list has its newest changes. For example, the
    /// leader has crashed less than 15 s ago. The answer has no `Warning`, because most clients can
    /// ignore a short delay.
    #[error(
        "no leader has confirmed that this answer is up to date, operations may be missing or over"
    )]
    NotConfirmed,
    /// The list shows the operations at an older resourceVersion, for example as the second page of
    /// a list. The server no longer knows whether all rule sets worked at that resourceVersion. The
    /// plugin also uses this reason for an answer without a header about its completeness.
    #[error(
        "it is not known whether all rule sets worked at the resourceVersion of this list, \
         operations may be missing"
    )]
    NotKnown,
    /// The server may have hidden operations from the user (`--visibility=subject`), and there is
    /// no other reason. The answer has no `Warning`, because the list contains all operations that
    /// the user may see.
    #[error("operations on objects that you may not get are hidden")]
    Filtered,
    /// The list comes from a file that does not state whether the list was complete. Only the
    /// plugin uses this reason.
    #[error(
        "it was not recorded whether all operations were listed and all rule sets worked, \
         operations may be missing"
    )]
    NotRecorded,
    /// Some rule sets do not work. Contains their number and names.
    #[error("{}, operations may be missing{}", .0.summary(), .0.names())]
    NotWorking(NotWorking),
}

/// The rule sets that do not work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotWorking {
    /// Number of rule sets that do not work.
    pub count: usize,
    /// Number of all rule sets.
    pub total: usize,
    /// Names and reasons of the first [`MAX_NAMED`] rule sets that do not work. Empty for users who
    /// may not list rule sets.
    pub named: Vec<Named>,
}

/// A rule set that does not work, and the reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// Name of the rule set.
    pub name: String,
    /// Reason in a few words.
    pub reason: String,
}

impl NotWorking {
    /// Returns a text such as `2 of 61 rule sets are not working`.
    pub fn summary(&self) -> String {
        let (sets, are) = match (self.total, self.count) {
            (1, _) => ("set", "is"),
            (_, 1) => ("sets", "is"),
            _ => ("sets", "are"),
        };
        format!(
            "{} of {} rule {sets} {are} not working",
            self.count, self.total
        )
    }

    /// Returns a text such as `: tekton-rules (does not compile), 1 more`. The text is empty if no
    /// names are known.
    pub fn names(&self) -> String {
        if self.named.is_empty() {
            return String::new();
        }
        let named = self.named.iter();
        let mut all: Vec<String> = named
            .map(|it| format!("{} ({})", it.name, it.reason))
            .collect();
        match self.count.saturating_sub(all.len()) {
            0 => {}
            more => all.push(format!("{more} more")),
        }
        format!(": {}", all.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn not_working(count: usize, total: usize, names: usize) -> Incomplete {
        let named = (0..names).map(|number| Named {
            name: format!("set-{number}"),
            reason: "does not compile".to_owned(),
        });
        Incomplete::NotWorking(NotWorking {
            count,
            total,
            named: named.collect(),
        })
    }

    #[test]
    fn text_is_one_plain_sentence() {
        for (incomplete, text) in [
            (
                not_working(2, 61, 2),
                "2 of 61 rule sets are not working, operations may be missing: \
                 set-0 (does not compile), set-1 (does not compile)",
            ),
            (
                not_working(1, 61, 0),
                "1 of 61 rule sets is not working, operations may be missing",
            ),
            (
                not_working(1, 1, 0),
                "1 of 1 rule set is not working, operations may be missing",
            ),
            (
                not_working(3, 61, 1),
                "3 of 61 rule sets are not working, operations may be missing: \
                 set-0 (does not compile), 2 more",
            ),
        ] {
            assert_eq!(incomplete.to_string(), text);
        }
    }
}
