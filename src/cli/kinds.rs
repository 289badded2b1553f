//! The kinds that a cluster serves, and all names that they go by. Asked when they are
//! first needed: two requests.

use super::connect::Server;
use kube::core::discovery::v2::{APIGroupDiscoveryList, APIVersionDiscovery};
use tokio::sync::OnceCell;

/// The kinds of one cluster.
pub(super) struct Kinds {
    server: Server,
    /// What it said, if it did.
    served: OnceCell<Option<Vec<Resource>>>,
}

/// A resource that is served.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) group: String,
    pub(super) version: String,
    pub(super) kind: String,
    /// The kind, plural, singular and short names, in lower case.
    pub(super) names: Vec<String>,
}

impl Kinds {
    /// Asks `server`, but not yet.
    pub(super) fn new(server: Server) -> Self {
        Self {
            server,
            served: OnceCell::new(),
        }
    }

    /// All kinds, those of the core group first; None if the cluster does not say.
    pub(super) async fn served(&self) -> Option<&Vec<Resource>> {
        self.served.get_or_init(|| self.ask()).await.as_ref()
    }

    async fn ask(&self) -> Option<Vec<Resource>> {
        let client = &self.server.client;
        let core = self
            .server
            .within(client.list_core_api_versions_aggregated());
        let groups = self.server.within(client.list_api_groups_aggregated());
        let (core, groups) = tokio::join!(core, groups);
        let groups = groups.ok()?.ok()?;
        // The demo serves no core group.
        let mut kinds: Vec<Resource> = core.ok().and_then(Result::ok).map(all).unwrap_or_default();
        kinds.extend(all(groups));
        // A server before 1.26 answers in another form, in which there are no items.
        (!kinds.is_empty()).then_some(kinds)
    }
}

fn all(list: APIGroupDiscoveryList) -> Vec<Resource> {
    let mut kinds = Vec::new();
    for group in list.items {
        let name = group.metadata.and_then(|it| it.name).unwrap_or_default();
        for version in group.versions {
            kinds.extend(of_version(&name, version));
        }
    }
    kinds
}

fn of_version(group: &str, version: APIVersionDiscovery) -> impl Iterator<Item = Resource> {
    let name = version.version.unwrap_or_default();
    version.resources.into_iter().filter_map(move |resource| {
        let kind = resource.response_kind?.kind?;
        let names = [
            Some(kind.clone()),
            resource.resource,
            resource.singular_resource,
        ];
        let names = names.into_iter().flatten().chain(resource.short_names);
        Some(Resource {
            group: group.to_owned(),
            version: name.clone(),
            names: names.map(|name| name.to_ascii_lowercase()).collect(),
            kind,
        })
    })
}
