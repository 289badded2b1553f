//! The kinds of objects that the tests use, and functions that build and read objects.

use serde_json::{Value, json};

/// A kind of objects, and its resource.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

/// A namespaced kind. `deploy/targets-default` grants the server the right to watch this kind.
pub const VM: Kind = kind("kubevirt.io/v1", "VirtualMachine", "virtualmachines");
/// Another namespaced kind. `deploy/targets-default` grants the right to watch this kind, too.
pub const VMI: Kind = kind(
    "kubevirt.io/v1",
    "VirtualMachineInstance",
    "virtualmachineinstances",
);
/// A built-in cluster-scoped kind.
pub const NODE: Kind = kind("v1", "Node", "nodes");
/// The kind of rule sets. A rule set contains CEL expressions that detect operations on the objects
/// of one resource.
pub const RULE_SET: Kind = kind(
    "ifo.kubevirt.io/v1alpha1",
    "OperationRuleSet",
    "operationrulesets",
);
/// The kind of operations. The server under test detects operations, such as a migration, on other
/// objects, and serves them.
pub const OPERATION: Kind = kind(
    "live.ifo.kubevirt.io/v1alpha1",
    "InFlightOperation",
    "inflightoperations",
);
/// The kind of custom resource definitions.
pub const CRD: Kind = kind(
    "apiextensions.k8s.io/v1",
    "CustomResourceDefinition",
    "customresourcedefinitions",
);

const fn kind(api_version: &'static str, kind: &'static str, plural: &'static str) -> Kind {
    Kind {
        api_version,
        kind,
        plural,
    }
}

impl Kind {
    /// Returns the API path of all objects, or of the objects in a namespace.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.api_version.contains('/') {
            "/apis"
        } else {
            "/api"
        };
        let namespace = namespace.map_or(String::new(), |name| format!("/namespaces/{name}"));
        format!("{root}/{}{namespace}/{}", self.api_version, self.plural)
    }

    /// Returns the group and the version.
    pub fn group_version(&self) -> (&'static str, &'static str) {
        self.api_version
            .split_once('/')
            .unwrap_or(("", self.api_version))
    }
}

/// Returns a CRD for a kind. The schema of the CRD accepts any object. `scope` is `Namespaced` or
/// `Cluster`.
pub fn crd(of: &Kind, scope: &str) -> Value {
    let (group, version) = of.group_version();
    json!({
        "apiVersion": CRD.api_version, "kind": CRD.kind,
        "metadata": {"name": format!("{}.{group}", of.plural)},
        "spec": {
            "group": group, "scope": scope,
            "names": {"kind": of.kind, "plural": of.plural, "singular": of.kind.to_lowercase()},
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true,
                }},
            }],
        },
    })
}

/// Returns a rule set for the objects of `target`. `rules` contains the operation and the CEL
/// expression of each rule.
pub fn rule_set(name: &str, target: &Kind, rules: &[(&str, &str)]) -> Value {
    let (group, version) = target.group_version();
    let rules: Vec<Value> = rules
        .iter()
        .map(|(operation, expression)| json!({"operation": operation, "expression": expression}))
        .collect();
    json!({
        "apiVersion": RULE_SET.api_version, "kind": RULE_SET.kind,
        "metadata": {"name": name},
        "spec": {
            "component": "kubevirt",
            "target": {"group": group, "version": version, "resource": target.plural},
            "rules": rules,
        },
    })
}

/// Returns a rule set for the VirtualMachines in one namespace. It detects the operation
/// `Migrating` on each VirtualMachine whose `printableStatus` is `Migrating`. The rule set has the
/// name of the namespace.
pub fn migrating(namespace: &str) -> Value {
    let rule = "object.status.printableStatus == 'Migrating'";
    let mut rule_set = rule_set(namespace, &VM, &[("Migrating", rule)]);
    rule_set["spec"]["namespaces"] = json!([namespace]);
    rule_set
}

/// Returns the condition of type `kind`, or null if the object does not have this condition.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    const NONE: &Value = &Value::Null;
    object["status"]["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|condition| condition["type"] == kind))
        .unwrap_or(NONE)
}

/// Returns the path of the field that a column of the live table shows, such as `/status/reason`. A
/// cell can show the value in another form.
pub fn path_of_column(name: &str) -> String {
    match name {
        "Name" => "/metadata/name".to_owned(),
        "Kind" => "/spec/subject/kind".to_owned(),
        "Subject" => "/spec/subject/name".to_owned(),
        "Operation" => "/spec/operation".to_owned(),
        "Component" => "/spec/component".to_owned(),
        "RuleSet" => "/spec/ruleSet".to_owned(),
        "Initiator" => "/spec/initiator".to_owned(),
        "Age" | "Started" => "/metadata/creationTimestamp".to_owned(),
        "Full Message" => "/status/message".to_owned(),
        // Any other column has the name of a field of the status.
        name => format!("/status/{}{}", name[..1].to_lowercase(), &name[1..]),
    }
}

/// Returns the string at a JSON pointer. If there is no string at this pointer, returns an empty
/// string.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
