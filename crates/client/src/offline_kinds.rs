//! Finds the plural, the scope and the short names of a kind without asking a cluster. The demo of
//! `ifo-apiserver` and the plugin `kubectl-ifo` use this module for objects from files. The plugin
//! also uses this module for kinds that discovery does not contain.
//!
//! Each row lists the sources of one fact. The module uses the first source that has an answer. A
//! rule set is an `OperationRuleSet`, which names the resources that it watches.
//!
//! | wanted | first source | second source | third source |
//! | --- | --- | --- | --- |
//! | plural of a kind | the CRD of the kind, if it is among the objects | a resource that a rule set watches and that [`is_kind_or_plural`] accepts for the kind | the algorithm of apimachinery ([`plural`]) |
//! | whether a kind belongs to a resource | the CRD of the kind, if it is among the objects | the rules of English plurals ([`is_kind_or_plural`]) | |
//! | whether a kind is namespaced | the CRD of the kind, if it is among the objects | a table of well-known kinds and groups | whether an object of the kind has a namespace |

mod kind_name;
mod well_known;

pub use kind_name::KindName;
pub use well_known::short_names;

use crate::manifest::Object;
use ifo_api::Gvr;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the group and the version of an `apiVersion`. For the core group, the group is empty.
pub fn group_and_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

/// Returns the group of an `apiVersion`. It is empty for the core group.
pub fn group(api_version: &str) -> &str {
    group_and_version(api_version).0
}

/// Guesses the plural of a kind with the algorithm of `meta.UnsafeGuessKindToResource` in
/// apimachinery.
pub fn plural(kind: &str) -> String {
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

/// Endings of the English words whose plural ends in `es`.
const ES_ENDINGS: [&str; 6] = ["s", "x", "z", "ch", "sh", "o"];

/// Returns true if `resource` can be the plural of `kind`. More than one resource can be the plural
/// of a kind, such as `gateways` and `gatewaies` for `Gateway`. The kind itself in lower case also
/// counts as its plural, as `endpoints` for `Endpoints`.
pub fn is_kind_or_plural(resource: &str, kind: &str) -> bool {
    let kind = kind.to_lowercase();
    let takes_es = || ES_ENDINGS.iter().any(|end| kind.ends_with(end));
    // The first arm accepts `endpoints` and `pods`, the second `ingresses`, and the third
    // `policies`.
    match resource.strip_prefix(kind.as_str()) {
        Some("" | "s") => true,
        Some("es") => takes_es(),
        _ => kind
            .strip_suffix('y')
            .is_some_and(|stem| resource.strip_prefix(stem) == Some("ies")),
    }
}

/// An API group and a kind in it.
type GroupKind = (String, String);

/// The facts about a kind in its `CustomResourceDefinition`.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Declaration {
    versions: Vec<String>,
    plural: Option<String>,
    namespaced: Option<bool>,
}

/// Reads the kind that a `CustomResourceDefinition` defines. Returns None for other objects, and
/// for a `CustomResourceDefinition` without a group or without a kind.
fn read_declaration(object: &Object) -> Option<(GroupKind, Declaration)> {
    if object.kind != "CustomResourceDefinition" || object.group() != "apiextensions.k8s.io" {
        return None;
    }
    let text = |pointer| object.json.pointer(pointer).and_then(Value::as_str);
    let kind = (
        text("/spec/group")?.to_owned(),
        text("/spec/names/kind")?.to_owned(),
    );
    let versions = object.json.pointer("/spec/versions");
    let versions = versions.and_then(Value::as_array).into_iter().flatten();
    let declaration = Declaration {
        versions: versions
            .filter_map(|version| version.get("name")?.as_str())
            .map(str::to_owned)
            .collect(),
        plural: text("/spec/names/plural").map(str::to_owned),
        namespaced: text("/spec/scope").map(|scope| scope == "Namespaced"),
    };
    Some((kind, declaration))
}

