//! Wire types of our groups, their names, labels and schemas. No logic.

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

/// A resource as discovery names it: group (`""` is the core group), version and
/// the lower-case plural.
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
    /// `group/version`, or `version` alone in the core group.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }
}

/// `group/version/resource`, or `version/resource` in the core group.
impl fmt::Display for Gvr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        write!(f, "{}/{}", self.version, self.resource)
    }
}

/// What one feed is about: a target, everywhere or in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Source {
    /// The resource.
    pub target: Arc<Gvr>,
    /// The namespace; None is all of them.
    pub namespace: Option<Arc<str>>,
}

impl Source {
    /// Whether this feed tells of objects of `target` in `namespace` (None:
    /// cluster-scoped ones).
    pub fn covers(&self, target: &Gvr, namespace: Option<&str>) -> bool {
        *self.target == *target
            && self
                .namespace
                .as_deref()
                .is_none_or(|own| Some(own) == namespace)
    }
}

/// `group/version/resource`, with ` in namespace` when there is one.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} in {namespace}", self.target),
            None => write!(f, "{}", self.target),
        }
    }
}

/// What discovery says of a target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// It is there, and can be listed and watched.
    Served {
        /// Kind of its objects.
        kind: String,
        /// Whether they live in namespaces.
        namespaced: bool,
    },
    /// Discovery answered cleanly, and it is not there.
    NotServed {
        /// What is missing.
        message: String,
        /// Whether the cluster serves the target's API group. If it does not, the product
        /// that brings the resource is not installed. If it does, the rule set most likely
        /// has a typo in the version or the resource.
        group_served: bool,
    },
    /// Discovery did not answer cleanly, so nothing follows from it.
    Unknown {
        /// What went wrong.
        message: String,
    },
}
