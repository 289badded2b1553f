//! A resource as people name it. Enters: `Kind/name`, in any case, or with a plural, a
//! short name or a group as kubectl takes them. Leaves: whether a resource is meant.

use super::kin::{Who, group};
use super::lookup::Lookup;
use super::names::plural;
use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// One resource, or all of that name in several namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// As it was written.
    text: String,
    /// Kind, plural or short name, in lower case.
    kind: String,
    /// Group, with a version in front or not; what comes after the first dot.
    group: Option<String>,
    name: String,
    /// Which of several like operations on it.
    pub(super) item: Option<String>,
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no Kind/name, such as VirtualMachine/web");
        let (kind, name) = text.split_once('/').ok_or_else(wrong)?;
        let (name, item) = match name.split_once('/') {
            Some((name, item)) => (name, Some(item.to_owned())),
            None => (name, None),
        };
        let (kind, group) = match kind.split_once('.') {
            Some((kind, group)) => (kind, Some(group.to_ascii_lowercase())),
            None => (kind, None),
        };
        if kind.is_empty() || name.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            text: text.to_owned(),
            kind: kind.to_ascii_lowercase(),
            group,
            name: name.to_owned(),
            item,
        })
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Target {
    /// Whether `who` is it.
    pub(super) fn is(&self, who: Who<'_>) -> bool {
        self.name == who.name
            && (self.kind.eq_ignore_ascii_case(who.kind) || self.kind == plural(who.kind))
            && self.group.as_deref().is_none_or(|wanted| {
                let own = group(who.api_version);
                let version = who.api_version.rsplit('/').next().unwrap_or_default();
                wanted == own
                    || wanted
                        .strip_prefix(version)
                        .is_some_and(|rest| rest.strip_prefix('.').unwrap_or(rest) == own)
            })
    }

    /// The same with the kind that the cluster means by it, if it is a short name of one
    /// of these API versions.
    pub(super) async fn resolved(
        &self,
        lookup: &mut Lookup,
        api_versions: BTreeSet<&str>,
    ) -> Option<Self> {
        for api_version in api_versions {
            if let Some(kind) = lookup.kind(api_version, &self.kind).await {
                return Some(Self {
                    kind: kind.to_ascii_lowercase(),
                    ..self.clone()
                });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: Who<'_> = Who {
        api_version: "kubevirt.io/v1",
        kind: "VirtualMachine",
        name: "web",
        namespace: Some("a"),
        uid: None,
    };

    #[test]
    fn a_resource_goes_by_kind_and_plural_in_any_case_and_by_group() {
        for text in [
            "VirtualMachine/web",
            "virtualmachine/web",
            "VirtualMachines/web",
            "virtualmachines.kubevirt.io/web",
            "virtualmachines.v1.kubevirt.io/web",
            "VirtualMachine/web/disk-1",
        ] {
            assert!(text.parse::<Target>().unwrap().is(MACHINE), "{text}");
        }
        for text in [
            "VirtualMachine/Web",
            "VirtualMachineInstance/web",
            "virtualmachines.example.io/web",
            "virtualmachines.v1/web",
        ] {
            assert!(!text.parse::<Target>().unwrap().is(MACHINE), "{text}");
        }
        let node = Who {
            api_version: "v1",
            kind: "Node",
            ..MACHINE
        };
        assert!("nodes.v1/web".parse::<Target>().unwrap().is(node));
    }

    #[test]
    fn what_is_no_kind_and_name_is_refused() {
        for text in ["web", "/web", "VirtualMachine/", "", "/"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