/// Facts about kinds, which come from CRDs and rule sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KnownKinds {
    /// Kinds that CRDs define.
    declared: BTreeMap<GroupKind, Declaration>,
    /// Plurals of the resources that rule sets watch, by API group.
    watched_plurals: BTreeMap<String, BTreeSet<String>>,
}

impl KnownKinds {
    /// Reads the CRDs among `objects`. If two CRDs define the same kind, the last CRD is used.
    pub fn of<'a>(objects: impl IntoIterator<Item = &'a Object>) -> Self {
        Self {
            declared: objects.into_iter().filter_map(read_declaration).collect(),
            watched_plurals: BTreeMap::new(),
        }
    }

    /// Adds the targets of rule sets. A target is a resource that a rule set watches.
    #[must_use]
    pub fn with_targets<'a>(mut self, targets: impl IntoIterator<Item = &'a Gvr>) -> Self {
        for target in targets {
            let plurals = self
                .watched_plurals
                .entry(target.group.clone())
                .or_default();
            plurals.insert(target.resource.clone());
        }
        self
    }

    /// Returns all combinations of `apiVersion` and kind that CRDs define.
    pub fn declared(&self) -> impl Iterator<Item = (String, &str)> {
        self.declared.iter().flat_map(|((group, kind), it)| {
            let versions = it.versions.iter();
            versions.map(move |version| (format!("{group}/{version}"), kind.as_str()))
        })
    }

    /// Returns the resource of a kind. If no CRD and no rule set has the plural, [`plural`] guesses
    /// it.
    pub fn resource(&self, api_version: &str, kind: &str) -> Gvr {
        let (group, version) = group_and_version(api_version);
        let named = || {
            let plurals = self.watched_plurals.get(group)?;
            plurals.iter().find(|it| is_kind_or_plural(it, kind))
        };
        let known = self.declared_plural(group, kind);
        let known = known.or_else(|| named().map(String::as_str));
        Gvr {
            group: group.to_owned(),
            version: version.to_owned(),
            resource: known.map_or_else(|| plural(kind), str::to_owned),
        }
    }

    /// Returns true if objects of `kind` belong to the resource `resource`. The kind and the
    /// resource are in the API group `group`.
    pub fn is_resource(&self, group: &str, kind: &str, resource: &str) -> bool {
        match self.declared_plural(group, kind) {
            Some(plural) => plural == resource,
            None => is_kind_or_plural(resource, kind),
        }
    }

    /// Returns true if `kind` is namespaced. `has_namespace` must be true if at least one known
    /// object of the kind has a namespace. The method uses `has_namespace` only if neither a CRD
    /// nor the tables of well-known kinds and groups have the answer.
    pub fn is_namespaced(&self, group: &str, kind: &str, has_namespace: bool) -> bool {
        self.declaration(group, kind)
            .and_then(|it| it.namespaced)
            .or_else(|| well_known::is_namespaced(group, kind))
            .unwrap_or(has_namespace)
    }

    fn declared_plural(&self, group: &str, kind: &str) -> Option<&str> {
        self.declaration(group, kind)?.plural.as_deref()
    }

    fn declaration(&self, group: &str, kind: &str) -> Option<&Declaration> {
        self.declared.get(&(group.to_owned(), kind.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn object(json: Value) -> Object {
        let mut objects = Vec::new();
        crate::manifest::append_objects(json, &mut objects)
            .expect("the JSON of the test is an object");
        objects.remove(0)
    }

    fn crd(spec: &Value) -> Object {
        object(json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "kine.x.io"}, "spec": spec,
        }))
    }

    fn kine() -> KnownKinds {
        KnownKinds::of([&crd(&json!({
            "group": "x.io", "scope": "Cluster", "names": {"kind": "Cow", "plural": "kine"},
            "versions": [{"name": "v1"}, {"name": "v2"}],
        }))])
    }

    #[test]
    fn plurals_follow_english() {
        for (resource, kind) in [
            ("pods", "Pod"),
            ("ingresses", "Ingress"),
            ("networkpolicies", "NetworkPolicy"),
            ("gateways", "Gateway"),
            ("boxes", "Box"),
            ("endpoints", "Endpoints"),
            (
                "virtualmachineinstancemigrations",
                "VirtualMachineInstanceMigration",
            ),
        ] {
            assert!(is_kind_or_plural(resource, kind), "{resource}");
        }
        for (resource, kind) in [
            ("virtualmachineinstances", "VirtualMachine"),
            // `virtualmachin` and `es` give `virtualmachines`. But the plural of a kind that ends
            // in `n` does not end in `es`.
            ("virtualmachines", "VirtualMachin"),
            ("pod", "Pods"),
            ("", "Pod"),
        ] {
            assert!(!is_kind_or_plural(resource, kind), "{resource}");
        }
    }

    #[test]
    fn plurals_are_guessed_as_by_apimachinery() {
        for (kind, expected) in [
            ("VirtualMachine", "virtualmachines"),
            ("Endpoints", "endpoints"),
            ("Ingress", "ingresses"),
            ("NetworkPolicy", "networkpolicies"),
            ("Gateway", "gatewaies"),
            ("AAQ", "aaqs"),
        ] {
            assert_eq!(plural(kind), expected);
            assert!(is_kind_or_plural(expected, kind), "{kind}");
        }
    }

    #[test]
    fn the_plural_comes_from_the_crd_then_from_the_rule_sets_then_from_a_guess() {
        let target = |group: &str, resource: &str| Gvr {
            group: group.into(),
            version: "v1".into(),
            resource: resource.into(),
        };
        let targets = [target("x.io", "cows"), target("net.io", "gateways")];
        let known = kine().with_targets(&targets);
        for (api_version, kind, expected) in [
            ("x.io/v1", "Cow", "x.io/v1/kine"),
            ("y.io/v1", "Cow", "y.io/v1/cows"),
            ("net.io/v2", "Gateway", "net.io/v2/gateways"),
            ("other.io/v1", "Gateway", "other.io/v1/gatewaies"),
            ("v1", "Pod", "v1/pods"),
        ] {
            assert_eq!(known.resource(api_version, kind).to_string(), expected);
        }
        assert!(known.is_resource("x.io", "Cow", "kine"));
        assert!(!known.is_resource("x.io", "Cow", "cows"));
        assert!(known.is_resource("", "Pod", "pods"));
    }

    #[test]
    fn the_scope_comes_from_the_crd_then_from_the_table_then_from_the_objects() {
        let none = KnownKinds::default();
        assert!(!kine().is_namespaced("x.io", "Cow", true));
        assert!(!none.is_namespaced("", "Node", true));
        assert!(none.is_namespaced("apps", "Deployment", false));
        assert!(none.is_namespaced("x.io", "Cow", true));
        assert!(!none.is_namespaced("x.io", "Cow", false));
    }

    #[test]
    fn an_incomplete_crd_is_used_for_the_fields_it_has() {
        let versions: Vec<(String, String)> = kine()
            .declared()
            .map(|(version, kind)| (version, kind.to_owned()))
            .collect();
        let cow = "Cow".to_owned();
        assert_eq!(
            versions,
            [("x.io/v1".into(), cow.clone()), ("x.io/v2".into(), cow)]
        );
        let known = KnownKinds::of([
            &crd(&json!({"group": "x.io", "names": {"kind": "Cow", "plural": "kine"}})),
            &crd(&json!({"group": "y.io", "scope": "Namespaced", "names": {"kind": "Hen"}})),
            &crd(&json!({"group": "z.io"})),
        ]);
        assert_eq!(known.declared().count(), 0);
        assert!(known.is_resource("x.io", "Cow", "kine"));
        assert!(known.is_namespaced("x.io", "Cow", true));
        assert!(known.is_resource("y.io", "Hen", "hens"));
        assert!(known.is_namespaced("y.io", "Hen", false));
        let other = object(json!({
            "apiVersion": "x.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "a"}, "spec": {"group": "x.io", "names": {"kind": "Cow", "plural": "kine"}},
        }));
        assert_eq!(KnownKinds::of([&other]), KnownKinds::default());
    }
}
