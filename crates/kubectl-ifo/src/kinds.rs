//! The kinds that a cluster serves. Enters: the name of a kind as people type it, or an
//! `apiVersion` with a kind as an owner reference has it. Leaves: the resources that are
//! meant. All commands that have a cluster resolve kinds here; what is known without one is
//! in `ifo_client::kinds`.
//!
//! A name is a kind, a plural, a singular or a short name, in upper or lower case, with a
//! group and a version behind it or not. A name without a group means the kinds of that
//! name in all groups: kubectl takes the preferred group alone, which would hide the
//! operations on the others. Subresources have no names.
//!
//! The cluster's discovery is asked when a kind is first needed: two requests for all kinds.
//! If that answer does not have a kind of an owner reference, one more request asks for the
//! kinds of its API version: a kube-apiserver before 1.26 answers only that one.

use super::nearest::nearest;
use super::operation::ListedSubject;
use super::server::ApiServer;
use super::source::escape;
use ifo_api::Gvr;
use ifo_client::kinds::{KindName, group, group_and_version, is_plural};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, APIResourceList};
use kube::core::discovery::v2::{APIGroupDiscoveryList, APIVersionDiscovery};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use tokio::sync::{Mutex, OnceCell};

/// `freshness` of a version whose server does not answer kube-apiserver: what it lists may
/// be old, or nothing.
const STALE: &str = "Stale";

/// The kinds of one cluster.
pub(super) struct Kinds {
    server: ApiServer,
    /// All kinds, if the cluster's aggregated discovery has said them.
    served: OnceCell<Option<ServedKinds>>,
    /// The kinds of single API versions, which were asked for one by one.
    versions: Mutex<HashMap<String, Vec<ServedResource>>>,
}

/// What a cluster serves.
struct ServedKinds {
    resources: Vec<ServedResource>,
    /// Whether that is all.
    whole: bool,
}

/// A resource that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedResource {
    group: String,
    version: String,
    kind: String,
    /// As in the address.
    plural: String,
    /// Whether its objects live in namespaces.
    namespaced: bool,
    /// The kind, plural, singular and short names, in lower case.
    names: Vec<String>,
}

/// A kind that operations are chosen by: as it was typed, and what the cluster means by
/// it once it has been asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChosenKind {
    text: String,
    name: KindName,
    /// What goes by it.
    resources: Vec<ServedResource>,
    /// Whether the cluster has told all that it serves.
    certain: bool,
    /// The nearest name that the cluster serves, where it serves none of this name.
    nearest: Option<String>,
    /// Group and kind of the kinds whose initials it is, where the cluster does not say.
    initials_of: BTreeSet<(String, String)>,
}

impl FromStr for ChosenKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |_| format!("{text:?} is no kind, such as VirtualMachine");
        let name = text.parse().map_err(wrong)?;
        Ok(Self {
            text: text.to_owned(),
            name,
            resources: Vec::new(),
            certain: false,
            nearest: None,
            initials_of: BTreeSet::new(),
        })
    }
}

impl fmt::Display for ChosenKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl ChosenKind {
    /// Asks what it means.
    pub(super) async fn resolve(&mut self, kinds: &Kinds) {
        let Some(served) = kinds.told().await else {
            return;
        };
        self.certain = served.whole;
        let meant = served.resources.iter().filter(|it| it.goes_by(&self.name));
        self.resources = meant.cloned().collect();
        if self.resources.is_empty() {
            let names = served.resources.iter().flat_map(|it| &it.names);
            let nearest = nearest(self.name.name(), names.map(String::as_str));
            self.nearest = nearest.map(str::to_owned);
        }
    }

    /// Whether the cluster serves a kind of this name.
    pub(super) fn is_served(&self) -> bool {
        !self.resources.is_empty()
    }

    /// Whether the cluster serves no kind of this name.
    pub(super) fn is_unknown(&self) -> bool {
        self.certain && self.resources.is_empty()
    }

    /// The error for a name that is no kind's. `others` are names that the cluster's
    /// discovery need not know.
    pub(super) fn unknown<'a>(&'a self, others: impl Iterator<Item = &'a str>) -> String {
        let names = others.chain(self.nearest.as_deref());
        let what = format!("the cluster has no resource {:?}", self.text);
        match nearest(self.name.name(), names) {
            Some(nearest) => format!("{what}; did you mean {nearest:?}?"),
            None => what,
        }
    }

    /// Whether a resource is of it. Where the cluster does not say what is meant, names are
    /// compared.
    pub(super) fn is_of(&self, kind: &str, api_version: &str) -> bool {
        if self.resources.is_empty() {
            return self.name.is_kind(kind, api_version);
        }
        let group = group(api_version);
        self.resources
            .iter()
            .any(|it| it.group == group && it.kind.eq_ignore_ascii_case(kind))
    }

    /// Whether the cluster does not say what it means.
    pub(super) fn is_vague(&self) -> bool {
        self.resources.is_empty() && !self.certain
    }

    /// Takes from `subjects` what it is the initials of: no plural tells those.
    pub(super) fn learn<'a>(&mut self, subjects: impl Iterator<Item = &'a ListedSubject>) {
        let name = &self.name;
        let meant = subjects.filter(|it| name.is_initials_of(&it.kind, &it.api_version));
        let seen = meant.map(|it| (group(&it.api_version).to_owned(), it.kind.clone()));
        self.initials_of.extend(seen);
    }

    /// Whether a rule set with this target finds operations on it.
    pub(super) fn is_target(&self, target: &Gvr) -> bool {
        if self.resources.is_empty() {
            let mut seen = self.initials_of.iter();
            return self.name.is_resource(target)
                || seen.any(|(group, kind)| {
                    *group == target.group && is_plural(&target.resource, kind)
                });
        }
        self.resources
            .iter()
            .any(|it| it.group == target.group && it.plural == target.resource)
    }
}

