//! Looks up, in the cluster, the direct and indirect owners of the objects that operations are
//! about.
//!
//! An operation lists only the direct owners of its object. To find the owners of a direct owner,
//! the plugin reads the metadata of that owner, with one request for each owner. If an owner cannot
//! be read, the owners above it stay unknown, and the request is not repeated.

use super::api_client::ApiClient;
use super::discovered_kinds::Kinds;
use super::listed_operation::ListedOperation;
use super::ownership::{ObjectIdentity, Ownership};
use futures::StreamExt as _;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
use ifo_api::metadata::OwnerReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use std::collections::HashSet;

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
    requested: HashSet<String>,
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
        operations: &[ListedOperation],
        is_included: &dyn Fn(&ListedOperation) -> bool,
    ) -> usize {
        let mut left_out = 0;
        for _ in 0..MAX_LEVELS {
            let ownership = Ownership::of(operations, &self.known);
            let mut missing: Vec<ObjectIdentity<'_>> = ownership
                .owners_to_look_up(is_included)
                .into_iter()
                .filter(|identity| {
                    identity
                        .uid
                        .is_some_and(|uid| !self.requested.contains(uid))
                })
                .collect();
            let room = self.limit.saturating_sub(self.requested.len());
            left_out = missing.len().saturating_sub(room);
            missing.truncate(room);
            if missing.is_empty() {
                break;
            }
            let mut requests = Vec::new();
            for identity in missing {
                self.requested.extend(identity.uid.map(str::to_owned));
                if let Some(resource) = self
                    .kinds
                    .resource(identity.api_version, identity.kind)
                    .await
                {
                    requests.push((identity, resource));
                }
            }
            let server = &self.server;
            let found: Vec<Option<SubjectReference>> = futures::stream::iter(requests)
                .map(async |(identity, resource)| {
                    let path = resource.path(identity.namespace, identity.name);
                    let resource = resource.to_string();
                    let object: PartialObjectMeta = server
                        .get(&path, &resource, identity.namespace)
                        .await
                        .ok()?;
                    owner(identity, object.metadata)
                })
                .buffered(CONCURRENCY)
                .collect()
                .await;
            self.known.extend(found.into_iter().flatten());
        }
        left_out
    }
}

/// Returns an owner with its own owner references. `identity` is the identity of the owner in an
/// owner reference. `found` is the metadata of the object with this name in the cluster. Returns
/// None if the UIDs differ: the owner was deleted, and a new object has the same name.
fn owner(identity: ObjectIdentity<'_>, found: ObjectMeta) -> Option<SubjectReference> {
    (found.uid.as_deref() == identity.uid).then(|| SubjectReference {
        api_version: identity.api_version.into(),
        kind: identity.kind.into(),
        name: identity.name.into(),
        namespace: found.namespace.map(Text::from),
        uid: found.uid.map(Text::from),
        owner_references: found
            .owner_references
            .iter()
            .flatten()
            .map(OwnerReference::from)
            .collect(),
        ..SubjectReference::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::{SubjectFixture as _, client, on, subject};
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
