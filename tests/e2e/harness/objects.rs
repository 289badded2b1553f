//! The kinds of objects in tests, and functions to create them.

use serde_json::{Value, json};

/// A kind and the resource that holds its objects.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

/// A namespaced kind that `deploy/targets-default` lets the server watch.
pub const VM: Kind = kind("kubevirt.io/v1", "VirtualMachine", "virtualmachines");
/// Another such kind.
pub const VMI: Kind = kind(
    "kubevirt.io/v1",
    "VirtualMachineInstance",
    "virtualmachineinstances",
);
/// A built-in cluster-scoped kind.
pub const NODE: Kind = kind("v1", "Node", "nodes");
/// Rule sets.
pub const RULE_SET: Kind = kind(
    "ifo.kubevirt.io/v1alpha1",
    "OperationRuleSet",
    "operationrulesets",
);
/// The resource of the server under test.
pub const OPERATION: Kind = kind(
    "live.ifo.kubevirt.io/v1alpha1",
    "InFlightOperation",
    "inflightoperations",
);
/// Definitions of custom resources.
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
    /// Path of all objects, or of the objects in a namespace.
    pub fn path(&self, namespace: Option<&str>) -> String {
        let root = if self.api_version.contains('/') {
            "/apis"
        } else {
            "/api"
        };
        let namespace = namespace.map_or(String::new(), |name| format!("/namespaces/{name}"));
        format!("{root}/{}{namespace}/{}", self.api_version, self.plural)
    }

    /// Group and version.
    pub fn group_version(&self) -> (&'static str, &'static str) {
        self.api_version
            .split_once('/')
            .unwrap_or(("", self.api_version))
    }
}

/// A CRD without a schema, so that any object is accepted.
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

/// A rule set with one operation for each expression.
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

/// A rule set for migrating machines in one namespace. It has the name of the namespace.
pub fn migrating(namespace: &str) -> Value {
    let rule = "object.status.printableStatus == 'Migrating'";
    let mut rule_set = rule_set(namespace, &VM, &[("Migrating", rule)]);
    rule_set["spec"]["namespaces"] = json!([namespace]);
    rule_set
}

/// The condition of this type, or null.
pub fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    const NONE: &Value = &Value::Null;
    object["status"]["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|condition| condition["type"] == kind))
        .unwrap_or(NONE)
}

/// The string at a JSON pointer. Empty if it does not exist.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}