impl Kinds {
    /// Asks `server`, but not yet.
    pub(super) fn new(server: ApiServer) -> Self {
        Self {
            server,
            served: OnceCell::new(),
            versions: Mutex::default(),
        }
    }

    /// The resource of the objects with this `apiVersion` and kind; None if the cluster
    /// does not say.
    pub(super) async fn resource(&self, api_version: &str, kind: &str) -> Option<ServedResource> {
        let is_it = |it: &&ServedResource| {
            it.kind == kind && (&*it.group, &*it.version) == group_and_version(api_version)
        };
        if let Some(served) = self.told().await
            && let Some(resource) = served.resources.iter().find(is_it)
        {
            return Some(resource.clone());
        }
        let mut versions = self.versions.lock().await;
        if !versions.contains_key(api_version) {
            let resources = self.ask_version(api_version).await;
            versions.insert(api_version.to_owned(), resources);
        }
        versions[api_version].iter().find(is_it).cloned()
    }

    /// The resources of one API version; none if the cluster does not say.
    async fn ask_version(&self, api_version: &str) -> Vec<ServedResource> {
        let path = version_path(api_version);
        let list: Result<APIResourceList, _> = self.server.get(&path, api_version, None).await;
        let resources = list.map(|list| list.resources).unwrap_or_default();
        let resources = resources.into_iter();
        resources
            // The others are subresources.
            .filter(|it| !it.name.contains('/'))
            .map(|it| ServedResource::of_version(api_version, it))
            .collect()
    }

    /// All kinds, those of the core group first; None if the cluster does not say.
    async fn told(&self) -> Option<&ServedKinds> {
        self.served.get_or_init(|| self.ask()).await.as_ref()
    }

    async fn ask(&self) -> Option<ServedKinds> {
        let client = &self.server.client;
        let core = self
            .server
            .within(client.list_core_api_versions_aggregated());
        let groups = self.server.within(client.list_api_groups_aggregated());
        let (core, groups) = tokio::join!(core, groups);
        let groups = groups.ok()?.ok()?;
        // A demo of a folder serves no core group.
        let core = core.ok().and_then(Result::ok);
        let whole = core.as_ref().is_some_and(is_fresh) && is_fresh(&groups);
        let mut resources = core.map(all).unwrap_or_default();
        resources.extend(all(groups));
        // A server before 1.26 answers in another form, in which there are no items.
        (!resources.is_empty()).then_some(ServedKinds { resources, whole })
    }
}

/// Path of an API version.
fn version_path(api_version: &str) -> String {
    match group_and_version(api_version) {
        ("", version) => format!("/api/{}", escape(version)),
        (group, version) => format!("/apis/{}/{}", escape(group), escape(version)),
    }
}

impl ServedResource {
    fn of_version(api_version: &str, served: APIResource) -> Self {
        let (group, version) = group_and_version(api_version);
        let names = [&served.kind, &served.name, &served.singular_name];
        let names = names.into_iter().chain(served.short_names.iter().flatten());
        Self {
            group: group.to_owned(),
            version: version.to_owned(),
            names: names.map(|name| name.to_ascii_lowercase()).collect(),
            kind: served.kind,
            plural: served.name,
            namespaced: served.namespaced,
        }
    }

    fn goes_by(&self, name: &KindName) -> bool {
        let named = self.names.iter().any(|own| own == name.name());
        named && name.allows(&self.group, &self.version)
    }

    /// Path of one of its objects. The namespace counts if the objects live in namespaces.
    pub(super) fn path(&self, namespace: Option<&str>, name: &str) -> String {
        let version = match &*self.group {
            "" => self.version.clone(),
            group => format!("{group}/{}", self.version),
        };
        let root = version_path(&version);
        let within = match namespace {
            Some(namespace) if self.namespaced => format!("/namespaces/{}", escape(namespace)),
            _ => String::new(),
        };
        format!("{root}{within}/{}/{}", self.plural, escape(name))
    }
}

/// `plural.group/version`, for people.
impl fmt::Display for ServedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.plural)?;
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        f.write_str(&self.version)
    }
}

/// Whether a list has items, and none of them is out of date.
fn is_fresh(list: &APIGroupDiscoveryList) -> bool {
    let mut versions = list.items.iter().flat_map(|group| &group.versions);
    !list.items.is_empty() && versions.all(|it| it.freshness.as_deref() != Some(STALE))
}

fn all(list: APIGroupDiscoveryList) -> Vec<ServedResource> {
    let mut kinds = Vec::new();
    for group in list.items {
        let name = group.metadata.and_then(|it| it.name).unwrap_or_default();
        for version in group.versions {
            kinds.extend(of_version(&name, version));
        }
    }
    kinds
}

fn of_version(group: &str, version: APIVersionDiscovery) -> impl Iterator<Item = ServedResource> {
    let name = version.version.unwrap_or_default();
    version.resources.into_iter().filter_map(move |resource| {
        let kind = resource.response_kind?.kind?;
        let plural = resource.resource?;
        let names = [
            Some(kind.clone()),
            Some(plural.clone()),
            resource.singular_resource,
        ];
        let names = names.into_iter().flatten().chain(resource.short_names);
        Some(ServedResource {
            group: group.to_owned(),
            version: name.clone(),
            namespaced: resource.scope.as_deref() == Some("Namespaced"),
            names: names.map(|name| name.to_ascii_lowercase()).collect(),
            kind,
            plural,
        })
    })
}

#[cfg(test)]
mod tests;
