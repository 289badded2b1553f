//! The kinds that a cluster serves, and which of them a name means. Enters: a name as
//! people type it. Leaves: the kinds with that name. All commands resolve kinds here.
//!
//! A name is a kind, a plural, a singular or a short name, in upper or lower case, with a
//! group and a version behind it or not. A name without a group means the kinds of that
//! name in all groups: kubectl takes the preferred group alone, which would hide the
//! operations on the others. Subresources have no names. The cluster is asked when a kind
//! is first needed: two requests.

use super::connect::Server;
use super::kin::group;
use super::nearest::nearest;
use super::operation::Subject;
use ifo_api::Gvr;
use ifo_client::kinds::short_names;
use kube::core::discovery::v2::{APIGroupDiscoveryList, APIVersionDiscovery};
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;
use tokio::sync::OnceCell;

/// `freshness` of a version whose server does not answer kube-apiserver: what it lists may
/// be old, or nothing.
const STALE: &str = "Stale";

/// The kinds of one cluster.
pub(super) struct Kinds {
    server: Server,
    /// What it said, if it did.
    served: OnceCell<Option<Served>>,
}

/// What a cluster serves.
struct Served {
    resources: Vec<Resource>,
    /// Whether that is all.
    whole: bool,
}

/// A resource that is served.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Resource {
    group: String,
    version: String,
    kind: String,
    /// As in the address.
    plural: String,
    /// The kind, plural, singular and short names, in lower case.
    names: Vec<String>,
}

/// A kind as people name it: in any case, by its plural or a short name, with a group
/// and a version behind it or not.
#[derive(Clone, Debug, PartialEq, Eq)]
struct KindName {
    /// Kind, plural or short name, in lower case.
    name: String,
    /// Group, with a version in front or not; what comes after the first dot.
    group: Option<String>,
}

impl KindName {
    /// Reads it.
    fn of(text: &str) -> Self {
        let text = text.to_ascii_lowercase();
        match text.split_once('.') {
            Some((name, group)) => Self {
                name: name.to_owned(),
                group: Some(group.to_owned()),
            },
            None => Self {
                name: text,
                group: None,
            },
        }
    }

    /// Whether it may be in this group and version.
    fn is_of(&self, group: &str, version: &str) -> bool {
        self.group.as_deref().is_none_or(|wanted| {
            wanted == group
                || wanted
                    .strip_prefix(version)
                    .is_some_and(|rest| rest.strip_prefix('.').unwrap_or(rest) == group)
        })
    }

    /// Whether it is a kind, its plural, its initials or a widely used short name of it, as
    /// far as the names tell.
    fn is(&self, kind: &str, api_version: &str) -> bool {
        let plural = plural(kind);
        let named = self.name.eq_ignore_ascii_case(kind)
            || self.name == plural
            || self.is_initials(kind)
            || short_names::is_short_for(&self.name, group(api_version), &plural);
        named && self.is_in(api_version)
    }

    /// Whether it is the initials of a kind of several words: `vm` of `VirtualMachine`.
    fn is_initials(&self, kind: &str) -> bool {
        let initials = kind.chars().filter(char::is_ascii_uppercase);
        self.name.len() > 1
            && initials
                .map(|it| it.to_ascii_lowercase())
                .eq(self.name.chars())
    }

    fn is_in(&self, api_version: &str) -> bool {
        let version = api_version.rsplit('/').next().unwrap_or_default();
        self.is_of(group(api_version), version)
    }

    fn means(&self, resource: &Resource) -> bool {
        resource.names.contains(&self.name) && self.is_of(&resource.group, &resource.version)
    }
}

/// A kind that operations are chosen by: as it was typed, and what the cluster means by
/// it once it has been asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ChosenKind {
    text: String,
    name: KindName,
    /// What goes by it.
    resources: Vec<Resource>,
    /// Whether the cluster has told all that it serves.
    certain: bool,
    /// The nearest name that the cluster serves, where it serves none of this name.
    nearest: Option<String>,
    /// Group and plural of kinds whose initials it is, where the cluster does not say.
    initials_of: BTreeSet<(String, String)>,
}

