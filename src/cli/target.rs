//! A resource as people name it. Enters: `Kind/name`, in any case, or with a plural, a
//! short name or a group as kubectl takes them. Leaves: whether a resource is meant.

use super::kin::{Kin, Who};
use super::kinds::{KindName, Kinds, initials};
use super::operation::Subject;
use std::fmt;
use std::str::FromStr;

/// One resource, or all of that name in several namespaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// As it was written.
    text: String,
    kind: KindName,
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
        let kind = KindName::of(kind);
        if kind.name.is_empty() || name.is_empty() {
            return Err(wrong());
        }
        Ok(Self {
            text: text.to_owned(),
            kind,
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
        self.name == who.name && self.kind.is(who.kind, who.api_version)
    }

    /// Whether a subject is it.
    pub(super) fn is_subject(&self, subject: &Subject) -> bool {
        self.is(Who::of(subject))
    }

    /// The same with the kind that the cluster, or else the initials, mean by it, for one
    /// that is none of `kin`'s.
    pub(super) async fn resolved(&self, kinds: &Kinds, kin: &Kin<'_>) -> Resolved {
        let served = kinds.served().await;
        let known = served.into_iter().flatten().find(|it| {
            let goes_by_it = it.names.contains(&self.kind.name);
            goes_by_it && self.kind.is_of(&it.group, &it.version)
        });
        if let Some(kind) = known {
            return Resolved::Kind(self.with_kind(&kind.kind));
        }
        let mut nodes = kin.nodes.iter();
        match nodes.find(|node| initials(node.who.kind) == self.kind.name) {
            Some(node) => Resolved::Kind(self.with_kind(node.who.kind)),
            None if served.is_some() => Resolved::Unknown,
            None => Resolved::CannotTell,
        }
    }

    fn with_kind(&self, kind: &str) -> Self {
        let kind = KindName {
            name: kind.to_ascii_lowercase(),
            ..self.kind.clone()
        };
        Self {
            kind,
            ..self.clone()
        }
    }

    /// What is to be said of a kind that nobody has heard of.
    pub(super) fn unknown(&self) -> String {
        format!("the cluster has no resource {:?}", self.kind.name)
    }
}

/// What a kind is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Resolved {
    /// Short for another one, or one that there is.
    Kind(Target),
    /// There is none.
    Unknown,
    /// The cluster does not say which there are.
    CannotTell,
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
    fn initials_are_the_short_names_of_many_kinds() {
        assert_eq!(initials("VirtualMachineInstance"), "vmi");
        assert_eq!(initials("KubeVirt"), "kv");
    }

    #[test]
    fn what_is_no_kind_and_name_is_refused() {
        for text in ["web", "/web", "VirtualMachine/", "", "/"] {
            assert!(text.parse::<Target>().is_err(), "{text}");
        }
    }
}
