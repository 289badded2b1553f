//! The objects about which one review decides.

use crate::index::Key;
use ifo_api::live::SubjectReference;
use ifo_api::{GROUP, Text, VERSION};

/// All objects of one kind in one namespace. The namespace of cluster-scoped objects is empty.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Place {
    pub(super) api_version: Text,
    pub(super) kind: Text,
    pub(super) namespace: Text,
}

impl Place {
    pub(super) fn of(subject: &SubjectReference) -> Self {
        // The kube-apiserver authorizes a request for a Namespace in this namespace.
        let is_namespace = *subject.kind == *"Namespace" && *subject.api_version == *"v1";
        let namespace = if is_namespace {
            Some(&subject.name)
        } else {
            subject.namespace.as_ref()
        };
        Self {
            api_version: subject.api_version.clone(),
            kind: subject.kind.clone(),
            namespace: namespace.cloned().unwrap_or_default(),
        }
    }

    /// Returns the object that an activity is about. The activity of the cluster is about no object,
    /// and the one of a component is about the rule sets.
    pub(super) fn of_activity(key: &Key) -> Option<Self> {
        let (api_version, kind, namespace) = match key.name.split_once('.') {
            Some(("node", _)) => ("v1".to_owned(), "Node", ""),
            Some(("component", _)) => (format!("{GROUP}/{VERSION}"), "OperationRuleSet", ""),
            _ if *key.name == *"cluster" => return None,
            _ => ("v1".to_owned(), "Namespace", key.object_namespace()),
        };
        Some(Self {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.into(),
        })
    }
}
