//! The subjects on which one review decides.

use crate::index::{IndexEntry, Key, Object};
use ifo_api::{GROUP, VERSION};
use std::borrow::Cow;
use std::hash::{Hash, Hasher};

/// A place: all subjects of one kind in one namespace, or one subject of this kind. One review
/// decides about all operations on these subjects.
///
/// A place borrows its texts from an object, so that a lookup copies no text. A list of 10,000
/// operations looks up 20,000 places.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place<'a> {
    /// The `apiVersion` of the subjects.
    pub(super) api_version: Cow<'a, str>,
    /// Their kind.
    pub(super) kind: Cow<'a, str>,
    /// Their namespace. Empty for cluster-scoped subjects.
    pub(super) namespace: Cow<'a, str>,
    /// The name of a single subject. None for all subjects.
    pub(super) name: Option<Cow<'a, str>>,
}

/// The hash leaves out the `apiVersion` and the kind. A namespace has subjects of few kinds, and a
/// lookup takes half the time without these texts.
impl Hash for Place<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.namespace, &self.name).hash(state);
    }
}

impl<'a> Place<'a> {
    /// Returns the place of the subject of an operation or a record, or of the object that an
    /// activity is about. Returns None for other objects, and for the activity of the cluster.
    pub(super) fn of(entry: &'a IndexEntry) -> Option<Self> {
        if let Object::Activity(_) = entry.object() {
            return Self::of_activity(entry.key());
        }
        let subject = &entry.object().spec()?.subject;
        // The kube-apiserver authorizes a request for the Namespace `a` in the namespace `a`.
        let is_namespace = subject.kind == *"Namespace" && subject.api_version == *"v1";
        let namespace = if is_namespace {
            &*subject.name
        } else {
            subject.namespace.as_deref().unwrap_or_default()
        };
        let api_version = &*subject.api_version;
        Some(Self::new(api_version, &subject.kind, namespace))
    }

    /// Returns the place of the object that an activity is about. Returns None for the activity of
    /// the cluster. There is no object for a component, so the activity of a component has the
    /// place of the rule sets.
    pub(super) fn of_activity(key: &'a Key) -> Option<Self> {
        match key.name.split_once('.') {
            Some(("node", _)) => Some(Self::new("v1", "Node", "")),
            Some(("component", _)) => {
                let rule_sets = format!("{GROUP}/{VERSION}");
                Some(Self::new(rule_sets, "OperationRuleSet", ""))
            }
            _ if *key.name == *"cluster" => None,
            _ => Some(Self::new("v1", "Namespace", key.object_namespace())),
        }
    }

    fn new(api_version: impl Into<Cow<'a, str>>, kind: &'a str, namespace: &'a str) -> Self {
        Self {
            api_version: api_version.into(),
            kind: kind.into(),
            namespace: namespace.into(),
            name: None,
        }
    }

    /// Returns the place of the single subject with this name.
    pub(super) fn named(self, name: &'a str) -> Self {
        Self {
            name: Some(name.into()),
            ..self
        }
    }

    /// Returns a copy that borrows nothing.
    pub(super) fn into_owned(self) -> Place<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Place {
            api_version: owned(self.api_version),
            kind: owned(self.kind),
            namespace: owned(self.namespace),
            name: self.name.map(owned),
        }
    }
}
