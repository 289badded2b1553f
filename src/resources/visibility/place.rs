//! The objects about which one review decides.

use crate::index::Key;
use ifo_api::live::SubjectReference;
use ifo_api::{GROUP, Text, VERSION};
use std::collections::HashMap;
use std::sync::LazyLock;

static RULE_SETS: LazyLock<String> = LazyLock::new(|| format!("{GROUP}/{VERSION}"));

/// All objects of one kind in one namespace. The namespace of cluster-scoped objects is empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place<T = Text> {
    pub(super) api_version: T,
    pub(super) kind: T,
    pub(super) namespace: T,
}

impl<'a> Place<&'a str> {
    pub(super) fn of(subject: &'a SubjectReference) -> Self {
        // The kube-apiserver authorizes a request for the Namespace `a` in the namespace `a`.
        let is_namespace = *subject.kind == *"Namespace" && *subject.api_version == *"v1";
        let namespace = if is_namespace {
            &*subject.name
        } else {
            subject.namespace.as_deref().unwrap_or_default()
        };
        Self {
            api_version: &subject.api_version,
            kind: &subject.kind,
            namespace,
        }
    }

    /// Returns the object that an activity is about. The activity of the cluster is about no object,
    /// and the one of a component is about the rule sets.
    pub(super) fn of_activity(key: &'a Key) -> Option<Self> {
        let (api_version, kind, namespace) = match key.name.split_once('.') {
            Some(("node", _)) => ("v1", "Node", ""),
            Some(("component", _)) => (RULE_SETS.as_str(), "OperationRuleSet", ""),
            _ if *key.name == *"cluster" => return None,
            _ => ("v1", "Namespace", key.object_namespace()),
        };
        Some(Self {
            api_version,
            kind,
            namespace,
        })
    }

    fn to_owned(self) -> Place {
        Place {
            api_version: self.api_version.into(),
            kind: self.kind.into(),
            namespace: self.namespace.into(),
        }
    }
}

impl Place {
    pub(super) fn borrow(&self) -> Place<&str> {
        Place {
            api_version: &self.api_version,
            kind: &self.kind,
            namespace: &self.namespace,
        }
    }
}

/// Decisions about places, or about single objects in places. The `text` is the namespace of the
/// place, or the name of the object. So a list of many objects computes one short hash for each.
#[derive(Clone, Debug, Default)]
pub(super) struct DecidedPlaces(HashMap<Text, Vec<(Place, bool)>>);

impl DecidedPlaces {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.values().map(Vec::len).sum()
    }

    /// Returns true if access was granted.
    pub(super) fn is_granted(&self, text: &str, place: Place<&str>) -> bool {
        self.find(text, place).unwrap_or(false)
    }

    fn find(&self, text: &str, place: Place<&str>) -> Option<bool> {
        let same = self.0.get(text)?.iter();
        let mut same = same.filter(|(known, _)| known.borrow() == place);
        same.next().map(|(_, granted)| *granted)
    }

    /// Adds a place to which access is denied until [`Self::grant`]. Returns None if it is already known.
    pub(super) fn add(&mut self, text: &str, place: Place<&str>) -> Option<Place> {
        if self.find(text, place).is_some() {
            return None;
        }
        let place = place.to_owned();
        let same = self.0.entry(text.into()).or_default();
        same.push((place.clone(), false));
        Some(place)
    }

    pub(super) fn grant(&mut self, text: &str, place: Place<&str>) {
        let same = self.0.get_mut(text).into_iter().flatten();
        for (_, granted) in same.filter(|(known, _)| known.borrow() == place) {
            *granted = true;
        }
    }

    /// Returns true if access to all places was granted.
    pub(super) fn are_granted(&self) -> bool {
        self.0.values().flatten().all(|(_, granted)| *granted)
    }

    /// Returns the places to which access was granted.
    pub(super) fn granted(&self) -> impl Iterator<Item = (&Text, &Place)> {
        let all = self.0.iter();
        let all = all.flat_map(|(text, same)| same.iter().map(move |it| (text, it)));
        all.filter_map(|(text, (place, granted))| granted.then_some((text, place)))
    }
}
