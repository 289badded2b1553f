//! Finds kinds in the discovery of a cluster. The search is by a name that the user has typed, or
//! by the `apiVersion` and kind of an owner reference. `ifo_client::offline_kinds` finds kinds
//! without a cluster.
//!
//! A user can type a kind, a plural, a singular or a short name in upper or lower case. A version
//! and a group can follow, as in `vm.kubevirt.io` and `vm.v1.kubevirt.io`. The name of a
//! subresource, such as `pods/status`, matches no kind.
//!
//! A name without a group matches the kinds of that name in all groups. In contrast, kubectl uses
//! only the preferred group. If the plugin did the same, it would hide operations on kinds in other
//! groups.
//!
//! The plugin reads discovery when a kind is first needed, and [`ApiClient`] keeps the kinds. Two
//! requests return all kinds (aggregated discovery, since Kubernetes 1.26).

use crate::cluster::api_client::ApiClient;
use crate::output::colors::Paint;
use crate::output::columns::terminal_width;
use crate::output::print::{Format, TextStyle};
use ifo_api::Gvr;
use ifo_client::offline_kinds::{KindName, group};
use ifo_client::served_resource::ServedResource;
use ifo_client::short_names::ShortNames;
use kube::api::ApiResource;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use std::str::FromStr;
use std::sync::Arc;

/// A kind that the user has typed. [`ChosenKind::resolve`] adds the matching kinds of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ChosenKind {
    /// The kind as the user typed it.
    pub(crate) text: String,
    name: KindName,
    /// The kinds of the cluster that have the typed name. None if discovery was not read.
    pub(crate) resources: Option<Vec<ServedResource>>,
}

impl FromStr for ChosenKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not the name of a kind; an example is VirtualMachine");
        let name = KindName::new(text).ok_or_else(wrong)?;
        Ok(Self {
            text: text.to_owned(),
            name,
            resources: None,
        })
    }
}

impl ChosenKind {
    /// Looks up the typed name in discovery. If discovery is not available, changes nothing.
    pub(crate) async fn resolve(&mut self, server: &ApiClient) {
        if let Some(served) = server.discovered().await {
            let matching = served.iter().filter(|it| it.has_name(&self.name));
            self.resources = Some(matching.cloned().collect());
        }
    }

    /// Returns the known kinds of the cluster that have the typed name.
    fn served(&self) -> &[ServedResource] {
        self.resources.as_deref().unwrap_or_default()
    }

    /// Returns true if the cluster serves a kind of this name.
    pub(crate) fn is_served(&self) -> bool {
        !self.served().is_empty()
    }

    /// Returns true if an object with this `kind` and `api_version` is of the chosen kind. If
    /// discovery has no matching kind, compares the typed name itself with `kind`.
    pub(crate) fn matches_object(&self, kind: &str, api_version: &str) -> bool {
        if !self.is_served() {
            return self.name.is_kind(kind, api_version);
        }
        let is_kind = |it: &ApiResource| it.kind.eq_ignore_ascii_case(kind);
        let (group, mut served) = (group(api_version), self.served().iter());
        served.any(|it| it.api.group == group && is_kind(&it.api))
    }

    /// Returns true if the resource `target`, which a rule set watches, is of the chosen kind.
    pub(crate) fn matches_resource(&self, target: &Gvr) -> bool {
        if !self.is_served() {
            return self.name.is_resource(target);
        }
        let mut served = self.served().iter();
        served.any(|it| it.api.group == target.group && it.api.plural == target.resource)
    }
}

impl ApiClient {
    /// Returns the style of a table. A table of `-o wide`, or in a pipe or a file, has no maximum
    /// width. Only a table with a maximum width shows the short names of kinds, so discovery is
    /// read only for such a table.
    pub(crate) async fn table_style(&self, format: Format, paint: Paint) -> TextStyle {
        let screen = terminal_width().filter(|_| format == Format::Table);
        let served = match screen {
            Some(_) => self.discovered().await,
            None => None,
        };
        TextStyle {
            screen,
            wide: format == Format::Wide,
            paint,
            short_names: Arc::new(served.map(ShortNames::new).unwrap_or_default()),
            ..TextStyle::default()
        }
    }

    /// Returns the resource of this `apiVersion` and kind. None if discovery does not contain the
    /// kind.
    pub(crate) async fn resource(&self, api_version: &str, kind: &str) -> Option<ServedResource> {
        let is_it = |it: &&ServedResource| it.api.kind == kind && it.api.api_version == api_version;
        self.discovered().await?.iter().find(is_it).cloned()
    }

    /// Returns the names of all kinds. Empty if discovery is not available.
    pub(crate) async fn kind_names(&self) -> Vec<String> {
        let served = self.discovered().await.unwrap_or_default();
        served.iter().flat_map(ServedResource::names).collect()
    }

    /// Returns all kinds of the cluster, the kinds of the core group first. None if discovery is
    /// not available. Discovery is read only once.
    async fn discovered(&self) -> Option<&[ServedResource]> {
        let kinds = self.kinds.get_or_init(|| self.read_discovery());
        kinds.await.as_deref()
    }

    async fn read_discovery(&self) -> Option<Vec<ServedResource>> {
        let core = self.within(self.client.list_core_api_versions_aggregated());
        let groups = self.within(self.client.list_api_groups_aggregated());
        let (core, groups) = tokio::join!(core, groups);
        let answers: [APIGroupDiscoveryList; 2] = [core.ok()?.ok()?, groups.ok()?.ok()?];
        // The answer of a kube-apiserver before 1.26 has another form, which contains no items.
        Some(ServedResource::all_in(answers)).filter(|it| !it.is_empty())
    }
}

#[cfg(test)]
mod tests;
