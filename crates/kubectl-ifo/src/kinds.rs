//! Resolves the kinds that a cluster serves.
//!
//! Input: the name of a kind as users type it, or `apiVersion` and kind of an owner reference.
//! Output: the matching resources. All commands that connect to a cluster use this module. The
//! built-in kinds are in `ifo_client::kinds`.
//!
//! A name is a kind, a plural, a singular or a short name in any case, optionally with a group and
//! a version. A name without a group matches the kinds of that name in all groups. In contrast,
//! kubectl uses only the preferred group, which would hide operations on the others. Subresources
//! have no names.
//!
//! Discovery is read when a kind is first needed: two requests for all kinds. If the answer lacks
//! the kind of an owner reference, one more request asks for its API version. A kube-apiserver
//! before 1.26 answers only this request.

use super::api_client::ApiClient;
use super::operation::ListedSubject;
use super::source::escape;
use super::suggestion::nearest;
use ifo_api::Gvr;
use ifo_client::kinds::{KindName, group, group_and_version, is_plural};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, APIResourceList};
use kube::core::discovery::v2::{APIGroupDiscoveryList, APIVersionDiscovery};
use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::str::FromStr;
use tokio::sync::{Mutex, OnceCell};

/// The value of `freshness` for a version whose server does not answer the kube-apiserver. Its list
/// of resources can be outdated or empty.
const STALE_FRESHNESS: &str = "Stale";

/// The kinds of one cluster.
pub(super) struct Kinds {
    server: ApiClient,
    /// All kinds, if the cluster has aggregated discovery.
    served: OnceCell<Option<ServedKinds>>,
    /// The kinds of single API versions that were requested separately.
    versions: Mutex<HashMap<String, Vec<ServedResource>>>,
}

/// The resources that a cluster serves.
struct ServedKinds {
    resources: Vec<ServedResource>,
    /// True if the list is complete.
    whole: bool,
}

/// A resource that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedResource {
    group: String,
    version: String,
    kind: String,
    /// The plural name, as in paths.
    plural: String,
    /// True if the resource is namespaced.
    namespaced: bool,
    /// The kind, plural, singular and short names, in lower case.
    names: Vec<String>,
}

/// A kind in a filter: the typed name, and the matching kinds after discovery was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChosenKind {
    text: String,
    name: KindName,
    /// The matching kinds.
    resources: Vec<ServedResource>,
    /// True if discovery was complete.
    certain: bool,
    /// The nearest existing name, if no kind has this name.
    nearest: Option<String>,
    /// Group and kind of the kinds whose initials the name has, if discovery is not available.
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
    /// Resolves the name with discovery.
    pub(super) async fn resolve(&mut self, kinds: &Kinds) {
        let Some(served) = kinds.told().await else {
            return;
        };
        self.certain = served.whole;
        let matching = served.resources.iter().filter(|it| it.goes_by(&self.name));
        self.resources = matching.cloned().collect();
        if self.resources.is_empty() {
            let names = served.resources.iter().flat_map(|it| &it.names);
            let nearest = nearest(self.name.name(), names.map(String::as_str));
            self.nearest = nearest.map(str::to_owned);
        }
    }

    /// Returns true if the cluster serves a kind of this name.
    pub(super) fn is_served(&self) -> bool {
        !self.resources.is_empty()
    }

    /// Returns true if the cluster certainly serves no kind of this name.
    pub(super) fn is_unknown(&self) -> bool {
        self.certain && self.resources.is_empty()
    }

    /// Returns the error for a name that no kind has. `others` are known names that may be missing
    /// in discovery.
    pub(super) fn unknown<'a>(&'a self, others: impl Iterator<Item = &'a str>) -> String {
        let names = others.chain(self.nearest.as_deref());
        let what = format!("the cluster has no resource {:?}", self.text);
        match nearest(self.name.name(), names) {
            Some(nearest) => format!("{what}; did you mean {nearest:?}?"),
            None => what,
        }
    }

    /// Returns true if a resource is of this kind. If discovery is not available, the names are
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

    /// Returns true if the name could not be resolved.
    pub(super) fn is_vague(&self) -> bool {
        self.resources.is_empty() && !self.certain
    }

    /// Looks in `subjects` for kinds whose initials the name has, because plurals cannot be
    /// compared with initials.
    pub(super) fn learn<'a>(&mut self, subjects: impl Iterator<Item = &'a ListedSubject>) {
        let name = &self.name;
        let matching = subjects.filter(|it| name.is_initials_of(&it.kind, &it.api_version));
        let seen = matching.map(|it| (group(&it.api_version).to_owned(), it.kind.clone()));
        self.initials_of.extend(seen);
    }

    /// Returns true if a rule set with this target detects operations on this kind.
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
    /// Creates the kinds of `server`. Discovery is read later.
    pub(super) fn new(server: ApiClient) -> Self {
        Self {
            server,
            served: OnceCell::new(),
            versions: Mutex::default(),
        }
    }

    /// Returns the resource of this `apiVersion` and kind. None if discovery does not have it.
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

    /// Returns the resources of one API version. Empty if discovery does not have it.
    async fn ask_version(&self, api_version: &str) -> Vec<ServedResource> {
        let path = version_path(api_version);
        let list: Result<APIResourceList, _> = self.server.get(&path, api_version, None).await;
        let resources = list.map(|list| list.resources).unwrap_or_default();
        let resources = resources.into_iter();
        resources
            // The other entries are subresources.
            .filter(|it| !it.name.contains('/'))
            .map(|it| ServedResource::of_version(api_version, it))
            .collect()
    }

    /// Returns all kinds, the core group first. None if discovery is not available.
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
        // A demo with a folder serves no core group.
        let core = core.ok().and_then(Result::ok);
        let whole = core.as_ref().is_some_and(is_fresh) && is_fresh(&groups);
        let mut resources = core.map(all).unwrap_or_default();
        resources.extend(all(groups));
        // A server before 1.26 answers in another form, which has no items.
        (!resources.is_empty()).then_some(ServedKinds { resources, whole })
    }
}

/// Returns the path of an API version.
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

    /// Returns the path of an object. The namespace is used only if the resource is namespaced.
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

/// Formats `plural.group/version` for messages.
impl fmt::Display for ServedResource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.", self.plural)?;
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        f.write_str(&self.version)
    }
}

/// Returns true if a list has items, and all of them are current.
fn is_fresh(list: &APIGroupDiscoveryList) -> bool {
    let mut versions = list.items.iter().flat_map(|group| &group.versions);
    !list.items.is_empty() && versions.all(|it| it.freshness.as_deref() != Some(STALE_FRESHNESS))
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
