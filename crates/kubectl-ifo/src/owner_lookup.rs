//! Looks up, in the cluster, the direct and indirect owners of the objects that operations are
//! about.
//!
//! An operation lists only the direct owners of its object. To find the owners of a direct owner,
//! the plugin reads the metadata of that owner, with one request for each owner. If an owner cannot
//! be read, the owners above it stay unknown, and the request is not repeated.

use super::api_client::ApiClient;
use super::discovered_kinds::Kinds;
use super::operation::InFlightOperation;
use super::ownership::Ownership;
use futures::StreamExt as _;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use ifo_api::metadata::OwnerReference;
use kube::core::PartialObjectMeta;
use std::collections::HashSet;
use std::sync::Arc;

/// Largest number of levels of owners that the plugin looks up. For example, the owners of a Pod
/// can have two levels: ReplicaSet and Deployment. Real chains of owners are shorter than this
/// limit. The plugin does not look up owners on higher levels.
///
/// The plugin reads the levels one after the other, because the owner references of one level name
/// the owners on the next level.
const MAX_LEVELS: usize = 8;

/// Largest number of concurrent requests to the kube-apiserver. Further requests wait.
const CONCURRENCY: usize = 16;

/// Looks up owners, and keeps the owners that were found.
pub(super) struct OwnerLookup {
    server: ApiClient,
    kinds: Kinds,
    /// Largest number of owners that are requested in total. [`Self::look_up`] counts the owners
    /// beyond this limit.
    limit: usize,
    /// The UIDs of the owners that were looked up, successfully or not.
    requested: HashSet<Text>,
    /// The owners that were found, with their own owner references.
    pub(super) known: Vec<SubjectReference>,
}

impl OwnerLookup {
    /// Creates a lookup that requests at most `limit` owners. `kinds` must be for the same cluster
    /// as `server`.
    pub(super) fn new(server: ApiClient, kinds: Kinds, limit: usize) -> Self {
        Self {
            server,
            kinds,
            limit,
            requested: HashSet::new(),
            known: Vec::new(),
        }
    }

    /// Looks up the direct and indirect owners of the objects that `operations` are about, for the
    /// operations for which `is_included` returns true. Returns the number of owners that were not
    /// requested because of the limit.
    pub(super) async fn look_up_for(
        &mut self,
        operations: &[InFlightOperation],
        is_included: &dyn Fn(&InFlightOperation) -> bool,
    ) -> usize {
        let mut left_out = 0;
        for _ in 0..MAX_LEVELS {
            let ownership = Ownership::of(operations, &self.known);
            let mut missing = ownership.owners_to_look_up(is_included);
            missing.retain(|it| {
                let uid = it.uid.as_ref();
                uid.is_some_and(|uid| !self.requested.contains(uid))
            });
            let room = self.limit.saturating_sub(self.requested.len());
            left_out = missing.len().saturating_sub(room);
            missing.truncate(room);
            if missing.is_empty() {
                break;
            }
            let requests = missing.iter().filter_map(|it| it.uid.clone());
            self.requested.extend(requests);
            let found: Vec<Option<SubjectReference>> = futures::stream::iter(missing)
                .map(|it| self.read(it))
                .buffered(CONCURRENCY)
                .collect()
                .await;
            self.known.extend(found.into_iter().flatten());
        }
        left_out
    }

    /// Reads the owner references of an owner. Returns None if the owner cannot be read, or if the
    /// UIDs differ: the owner was deleted, and a new object has the same name.
    async fn read(&self, owner: SubjectReference) -> Option<SubjectReference> {
        let kinds = &self.kinds;
        let resource = kinds.resource(&owner.api_version, &owner.kind).await?;
        let namespace = owner.namespace.as_deref();
        let path = resource.path(namespace, &owner.name);
        let found: PartialObjectMeta = self.server.get(&path).await.ok()?;
        let metadata = found.metadata;
        // Both types of references have the same JSON.
        let references = serde_json::to_value(metadata.owner_references.unwrap_or_default());
        let references: Arc<[OwnerReference]> = serde_json::from_value(references.ok()?).ok()?;
        (metadata.uid.as_deref() == owner.uid.as_deref()).then(|| SubjectReference {
            namespace: metadata.namespace.as_deref().map(Text::from),
            owner_references: references,
            ..owner
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::{OperationFixture as _, SubjectFixture as _, client, on, subject};
    use serde_json::json;

    #[tokio::test]
    async fn owners_left_out_in_the_last_round_are_counted() {
        // The operation is on `o0`. Each object `o1`, `o2` … owns the previous object. The last
        // level also has the owner `other`. The limit is one less than the number of these owners.
        let name = |level: usize| format!("o{level}");
        let chain = (1..=MAX_LEVELS).map(|level| {
            let object = subject("a", "Thing", &name(level));
            let object = object.owned_by("a", "Thing", &name(level + 1));
            if level == MAX_LEVELS - 1 {
                object.owned_by("a", "Thing", "other")
            } else {
                object
            }
        });
        let chain: Vec<SubjectReference> = chain.collect();
        let server = client(move |uri| {
            if uri == "/apis" {
                return Some(json!({
                    "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
                    "metadata": {}, "items": [{"metadata": {"name": "example.io"}, "versions": [{
                        "version": "v1", "freshness": "Current", "resources": [{
                            "resource": "things", "singularResource": "thing", "verbs": ["get"],
                            "scope": "Namespaced",
                            "responseKind": {"group": "example.io", "version": "v1", "kind": "Thing"},
                        }],
                    }]}],
                }));
            }
            let name = uri.strip_prefix("/apis/example.io/v1/namespaces/a/things/")?;
            let object = chain.iter().find(|it| it.name == name)?;
            Some(json!({"metadata": {
                "name": name, "namespace": "a", "uid": object.uid,
                "ownerReferences": object.owner_references,
            }}))
        });
        let operations = [on("a", "Thing", &name(0), "Moving").owned_by("Thing", &name(1))];
        let mut lookup = OwnerLookup::new(server.clone(), Kinds::new(server), MAX_LEVELS);
        assert_eq!(lookup.look_up_for(&operations, &|_| true).await, 1);
        assert_eq!(lookup.known.len(), MAX_LEVELS);
    }
}
