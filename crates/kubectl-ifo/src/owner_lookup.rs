//! Looks up, in the cluster, the direct and indirect owners of the objects that operations are
//! about.
//!
//! An operation lists only the direct owners of its object. To find the owners of a direct owner,
//! the plugin reads the metadata of that owner, with one request for each owner. If an owner cannot
//! be read, the owners above it stay unknown, and the request is not repeated.

use super::api_client::ApiClient;
use super::kinds::Kinds;
use super::operation::{ListedOperation, ListedSubject};
use super::ownership::{Ownership, ResourceIdentity};
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use std::collections::HashSet;

/// Largest number of levels of owners that are looked up, such as Pod, ReplicaSet and Deployment.
/// Owners on higher levels stay unknown. Real chains of owners are shorter. Each level is requested
/// only after the level below has been read, because that level names the owners.
const MAX_LEVELS: usize = 8;

/// Largest number of concurrent requests to the kube-apiserver.
const CONCURRENCY: usize = 16;

/// Looks up owners, and keeps the owners that were found.
pub(super) struct OwnerLookup {
    server: ApiClient,
    kinds: Kinds,
    /// Largest number of owners that are requested in total.
    limit: usize,
    /// The UIDs of the owners that were requested.
    requested: HashSet<String>,
    /// The owners that were found, with their own owner references.
    pub(super) known: Vec<ListedSubject>,
}

impl OwnerLookup {
    /// Creates a lookup that requests at most `limit` owners. `kinds` are the kinds of the same
    /// cluster.
    pub(super) fn new(server: ApiClient, kinds: Kinds, limit: usize) -> Self {
        Self {
            server,
            kinds,
            limit,
            requested: HashSet::new(),
            known: Vec::new(),
        }
    }

    /// Looks up the direct and indirect owners of the objects that `operations` are about. Returns
    /// the number of owners that were not requested because of the limit.
    pub(super) async fn owners(&mut self, operations: &[ListedOperation]) -> usize {
        self.owners_of(operations, &|_| true).await
    }

    /// Looks up owners like [`Self::owners`], but only for the operations for which `is_included`
    /// returns true.
    pub(super) async fn owners_of(
        &mut self,
        operations: &[ListedOperation],
        is_included: &dyn Fn(&ListedOperation) -> bool,
    ) -> usize {
        for _ in 0..MAX_LEVELS {
            let ownership = Ownership::of(operations, &self.known);
            let mut missing: Vec<ResourceIdentity<'_>> = ownership
                .owners_to_look_up(is_included)
                .into_iter()
                .filter(|who| who.uid.is_some_and(|uid| !self.requested.contains(uid)))
                .collect();
            let room = self.limit.saturating_sub(self.requested.len());
            let left_out = missing.len().saturating_sub(room);
            missing.truncate(room);
            if missing.is_empty() {
                return left_out;
            }
            let mut requests = Vec::new();
            for who in missing {
                self.requested.extend(who.uid.map(str::to_owned));
                if let Some(resource) = self.kinds.resource(who.api_version, who.kind).await {
                    requests.push((who, resource));
                }
            }
            let server = &self.server;
            let found: Vec<Option<ListedSubject>> = futures::stream::iter(requests)
                .map(async |(who, resource)| {
                    let path = resource.path(who.namespace, who.name);
                    let resource = resource.to_string();
                    let object: PartialObjectMeta =
                        server.get(&path, &resource, who.namespace).await.ok()?;
                    owner(who, object.metadata)
                })
                .buffered(CONCURRENCY)
                .collect()
                .await;
            self.known.extend(found.into_iter().flatten());
        }
        0
    }
}

/// Converts `found`, the object that the cluster has under the name of the owner `who`. None if the
/// UID differs: then the owner was deleted, and a new object has its name.
fn owner(who: ResourceIdentity<'_>, found: ObjectMeta) -> Option<ListedSubject> {
    (found.uid.as_deref() == who.uid).then(|| ListedSubject {
        api_version: who.api_version.to_owned(),
        kind: who.kind.to_owned(),
        name: who.name.to_owned(),
        namespace: found.namespace,
        uid: found.uid,
        owner_references: found.owner_references.unwrap_or_default(),
    })
}
