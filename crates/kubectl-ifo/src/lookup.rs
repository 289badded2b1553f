//! Owners that have no operation, asked of the cluster: an operation names its subject's
//! direct owners only, and what stands above those is in the owners themselves. Enters:
//! operations. Leaves: the owners, as far as the user may read them.
//!
//! Nothing here fails: what cannot be read stays unknown, and is asked once.

use super::connect::Server;
use super::kin::{Kin, Who};
use super::operation::{Operation, Subject};
use super::source::escape;
use futures::StreamExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, APIResourceList, ObjectMeta};
use serde::Deserialize;
use std::collections::{HashMap, HashSet};

/// Owners above an owner: nobody has a longer chain, and each level waits for the one
/// below.
const MOST_LEVELS: usize = 8;

/// Requests that are under way at the same time.
const AT_ONCE: usize = 16;

/// What was found out.
pub(super) struct Lookup {
    server: Server,
    /// Owners that were asked for; more are not.
    most: usize,
    asked: HashSet<String>,
    resources: Resources,
    /// Owners that were found.
    pub(super) known: Vec<Subject>,
}

/// What discovery says, by `apiVersion`; nothing where it cannot be asked.
#[derive(Default)]
struct Resources(HashMap<String, Vec<APIResource>>);

#[derive(Deserialize)]
struct Object {
    metadata: ObjectMeta,
}

impl Lookup {
    /// Asks `server` for at most `most` owners.
    pub(super) fn new(server: Server, most: usize) -> Self {
        Self {
            server,
            most,
            asked: HashSet::new(),
            resources: Resources::default(),
            known: Vec::new(),
        }
    }

    /// Finds out about the owners of `operations`' subjects, and theirs. Returns how many
    /// there were too many of.
    pub(super) async fn owners(&mut self, operations: &[Operation]) -> usize {
        self.owners_of(operations, &|_| true).await
    }

    /// The same for those of `operations` that are `meant`.
    pub(super) async fn owners_of(
        &mut self,
        operations: &[Operation],
        meant: &dyn Fn(&Operation) -> bool,
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
                let resources = self.resources.of(who.api_version, &self.server).await;
                let resource = resources
                    .iter()
                    .find(|it| it.kind == who.kind && !it.name.contains('/'));
                if let Some(resource) = resource {
                    requests.push((who, path(who, resource)));
                }
            }
            let server = &self.server;
            let found: Vec<Option<Subject>> = futures::stream::iter(requests)
                .map(async |(who, (path, resource))| {
                    let object: Object = server.get(&path, &resource, who.namespace).await.ok()?;
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

impl Resources {
    async fn of(&mut self, api_version: &str, server: &Server) -> &[APIResource] {
        if !self.0.contains_key(api_version) {
            let path = root(api_version);
            let list: Result<APIResourceList, _> = server.get(&path, api_version, None).await;
            let resources = list.map(|list| list.resources).unwrap_or_default();
            self.0.insert(api_version.to_owned(), resources);
        }
        &self.0[api_version]
    }
}

/// Path of an API version.
fn root(api_version: &str) -> String {
    match api_version.split_once('/') {
        Some((group, version)) => format!("/apis/{}/{}", escape(group), escape(version)),
        None => format!("/api/{}", escape(api_version)),
    }
}

/// Path of an object, and its resource for people.
fn path(who: Who<'_>, resource: &APIResource) -> (String, String) {
    let within = match who.namespace {
        Some(namespace) if resource.namespaced => format!("/namespaces/{}", escape(namespace)),
        _ => String::new(),
    };
    let root = root(who.api_version);
    let path = format!("{root}{within}/{}/{}", resource.name, escape(who.name));
    (path, format!("{}.{}", resource.name, who.api_version))
}

/// The owner in the object that has its name, if it is still the same object.
fn owner(who: Who<'_>, found: ObjectMeta) -> Option<Subject> {
    (found.uid.as_deref() == who.uid).then(|| Subject {
        api_version: who.api_version.to_owned(),
        kind: who.kind.to_owned(),
        name: who.name.to_owned(),
        namespace: found.namespace,
        uid: found.uid,
        owner_references: found.owner_references.unwrap_or_default(),
    })
}
