//! Decodes the identity of an object into a [`Subject`]. The subject of an operation is the object
//! on which a rule detects the operation.

use crate::rules::{IDENTITY_PATHS, RuleBook};
use ifo_api::live::SubjectReference;
use ifo_api::metadata::UnknownFields;
use ifo_api::{Gvr, Text, printable};
use ifo_cel::{Doc, Node, Projection};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use std::sync::LazyLock;

/// Maximum number of owner references that are decoded. Further owner references are left out. Real
/// objects have one or two.
const MAX_OWNERS: usize = 16;

/// The fields that are decoded from an object on which no rules are evaluated, such as a deleted
/// object.
static IDENTITY: LazyLock<Projection> = LazyLock::new(|| {
    let mut projection = Projection::default();
    for path in IDENTITY_PATHS {
        projection.add(path);
    }
    projection
});

/// An object, with the metadata that is copied to its operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subject {
    /// The object, as its operations show it.
    pub reference: SubjectReference,
    /// The field `metadata.generation`.
    pub generation: Option<i64>,
}

/// The error for an object without a name.
#[derive(Debug, thiserror::Error)]
#[error("the object has no metadata.name")]
pub struct MissingName;

impl Subject {
    /// Reads the `metadata` of an object whose rules are in `book`.
    pub(super) fn read(metadata: Node<'_>, book: &RuleBook) -> Result<Self, MissingName> {
        let text = |name: &str| {
            metadata
                .get(name)
                .and_then(Node::as_str)
                .filter(|text| !text.is_empty())
        };
        let owners = metadata.get("ownerReferences").into_iter();
        let owners = owners.flat_map(Node::elements).take(MAX_OWNERS);
        Ok(Self {
            reference: SubjectReference {
                api_version: book.api_version.clone(),
                kind: book.kind.clone(),
                name: text("name").ok_or(MissingName)?.into(),
                namespace: text("namespace").map(Into::into),
                uid: text("uid").map(Into::into),
                owner_references: owners.filter_map(parse_owner).collect(),
                unknown: UnknownFields::new(),
            },
            generation: metadata.get("generation").and_then(Node::as_i64),
        })
    }

    /// Reads the identity from `json`. Returns None if `json` is invalid, or lacks the name.
    pub(crate) fn identify(json: &[u8], book: &RuleBook) -> Option<Self> {
        let doc = Doc::parse(json, &IDENTITY).ok()?;
        Self::read(doc.root().get("metadata")?, book).ok()
    }

    /// Returns a key that is unique among all objects: the UID. If the object has no UID, the key
    /// consists of `target` (the resource of the object), the namespace and the name.
    pub fn identity(&self, target: &Gvr) -> Text {
        let own = &self.reference;
        own.uid.clone().unwrap_or_else(|| {
            let namespace = own.namespace.as_deref().unwrap_or_default();
            format!("{target}/{namespace}/{}", own.name).into()
        })
    }

    /// Returns `namespace/name`, or only the name of a cluster-scoped object.
    pub fn path(&self) -> String {
        let name = &self.reference.name;
        match &self.reference.namespace {
            Some(namespace) => format!("{namespace}/{name}"),
            None => name.to_string(),
        }
    }
}

/// Returns the time of the newest entry in `managedFields`.
pub(super) fn newest_managed(metadata: Node<'_>) -> Option<Timestamp> {
    let entries = metadata.get("managedFields").into_iter();
    let times = entries.flat_map(Node::elements);
    let times = times.filter_map(|entry| entry.get("time")?.as_str()?.parse().ok());
    times.max()
}

fn parse_owner(node: Node<'_>) -> Option<OwnerReference> {
    // Unprintable characters are replaced, because the kube-apiserver accepts any characters in
    // these texts.
    let text = |name: &str| {
        let text = node.get(name).and_then(Node::as_str)?;
        Some(printable(text).into_owned())
    };
    Some(OwnerReference {
        api_version: text("apiVersion")?,
        kind: text("kind")?,
        name: text("name")?,
        uid: text("uid")?,
        controller: node.get("controller").and_then(Node::as_bool),
        block_owner_deletion: node.get("blockOwnerDeletion").and_then(Node::as_bool),
    })
}
