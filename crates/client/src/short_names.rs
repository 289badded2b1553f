//! The short names of kinds, as discovery serves them. Tables show `vmi/web` in place of
//! `VirtualMachineInstance/web`, and kubectl accepts this text as an argument.

use crate::offline_kinds::group;
use crate::served_resource::ServedResource;
use kube::Client;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// The plural and the short name of each kind.
///
/// A short name is used only if no other resource has the same name. For example, `ip` is the short
/// name of two resources: of install plans in OLM, and of IP addresses in Kubernetes. So neither of
/// these kinds has a short name here. A kind of one word, such as `Node`, does not have one either.
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
        Ok(Self::new(&ServedResource::all_in([core, groups])))
    }

    /// Takes the short names of `resources`. A resource may occur several times, once for each of
    /// its versions.
    pub fn new(resources: &[ServedResource]) -> Self {
        let mut owners: HashMap<String, BTreeSet<(&str, &str)>> = HashMap::new();
        for it in resources {
            for name in it.names() {
                let own = (it.api.group.as_str(), it.api.plural.as_str());
                owners.entry(name).or_default().insert(own);
            }
        }
        let mut by_kind: HashMap<String, BTreeMap<String, ResourceNames>> = HashMap::new();
        for ServedResource {
            api, short_names, ..
        } in resources
        {
            let capitals = api.kind.chars().filter(char::is_ascii_uppercase).count();
            let is_unique = |name: &&String| owners.get(*name).is_some_and(|it| it.len() == 1);
            let short_name = short_names.iter().find(is_unique).filter(|_| capitals > 1);
            let groups = by_kind.entry(api.kind.clone()).or_default();
            let known = groups.entry(api.group.clone()).or_default();
            known.plural.clone_from(&api.plural);
            known.short_name = known.short_name.take().or(short_name.cloned());
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
        let answer = serde_json::from_value(answer).unwrap();
        ShortNames::new(&ServedResource::all_in([answer]))
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
            // The first short name of this kind is the plural of another resource.
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
