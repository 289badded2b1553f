//! Looks up owners that have no operation. An operation names only the direct owners of its
//! subject. Their own owners are in the owner objects.
//!
//! Input: operations. Output: the owners that the user may read. An owner that cannot be read stays
//! unknown, and is requested once.

use super::api_client::ApiClient;
use super::kinds::Kinds;
use super::operation::{ListedOperation, ListedSubject};
use super::ownership::{Ownership, ResourceIdentity};
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use std::collections::HashSet;

/// Largest number of levels above an owner. Real chains are shorter. Each level waits for the level
/// below it.
const MAX_LEVELS: usize = 8;

/// Number of concurrent requests.
const CONCURRENCY: usize = 16;

/// The results so far.
pub(super) struct Lookup {
    server: ApiClient,
    kinds: Kinds,
    /// Largest number of owners that are requested.
    most: usize,
    asked: HashSet<String>,
    /// The owners that were found.
    pub(super) known: Vec<ListedSubject>,
}

impl Lookup {
    /// Creates a lookup of at most `most` owners. `kinds` belongs to the same server.
    pub(super) fn new(server: ApiClient, kinds: Kinds, most: usize) -> Self {
        Self {
            server,
            kinds,
            most,
            asked: HashSet::new(),
            known: Vec::new(),
        }
    }

    /// Looks up the direct and indirect owners of the subjects of `operations`. Returns the number
    /// of owners that were not requested because there are too many.
    pub(super) async fn owners(&mut self, operations: &[ListedOperation]) -> usize {
        self.owners_of(operations, &|_| true).await
    }

    /// Does the same for the `operations` for which `is_included` is true.
    pub(super) async fn owners_of(
        &mut self,
        operations: &[ListedOperation],
        is_included: &dyn Fn(&ListedOperation) -> bool,
    ) -> usize {
        for _ in 0..MAX_LEVELS {
            let ownership = Ownership::of(operations, &self.known);
            let mut missing: Vec<ResourceIdentity<'_>> = ownership
                .strangers(is_included)
                .into_iter()
                .filter(|who| who.uid.is_some_and(|uid| !self.asked.contains(uid)))
                .collect();
            let room = self.most.saturating_sub(self.asked.len());
            let left_out = missing.len().saturating_sub(room);
            missing.truncate(room);
            if missing.is_empty() {
                return left_out;
            }
            let mut requests = Vec::new();
            for who in missing {
                self.asked.extend(who.uid.map(str::to_owned));
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

/// Returns the owner from the object of its name, if the UID is the same.
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
