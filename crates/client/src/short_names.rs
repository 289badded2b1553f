//! The short names of kinds, as discovery serves them. Tables show `vmi/web` in place of
//! `VirtualMachineInstance/web`, and kubectl accepts this text as an argument.

use crate::offline_kinds::group;
use kube::Client;
use kube::core::discovery::v2::APIGroupDiscoveryList;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// A resource and its names in discovery.
#[derive(Clone, Debug)]
pub struct NamedResource<'a> {
    /// The API group. Empty for the core group.
    pub group: &'a str,
    /// The kind of the objects.
    pub kind: &'a str,
    /// The plural name, which paths contain.
    pub plural: &'a str,
    /// The short names, the preferred one first.
    pub short_names: Vec<&'a str>,
}

/// The plural and the short name of each kind.
///
/// A short name counts only if kubectl finds exactly this resource with it. For example, OLM and
/// Kubernetes have resources with the short name `ip`: install plans and IP addresses. So neither of
/// them is shortened. A kind of one word, such as `Node`, is not shortened either.
#[derive(Debug, Default)]
pub struct ShortNames {
    /// For each kind, the resources with this kind by API group.
    by_kind: HashMap<String, BTreeMap<String, ResourceNames>>,
}

#[derive(Debug, Default)]
struct ResourceNames {
    plural: String,
    short_name: Option<String>,
}

impl ShortNames {
    /// Reads the short names from aggregated discovery, with two requests. A kube-apiserver before
    /// Kubernetes 1.26 does not support aggregated discovery.
    pub async fn discover(client: &Client) -> Result<Self, kube::Error> {
        let groups = client.list_api_groups_aggregated().await?;
        let core = client.list_core_api_versions_aggregated().await?;
        Ok(Self::of_discovery(&[core, groups]))
    }

    /// Takes the short names from answers of aggregated discovery.
    pub fn of_discovery(answers: &[APIGroupDiscoveryList]) -> Self {
        let mut resources = Vec::new();
        for group in answers.iter().flat_map(|answer| &answer.items) {
            let name = group.metadata.as_ref().and_then(|it| it.name.as_deref());
            for resource in group.versions.iter().flat_map(|it| &it.resources) {
                let kind = resource.response_kind.as_ref();
                resources.push(NamedResource {
                    group: name.unwrap_or_default(),
                    kind: kind.and_then(|it| it.kind.as_deref()).unwrap_or_default(),
                    plural: resource.resource.as_deref().unwrap_or_default(),
                    short_names: resource.short_names.iter().map(String::as_str).collect(),
                });
            }
        }
        Self::new(&resources)
    }

