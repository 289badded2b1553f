//! The kind and the namespace of subjects. Access to them is reviewed for all together.

use super::Key;
use ifo_api::live::SubjectReference;
use ifo_api::{GROUP, Text, VERSION};

/// All objects of one kind in one namespace. The namespace of cluster-scoped objects is empty. With
/// `--visibility=subject`, one review decides about all operations on these objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The `apiVersion` of the objects.
    pub api_version: Text,
    /// Their kind.
    pub kind: Text,
    /// Their namespace.
    pub namespace: Text,
}

impl Place {
    pub(super) fn of(subject: &SubjectReference) -> Self {
        // The kube-apiserver authorizes a request for the Namespace `a` in the namespace `a`.
        let is_namespace = *subject.kind == *"Namespace" && *subject.api_version == *"v1";
        let namespace = if is_namespace {
            subject.name.clone()
        } else {
            subject.namespace.clone().unwrap_or_default()
        };
        Self {
            api_version: subject.api_version.clone(),
            kind: subject.kind.clone(),
            namespace,
        }
    }

    /// Returns the place of the object that an activity is about. Returns None for the activity of
    /// the cluster. A component has no object of its own, so the place of its activity is that of
    /// the rule sets.
    pub(crate) fn of_activity(key: &Key) -> Option<Self> {
        let (api_version, kind, namespace) = match key.name.split_once('.') {
            Some(("node", _)) => ("v1", "Node", ""),
            Some(("component", _)) => {
                let rule_sets = format!("{GROUP}/{VERSION}");
                return Some(Self::new(&rule_sets, "OperationRuleSet", ""));
            }
            _ if *key.name == *"cluster" => return None,
            _ => ("v1", "Namespace", key.object_namespace()),
        };
        Some(Self::new(api_version, kind, namespace))
    }

    fn new(api_version: &str, kind: &str, namespace: &str) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.into(),
        }
    }
}
