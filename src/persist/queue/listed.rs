//! Lists all custom resources, and keeps the parts that the comparison with the index needs.

use crate::persist::client::{Revision, Store};
use crate::persist::conversion;
use crate::persist::failure::StoreFailure;
use ifo_api::Text;
use ifo_api::live::{InFlightOperation, Phase};
use ifo_api::persisted;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The parts of a listed custom resource that the comparison needs.
#[derive(Clone, Debug)]
pub(in crate::persist) struct ListedResource {
    pub name: Text,
    pub revision: Revision,
    /// The hash of the content ([`conversion::content_hash`]).
    pub content: u64,
    pub labels: BTreeMap<String, String>,
    pub is_completed: bool,
    /// The time at which the operation completed. None if the operation is in flight.
    pub completed: Option<Timestamp>,
    /// The namespace of the subject, and the last time at which this namespace is known to have
    /// existed. None if the subject is cluster-scoped, or if this time is unknown.
    pub last_seen_in: Option<(Text, Timestamp)>,
    /// True if this namespace was deleted afterwards, even if a new one has the same name.
    pub namespace_deleted: bool,
    /// The rule sets that detect the operation.
    pub rule_sets: Vec<Text>,
}

impl ListedResource {
    /// Returns None if another client created the custom resource, because this server never changes
    /// such a custom resource.
    fn of(cr: &persisted::InFlightOperation) -> Option<Self> {
        let live = conversion::from_cr(cr)?;
        let last_seen = conversion::subject_last_seen(&live);
        let content = conversion::content_hash(&live);
        let mut rule_sets = live.status.detected_by;
        rule_sets.push(live.spec.rule_set);
        Some(Self {
            name: cr.metadata.name.as_deref()?.into(),
            revision: Revision::of(&cr.metadata)?,
            content,
            labels: cr.metadata.labels.clone().unwrap_or_default(),
            is_completed: live.status.phase == Phase::Completed,
            completed: live.status.completed.map(|time| time.0),
            last_seen_in: live.spec.subject.namespace.zip(last_seen),
            namespace_deleted: false,
            rule_sets,
        })
    }

    /// Returns true if the custom resource has the content of the operation. The labels of other
    /// clients do not matter.
    pub fn contains(&self, operation: &InFlightOperation) -> bool {
        let mut labels = operation.metadata.labels.iter();
        let has_labels = labels.all(|(key, value)| {
            let stored = self.labels.get(&**key);
            stored.is_some_and(|stored| *stored == **value)
        });
        has_labels && self.content == conversion::content_hash(operation)
    }
}

/// Lists all custom resources that this server has created.
pub(in crate::persist) async fn list(
    store: &dyn Store,
) -> Result<Vec<ListedResource>, StoreFailure> {
    let (mut all, mut token) = (Vec::new(), None);
    loop {
        let page = store.page(token.as_deref()).await?;
        all.extend(page.items.iter().filter_map(ListedResource::of));
        token = page.next;
        if token.is_none() {
            break;
        }
    }
    // The namespaces are listed after the custom resources, so each subject was created in a
    // namespace that is in this list, or was deleted. If a namespace is newer than the subject, it
    // is a new namespace with the same name. If the namespaces cannot be listed, none counts as
    // deleted.
    match store.namespaces().await {
        Ok(created) => {
            let is_deleted = |(namespace, seen): &(Text, Timestamp)| {
                let created = created.get(&**namespace);
                created.is_none_or(|created| created > seen)
            };
            for found in &mut all {
                found.namespace_deleted = found.last_seen_in.as_ref().is_some_and(is_deleted);
            }
        }
        Err(error) => tracing::debug!(%error, "the namespaces cannot be listed"),
    }
    Ok(all)
}
