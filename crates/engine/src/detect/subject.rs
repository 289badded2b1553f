//! Decodes the identity of an object into a [`Subject`]. The subject of an operation is the object
//! on which a rule detects the operation.

use crate::rules::{IDENTITY_PATHS, MANAGED_TIME_PATH};
use ifo_api::Text;
use ifo_api::metadata::{OwnerReference, UnknownFields};
use ifo_api::{Gvr, printable};
use ifo_cel::{Doc, Node, Projection};
use jiff::Timestamp;
use std::sync::{Arc, LazyLock};

/// Maximum number of owner references that are decoded. Further owner references are left out. Real
/// objects have one or two.
const MAX_OWNERS: usize = 16;

/// The fields that are decoded from an object on which no rules are evaluated, such as a deleted
/// object.
static IDENTITY: LazyLock<Projection> = LazyLock::new(|| projection(&IDENTITY_PATHS));

/// The times in `managedFields`.
static MANAGED_TIMES: LazyLock<Projection> = LazyLock::new(|| projection(&[MANAGED_TIME_PATH]));

fn projection(paths: &[&[&str]]) -> Projection {
    let mut projection = Projection::default();
    for path in paths {
        projection.add(path);
    }
    projection
}

/// The identity of an object, and the metadata that is copied to its operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// UID. None if the object comes from a file and has no UID.
    pub uid: Option<Text>,
    /// Name of the object.
    pub name: Text,
    /// Namespace of the object. None for a cluster-scoped object.
    pub namespace: Option<Text>,
    /// The field `metadata.generation`.
    pub generation: Option<i64>,
    /// The field `metadata.ownerReferences`.
    pub owners: Arc<[OwnerReference]>,
    /// Newest time in `metadata.managedFields`. The detector decodes these times only during a
    /// list, and when a change of the object starts or ends an operation. None if the detector
    /// decoded no such time.
    pub managed: Option<Timestamp>,
}

/// The error for an object without a name.
#[derive(Debug, thiserror::Error)]
#[error("the object has no metadata.name")]
pub struct MissingName;

impl Subject {
    /// Reads the identity and metadata of `doc`.
    pub fn read(doc: &Doc<'_>) -> Result<Self, MissingName> {
        let metadata = doc.root().get("metadata").ok_or(MissingName)?;
        let text = |name: &str| {
            metadata
                .get(name)
                .and_then(Node::as_str)
                .filter(|text| !text.is_empty())
        };
        Ok(Self {
            name: text("name").ok_or(MissingName)?.into(),
            uid: text("uid").map(Into::into),
            namespace: text("namespace").map(Into::into),
            generation: metadata.get("generation").and_then(Node::as_i64),
            owners: metadata
                .get("ownerReferences")
                .into_iter()
                .flat_map(Node::elements)
                .take(MAX_OWNERS)
                .filter_map(parse_owner)
                .collect(),
            managed: newest_managed(metadata),
        })
    }

    /// Reads the identity from `json`. Returns None if `json` is invalid, or lacks the name.
    pub(crate) fn identify(json: &[u8]) -> Option<Self> {
        let doc = Doc::parse(json, &IDENTITY).ok()?;
        Self::read(&doc).ok()
    }

    /// Returns a key that is unique among all objects: the UID. If the object has no UID, the key
    /// consists of `target` (the resource of the object), the namespace and the name.
    pub fn identity(&self, target: &Gvr) -> Text {
        self.uid.clone().unwrap_or_else(|| {
            let namespace = self.namespace.as_deref().unwrap_or_default();
            format!("{target}/{namespace}/{}", self.name).into()
        })
    }

    /// Returns `namespace/name`, or only the name of a cluster-scoped object.
    pub fn path(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.to_string(),
        }
    }
}

/// Returns the time of the newest entry in `managedFields` of the object in `json`.
pub(super) fn managed_time(json: &[u8]) -> Option<Timestamp> {
    let doc = Doc::parse(json, &MANAGED_TIMES).ok()?;
    newest_managed(doc.root().get("metadata")?)
}

fn newest_managed(metadata: Node<'_>) -> Option<Timestamp> {
    let entries = metadata.get("managedFields").into_iter();
    let times = entries.flat_map(Node::elements);
    let times = times.filter_map(|entry| entry.get("time")?.as_str()?.parse().ok());
    times.max()
}

fn parse_owner(node: Node<'_>) -> Option<OwnerReference> {
    // The kube-apiserver does not check which characters these texts contain.
    let text = |name: &str| {
        let text = node.get(name).and_then(Node::as_str)?;
        Some(Text::from(&*printable(text)))
    };
    Some(OwnerReference {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
        name: text("name")?,
        uid: text("uid")?,
        controller: node.get("controller").and_then(Node::as_bool),
        block_owner_deletion: node.get("blockOwnerDeletion").and_then(Node::as_bool),
        unknown: UnknownFields::new(),
    })
}
