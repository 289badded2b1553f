//! Looks up, in the cluster, the direct and indirect owners of the objects that operations are
//! about.
//!
//! An operation lists only the direct owners of its object. To find the owners of a direct owner,
//! the plugin reads the metadata of that owner, with one request for each owner. If an owner cannot
//! be read, the owners above it stay unknown, and the request is not repeated.

use super::graph::OwnerGraph;
use crate::cluster::api_client::ApiClient;
use crate::operations::operation::InFlightOperation;
use futures::StreamExt as _;
use ifo_api::Text;
use ifo_api::live::SubjectReference;
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

/// Largest number of owners that are requested in total. Further owners are not looked up, so the
/// tree can lack the owners above them.
const MAX_OWNERS: usize = 1000;

/// Looks up owners, and keeps the owners that were found.
pub(super) struct OwnerLookup {
    server: ApiClient,
    /// The UIDs of the owners that were looked up, successfully or not.
    requested: HashSet<Text>,
    /// The owners that were found, with their own owner references.
    pub(super) known: Vec<SubjectReference>,
}

impl OwnerLookup {
    pub(super) fn new(server: ApiClient) -> Self {
        Self {
            server,
            requested: HashSet::new(),
            known: Vec::new(),
        }
    }

    /// Looks up the direct and indirect owners of objects with operations. Only operations for
    /// which `is_included` returns true count.
    pub(super) async fn look_up_for(
        &mut self,
        operations: &[InFlightOperation],
        is_included: impl Fn(&InFlightOperation) -> bool,
    ) {
        for _ in 0..MAX_LEVELS {
            let graph = OwnerGraph::of(operations, &is_included, &self.known);
            let mut unknown = graph.unknown_owners();
            unknown.retain(|it| {
                let uid = it.uid.clone().unwrap_or_default();
                self.requested.len() < MAX_OWNERS && self.requested.insert(uid)
            });
            if unknown.is_empty() {
                return;
            }
            let found = futures::stream::iter(unknown).map(|it| self.read(it));
            let found: Vec<_> = found.buffered(CONCURRENCY).collect().await;
            self.known.extend(found.into_iter().flatten());
        }
    }

    /// Reads the owner references of an owner. Returns None if the owner cannot be read, or if the
    /// UIDs differ: the owner was deleted, and a new object has the same name.
    async fn read(&self, owner: SubjectReference) -> Option<SubjectReference> {
        let (api_version, kind) = (&owner.api_version, &owner.kind);
        let resource = self.server.resource(api_version, kind).await?;
        let namespace = owner.namespace.as_deref();
        let path = resource.path(namespace, &owner.name);
        let found: PartialObjectMeta = self.server.get(&path).await.ok()?;
        let metadata = found.metadata;
        (metadata.uid.as_deref() == owner.uid.as_deref()).then(|| SubjectReference {
            namespace: metadata.namespace.map(Text::from),
            owner_references: metadata.owner_references.unwrap_or_default().into(),
            ..owner
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixtures::{OperationFixture as _, client, on};
    use serde_json::json;

    #[tokio::test]
    async fn a_limited_number_of_owners_is_looked_up() {
        let server = client(|uri| {
            if uri == "/api" {
                return Some(json!({"items": []}));
            }
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
            if name == "0" {
                return Some(json!([]));
            }
            let uid = format!("Thing.a.{name}");
            Some(json!({"metadata": {"name": name, "namespace": "a", "uid": uid}}))
        });
        let owned =
            |number: usize| on("a", "Pod", "p", "Moving").owned_by("Thing", &number.to_string());
        let operations: Vec<_> = (0..MAX_OWNERS + 2)
            .map(|number| owned(number).edit(|it| it.spec.subject.name = number.to_string().into()))
            .collect();
        let mut lookup = OwnerLookup::new(server);
        lookup.look_up_for(&operations, |_| true).await;
        // The answer for one owner is no object.
        assert_eq!(lookup.known.len(), MAX_OWNERS - 1);
    }
}
