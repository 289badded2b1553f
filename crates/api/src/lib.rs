//! The types of this project's API groups: `OperationRuleSet`, `InFlightOperation`, `Activity` and
//! `OperationRecord`, with the names, labels and schemas that belong to them. The server, the
//! plugin and the engine use this crate.

pub mod activity;
pub mod completeness;
pub mod duration;
mod key;
pub mod labels;
pub mod live;
pub mod metadata;
mod object;
pub mod persisted;
mod printable;
pub mod record;
pub mod ruleset;
pub mod schema;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod text;

pub use key::{Collection, Key};
pub use object::Object;
pub use printable::{is_unprintable, printable};
pub use text::Text;

use ruleset::constraints;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// API group of the CRDs: `OperationRuleSet`, and operations that are stored as custom resources.
pub const GROUP: &str = "ifo.kubevirt.io";
/// API group that `ifo-apiserver` serves through API aggregation.
pub const LIVE_GROUP: &str = "live.ifo.kubevirt.io";
/// API version of both groups.
pub const VERSION: &str = "v1alpha1";

/// The identity of a resource in discovery: group, version and plural.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(expecting = "an object")]
pub struct Gvr {
    /// API group, such as `kubevirt.io`; `""` is the core group. The groups `ifo.kubevirt.io` and
    /// `live.ifo.kubevirt.io` are refused: the server does not detect operations on its own
    /// objects.
    #[schemars(length(max = 253), regex(pattern = constraints::GROUP))]
    pub group: String,
    /// API version, such as `v1`.
    #[schemars(length(min = 1, max = 63), regex(pattern = constraints::DNS_1035_LABEL))]
    pub version: String,
    /// Plural resource name in lower case, such as `virtualmachines`. Subresources cannot
    /// be watched.
    #[schemars(length(min = 1, max = 63), regex(pattern = constraints::DNS_1035_LABEL))]
    pub resource: String,
}

impl Gvr {
    /// Returns `group/version`, or only `version` for the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Formats the resource as `group/version/resource`, or `version/resource` for the core group.
impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        write!(f, "{}/{}", self.version, self.resource)
    }
}

/// The identity of one feed. A feed is the watch of a resource in all namespaces or in one
/// namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// Resource that the feed watches.
    pub target: Arc<Gvr>,
    /// Namespace that the feed watches. None if the feed watches all namespaces.
    pub namespace: Option<Text>,
}

impl Source {
    /// Returns true if this feed reports the objects of `target` in `namespace`. `namespace` is
    /// None for cluster-scoped objects.
    pub fn covers(&self, target: &Gvr, namespace: Option<&str>) -> bool {
        *self.target == *target
            && self
                .namespace
                .as_deref()
                .is_none_or(|own| Some(own) == namespace)
    }
}

/// Formats the feed as `group/version/resource`, or `group/version/resource in namespace`.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} in {namespace}", self.target),
            None => write!(f, "{}", self.target),
        }
    }
}

/// The result of discovery for the target of a rule set. The target is the resource that the server
/// watches for the rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The target exists, and can be listed and watched.
    Served {
        /// Kind of the target's objects.
        kind: String,
        /// True if the target's objects are namespaced.
        namespaced: bool,
    },
    /// Discovery succeeded. The cluster does not serve the target, or the target cannot be listed
    /// and watched.
    NotServed {
        /// Explanation: which part of the target is missing (group, version or resource), or why
        /// the target cannot be watched.
        message: String,
        /// - True: the cluster serves the target's API group. The version or the resource in the
        ///   rule set is probably misspelt.
        /// - False: the product that defines the resource is probably not installed.
        group_served: bool,
        /// A served API group whose name is similar to the missing API group. If there is one, the
        /// missing group is probably misspelt.
        similar_group: Option<String>,
    },
    /// Discovery failed, so it is unknown whether the target exists.
    Unknown {
        /// The error that discovery returned.
        message: String,
    },
}
