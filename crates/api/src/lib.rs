//! Wire types of our API groups, with their names, labels and schemas. This crate has no logic.

pub mod completeness;
pub mod duration;
mod key;
pub mod labels;
pub mod live;
pub mod persisted;
pub mod ruleset;
pub mod schema;

pub use key::{Key, compare_namespaces};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

/// The group of the CRDs: `OperationRuleSet`, and the persisted operations.
pub const GROUP: &str = "ifo.kubevirt.io";
/// The group that this server serves through API aggregation.
pub const LIVE_GROUP: &str = "live.ifo.kubevirt.io";
/// The version of both groups.
pub const VERSION: &str = "v1alpha1";

/// A resource in discovery: group (`""` is the core group), version and lower-case plural.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gvr {
    /// API group; empty for the core group.
    pub group: String,
    /// API version, such as `v1`.
    pub version: String,
    /// Plural resource name, such as `virtualmachines`.
    pub resource: String,
}

impl Gvr {
    /// Formats `group/version`, or `version` in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// Formats `group/version/resource`, or `version/resource` in the core group.
impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        write!(f, "{}/{}", self.version, self.resource)
    }
}

/// The scope of one feed: a target in all namespaces or in one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The resource.
    pub target: Arc<Gvr>,
    /// The namespace. None means all namespaces.
    pub namespace: Option<Arc<str>>,
}

impl Source {
    /// Returns true if this feed reports objects of `target` in `namespace`, which is None for
    /// cluster-scoped objects.
    pub fn covers(&self, target: &Gvr, namespace: Option<&str>) -> bool {
        *self.target == *target
            && self
                .namespace
                .as_deref()
                .is_none_or(|own| Some(own) == namespace)
    }
}

/// Formats `group/version/resource`, followed by ` in namespace` if there is one.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} in {namespace}", self.target),
            None => write!(f, "{}", self.target),
        }
    }
}

/// The result of discovery for a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// The target exists, and can be listed and watched.
    Served {
        /// Kind of its objects.
        kind: String,
        /// True if the objects are namespaced.
        namespaced: bool,
    },
    /// Discovery was complete, and the target does not exist.
    NotServed {
        /// The missing part.
        message: String,
        /// True if the cluster serves the target's API group. If it does not, the product that
        /// defines the resource is not installed. If it does, the rule set probably has a typing
        /// error in the version or the resource.
        group_served: bool,
    },
    /// Discovery was not complete, so the target may exist.
    Unknown {
        /// The error.
        message: String,
    },
}