    /// Takes the short names of `resources`. A resource may occur several times, once for each of
    /// its versions.
    pub fn new(resources: &[NamedResource<'_>]) -> Self {
        let mut owners: HashMap<String, BTreeSet<(&str, &str)>> = HashMap::new();
        for it in resources {
            let short_names = it.short_names.iter().map(|name| (*name).to_owned());
            // The singular name is the kind in lower case.
            let names = short_names.chain([it.plural.to_owned(), it.kind.to_lowercase()]);
            for name in names {
                owners
                    .entry(name)
                    .or_default()
                    .insert((it.group, it.plural));
            }
        }
        let mut by_kind: HashMap<String, BTreeMap<String, ResourceNames>> = HashMap::new();
        for it in resources {
            let capitals = it.kind.chars().filter(char::is_ascii_uppercase).count();
            let mut names = it.short_names.iter();
            let name = names.find(|name| capitals > 1 && owners[**name].len() == 1);
            let short_name = name.map(|name| (*name).to_owned());
            let groups = by_kind.entry(it.kind.to_owned()).or_default();
            let known = groups.entry(it.group.to_owned()).or_default();
            it.plural.clone_into(&mut known.plural);
            known.short_name = known.short_name.take().or(short_name);
        }
        Self { by_kind }
    }

    /// Returns true if discovery has not been read.
    pub fn is_empty(&self) -> bool {
        self.by_kind.is_empty()
    }

    fn resource(&self, api_version: &str, kind: &str) -> Option<&ResourceNames> {
        self.by_kind.get(kind)?.get(group(api_version))
    }

    /// Returns the plural of the kind in the group of `api_version`. Returns None if discovery does not
    /// serve the kind.
    pub fn plural(&self, api_version: &str, kind: &str) -> Option<&str> {
        Some(&self.resource(api_version, kind)?.plural)
    }

    /// Returns the short name of the kind in the group of `api_version` (`group/version`, or only
    /// the version for the core group). If the kind has no short name, returns the kind.
    pub fn name<'a>(&'a self, api_version: &str, kind: &'a str) -> &'a str {
        let resource = self.resource(api_version, kind);
        let name = resource.and_then(|resource| resource.short_name.as_deref());
        name.unwrap_or(kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn group(name: &str, resources: &[(&str, &str, &[&str])]) -> serde_json::Value {
        let resources = resources.iter().map(|(kind, plural, short_names)| {
            json!({
                "resource": plural, "singularResource": kind.to_lowercase(), "scope": "Namespaced",
                "responseKind": {"group": name, "version": "v1", "kind": kind},
                "verbs": ["list"], "shortNames": short_names,
            })
        });
        let resources: Vec<_> = resources.collect();
        let version = |version: &str| json!({"version": version, "resources": resources});
        json!({"metadata": {"name": name}, "versions": [version("v1"), version("v1beta1")]})
    }

    fn of(groups: &[serde_json::Value]) -> ShortNames {
        let answer = json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {}, "items": groups,
        });
        ShortNames::of_discovery(&[serde_json::from_value(answer).unwrap()])
    }

    #[test]
    fn only_served_short_names_of_exactly_one_resource_are_used() {
        let names = of(&[
            group("", &[("Node", "nodes", &["no"])]),
            group(
                "kubevirt.io",
                &[
                    (
                        "VirtualMachineInstance",
                        "virtualmachineinstances",
                        &["vmi", "vmis"],
                    ),
                    (
                        "VirtualMachineImport",
                        "virtualmachineimports",
                        &["images", "vmimport"],
                    ),
                ],
            ),
            group(
                "harvesterhci.io",
                &[
                    ("VirtualMachineImage", "virtualmachineimages", &[]),
                    ("VirtualMachineInstance", "virtualmachineinstances", &[]),
                ],
            ),
            group(
                "operators.coreos.com",
                &[("InstallPlan", "installplans", &["ip"])],
            ),
            group(
                "networking.k8s.io",
                &[("IPAddress", "ipaddresses", &["ip"])],
            ),
            group("config.openshift.io", &[("Image", "images", &[])]),
        ]);
        for (api_version, kind, shown) in [
            ("kubevirt.io/v1", "VirtualMachineInstance", "vmi"),
            ("kubevirt.io/v1alpha3", "VirtualMachineInstance", "vmi"),
            (
                "harvesterhci.io/v1",
                "VirtualMachineInstance",
                "VirtualMachineInstance",
            ),
            // The initials of this kind are VMI, but discovery serves no short name.
            (
                "harvesterhci.io/v1",
                "VirtualMachineImage",
                "VirtualMachineImage",
            ),
            // Its first short name is the plural of another resource.
            ("kubevirt.io/v1", "VirtualMachineImport", "vmimport"),
            (
                "operators.coreos.com/v1alpha1",
                "InstallPlan",
                "InstallPlan",
            ),
            ("networking.k8s.io/v1", "IPAddress", "IPAddress"),
            ("v1", "Node", "Node"),
            ("v1", "Unknown", "Unknown"),
        ] {
            assert_eq!(names.name(api_version, kind), shown, "{api_version} {kind}");
        }
    }
}
