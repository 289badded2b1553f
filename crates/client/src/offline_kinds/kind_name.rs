//! Parses the name of a kind in a command-line argument, such as `vm`, `VirtualMachine` or
//! `vms.v1.kubevirt.io`, and compares the name with kinds and resources.

use super::{group_and_version, is_kind_or_plural, plural, well_known::is_short_name};
use ifo_api::Gvr;

/// The name of a kind: the kind itself, its plural, its singular or a short name. Case is ignored.
/// A group, a version, or a version and a group can follow after a dot, as in `vm.kubevirt.io`,
/// `nodes.v1` and `vm.v1.kubevirt.io`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindName(String);

impl KindName {
    /// Parses a name. Returns None if the text is empty or begins with a dot.
    pub fn new(text: &str) -> Option<Self> {
        let is_name = !text.is_empty() && !text.starts_with('.');
        is_name.then(|| Self(text.to_ascii_lowercase()))
    }

    /// Returns the kind, plural, singular or short name, in lower case and without group and
    /// version.
    pub fn name(&self) -> &str {
        self.0.split('.').next().unwrap_or_default()
    }

    /// Returns true if the name allows the API group `group` and the version `version`:
    ///
    /// - A name without a dot, such as `vm`, allows all groups and versions.
    /// - A name with a group, such as `vm.kubevirt.io`, allows all versions of this group.
    /// - A name with a version and a group, such as `vm.v1.kubevirt.io`, allows only these.
    /// - A name with a version alone, such as `nodes.v1`, allows this version of the core group.
    pub fn allows(&self, group: &str, version: &str) -> bool {
        self.0.split_once('.').is_none_or(|(_, wanted)| {
            let (wanted_version, wanted_group) = wanted.split_once('.').unwrap_or((wanted, ""));
            wanted == group || (wanted_version, wanted_group) == (version, group)
        })
    }

    /// Returns true if this is a name of `kind`: the kind itself, its plural or a widely used short
    /// name. If the name contains a group or a version, `api_version` must contain the same group
    /// or version.
    pub fn is_kind(&self, kind: &str, api_version: &str) -> bool {
        let (group, version) = group_and_version(api_version);
        let named = is_kind_or_plural(self.name(), kind)
            || is_short_name(self.name(), group, &plural(kind));
        named && self.allows(group, version)
    }

    /// Returns true if this is a name of `resource`: its plural, a kind with this plural, or a
    /// widely used short name. If the name contains a group or a version, `resource` must have the
    /// same group or version.
    pub fn is_resource(&self, resource: &Gvr) -> bool {
        let named = is_kind_or_plural(&resource.resource, self.name())
            || is_short_name(self.name(), &resource.group, &resource.resource);
        named && self.allows(&resource.group, &resource.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> KindName {
        KindName::new(text).expect("the text does not begin with a dot")
    }

    #[test]
    fn a_kind_is_named_by_kind_plural_or_short_name() {
        for text in [
            "VirtualMachine",
            "virtualmachines",
            "vm",
            "vms",
            "vm.kubevirt.io",
            "VMS.v1.kubevirt.io",
        ] {
            assert!(name(text).is_kind("VirtualMachine", "kubevirt.io/v1"));
        }
        for text in ["vmi", "virtualmachineinstances", "vm.example.io", "v"] {
            assert!(!name(text).is_kind("VirtualMachine", "kubevirt.io/v1"));
        }
        // The initials of this kind are the short name of another kind, so they do not select it.
        assert!(!name("vmi").is_kind("VirtualMachineImage", "harvesterhci.io/v1beta1"));
        assert!(!name("du").is_kind("DataUpload", "velero.io/v2alpha1"));
        assert!(name("nodes.v1").is_kind("Node", "v1"));
        assert!(name("deploy.v1.apps").is_kind("Deployment", "apps/v1"));
        for text in ["deploy.v1apps", "deploy.v1.", "deploy.v1"] {
            assert!(!name(text).is_kind("Deployment", "apps/v1"), "{text}");
        }
        assert_eq!(KindName::new(".apps"), None);
    }

    #[test]
    fn an_irregular_plural_and_the_guessed_plural_both_name_the_kind() {
        for text in ["Gateway", "gateways", "gatewaies"] {
            assert!(name(text).is_kind("Gateway", "net.io/v1"), "{text}");
        }
        let resource = Gvr {
            group: "net.io".into(),
            version: "v1".into(),
            resource: "gateways".into(),
        };
        for text in ["Gateway", "gateways", "gateway.net.io"] {
            assert!(name(text).is_resource(&resource), "{text}");
        }
        assert!(!name("gateway.example.io").is_resource(&resource));
    }
}
