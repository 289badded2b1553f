//! Owners that have no operation, asked of the cluster: an operation names its subject's
//! direct owners only, and what stands above those is in the owners themselves. Enters:
//! operations. Leaves: the owners, as far as the user may read them.
//!
//! Nothing here fails: what cannot be read stays unknown, and is asked once.

use super::kin::{Kin, Who};
use super::kinds::Kinds;
use super::operation::{ListedOperation, ListedSubject};
use super::server::ApiServer;
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::PartialObjectMeta;
use std::collections::HashSet;

/// Owners above an owner: nobody has a longer chain, and each level waits for the one
/// below.
const MOST_LEVELS: usize = 8;

/// Requests that are under way at the same time.
const AT_ONCE: usize = 16;

/// What was found out.
pub(super) struct Lookup {
    server: ApiServer,
    kinds: Kinds,
    /// Owners that were asked for; more are not.
    most: usize,
    asked: HashSet<String>,
    /// Owners that were found.
    pub(super) known: Vec<ListedSubject>,
}

impl Lookup {
    /// Asks `server` for at most `most` owners. `kinds` are those of the same server.
    pub(super) fn new(server: ApiServer, kinds: Kinds, most: usize) -> Self {
        Self {
            server,
            kinds,
            most,
            asked: HashSet::new(),
            known: Vec::new(),
        }
    }

    /// Finds out about the owners of `operations`' subjects, and theirs. Returns how many
    /// there were too many of.
    pub(super) async fn owners(&mut self, operations: &[ListedOperation]) -> usize {
        self.owners_of(operations, &|_| true).await
    }

    /// The same for those of `operations` that are `meant`.
    pub(super) async fn owners_of(
        &mut self,
        operations: &[ListedOperation],
        meant: &dyn Fn(&ListedOperation) -> bool,
    ) -> usize {
        for _ in 0..MOST_LEVELS {
            let kin = Kin::of(operations, &self.known);
            let mut missing: Vec<Who<'_>> = kin
                .strangers(meant)
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
                .buffered(AT_ONCE)
                .collect()
                .await;
            self.known.extend(found.into_iter().flatten());
        }
        0
    }
}

/// The owner in the object that has its name, if it is still the same object.
fn owner(who: Who<'_>, found: ObjectMeta) -> Option<ListedSubject> {
    (found.uid.as_deref() == who.uid).then(|| ListedSubject {
        api_version: who.api_version.to_owned(),
        kind: who.kind.to_owned(),
        name: who.name.to_owned(),
        namespace: found.namespace,
        uid: found.uid,
        owner_references: found.owner_references.unwrap_or_default(),
    })
}
