//! Lists all custom resources, for the comparison with the index.

use crate::persist::client::{Revision, Store};
use crate::persist::conversion;
use crate::persist::failure::StoreFailure;
use ifo_api::Text;
use ifo_api::live::{InFlightOperation, Phase};
use ifo_api::persisted;

/// A custom resource of this server.
#[derive(Clone, Debug)]
pub(in crate::persist) struct ListedResource {
    pub name: Text,
    pub revision: Revision,
    /// The operation in the custom resource. Its labels include those of other clients.
    pub operation: InFlightOperation,
    /// True if the namespace of the subject was deleted, even if a new one has the same name.
    pub namespace_deleted: bool,
}

impl ListedResource {
    /// Returns None if another client created the custom resource, because this server never changes
    /// such a custom resource.
    fn of(cr: &persisted::InFlightOperation) -> Option<Self> {
        Some(Self {
            name: cr.metadata.name.as_deref()?.into(),
            revision: Revision::of(&cr.metadata)?,
            operation: conversion::from_cr(cr)?,
            namespace_deleted: false,
        })
    }

    pub fn is_completed(&self) -> bool {
        self.operation.status.phase == Phase::Completed
    }

    /// Returns true if the custom resource has the content of the operation. The labels of other
    /// clients do not matter.
    pub fn contains(&self, operation: &InFlightOperation) -> bool {
        let stored = &self.operation.metadata.labels;
        let mut labels = operation.metadata.labels.iter();
        labels.all(|(key, value)| stored.get(key) == Some(value))
            && conversion::content_hash(&self.operation) == conversion::content_hash(operation)
    }
}

/// Passes the custom resources to `process`, page by page, until `process` returns false.
pub async fn read_pages(
    store: &dyn Store,
    mut process: impl FnMut(&persisted::InFlightOperation) -> bool,
) -> Result<(), StoreFailure> {
    let mut token = None;
    loop {
        let page = store.page(token.as_deref()).await?;
        token = page.next;
        if !page.items.iter().all(&mut process) || token.is_none() {
            return Ok(());
        }
    }
}

/// Lists all custom resources that this server has created.
pub(in crate::persist) async fn list(
    store: &dyn Store,
) -> Result<Vec<ListedResource>, StoreFailure> {
    let mut all = Vec::new();
    let process = |cr: &persisted::InFlightOperation| {
        all.extend(ListedResource::of(cr));
        true
    };
    read_pages(store, process).await?;
    // The namespaces are listed after the custom resources, so each subject was created in a
    // namespace that is in this list, or was deleted. If a namespace is newer than the subject, it
    // is a new namespace with the same name. If the namespaces cannot be listed, none counts as
    // deleted.
    match store.namespaces().await {
        Ok(created) => {
            for found in &mut all {
                let last_seen = conversion::subject_last_seen(&found.operation);
                let namespace = found.operation.spec.subject.namespace.as_deref();
                found.namespace_deleted = namespace.zip(last_seen).is_some_and(|(it, seen)| {
                    created.get(it).is_none_or(|created| *created > seen)
                });
            }
        }
        Err(error) => tracing::debug!(%error, "the namespaces cannot be listed"),
    }
    Ok(all)
}