impl FromStr for ChosenKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let name = KindName::of(text);
        if name.name.is_empty() {
            return Err(format!("{text:?} is no kind, such as VirtualMachine"));
        }
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
        let meant = served.resources.iter().filter(|it| self.name.means(it));
        self.resources = meant.cloned().collect();
        if self.resources.is_empty() {
            let names = served.resources.iter().flat_map(|it| &it.names);
            let nearest = nearest(&self.name.name, names.map(String::as_str));
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
        match nearest(&self.name.name, names) {
            Some(nearest) => format!("{what}; did you mean {nearest:?}?"),
            None => what,
        }
    }

    /// Whether a resource is of it. Where the cluster does not say what is meant, names are
    /// compared.
    pub(super) fn is_of(&self, kind: &str, api_version: &str) -> bool {
        if self.resources.is_empty() {
            return self.name.is(kind, api_version);
        }
        let group = group(api_version);
        self.resources
            .iter()
            .any(|it| it.group == group && it.kind.eq_ignore_ascii_case(kind))
    }

    fn is_short_for(&self, subject: &Subject) -> bool {
        self.name.is_initials(&subject.kind) && self.name.is_in(&subject.api_version)
    }

    /// Whether the cluster does not say what it means.
    pub(super) fn is_vague(&self) -> bool {
        self.resources.is_empty() && !self.certain
    }

    /// Takes from `subjects` what it is the initials of: no plural tells those.
    pub(super) fn learn<'a>(&mut self, subjects: impl Iterator<Item = &'a Subject>) {
        let meant = subjects.filter(|it| self.is_short_for(it));
        let seen = meant.map(|it| (group(&it.api_version).to_owned(), plural(&it.kind)));
        let seen: Vec<_> = seen.collect();
        self.initials_of.extend(seen);
    }

    /// Whether a rule set with this target finds operations on it.
    pub(super) fn is_target(&self, target: &Gvr) -> bool {
        if self.resources.is_empty() {
            let name = &self.name.name;
            let named = (*name == target.resource
                || plural(name) == target.resource
                || short_names::is_short_for(name, &target.group, &target.resource))
                && self.name.is_of(&target.group, &target.version);
            let seen = (target.group.clone(), target.resource.clone());
            return named || self.initials_of.contains(&seen);
        }
        self.resources
            .iter()
            .any(|it| it.group == target.group && it.plural == target.resource)
    }
}

/// apimachinery's `meta.UnsafeGuessKindToResource`.
pub(super) fn plural(kind: &str) -> String {
    let singular = kind.to_lowercase();
    if singular.is_empty() || singular.ends_with("endpoints") {
        singular
    } else if singular.ends_with('s') {
        singular + "es"
    } else if let Some(stem) = singular.strip_suffix('y') {
        format!("{stem}ies")
    } else {
        singular + "s"
    }
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
    async fn told(&self) -> Option<&Served> {
        self.served.get_or_init(|| self.ask()).await.as_ref()
    }

    async fn ask(&self) -> Option<Served> {
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
        (!resources.is_empty()).then_some(Served { resources, whole })
    }
}

/// Whether a list has items, and none of them is out of date.
fn is_fresh(list: &APIGroupDiscoveryList) -> bool {
    let mut versions = list.items.iter().flat_map(|group| &group.versions);
    !list.items.is_empty() && versions.all(|it| it.freshness.as_deref() != Some(STALE))
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
        let plural = resource.resource?;
        let names = [
            Some(kind.clone()),
            Some(plural.clone()),
            resource.singular_resource,
        ];
        let names = names.into_iter().flatten().chain(resource.short_names);
        Some(Resource {
            group: group.to_owned(),
            version: name.clone(),
            names: names.map(|name| name.to_ascii_lowercase()).collect(),
            kind,
            plural,
        })
    })
}

#[cfg(test)]
mod tests;
