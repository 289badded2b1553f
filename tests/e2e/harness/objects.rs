//! The kinds of objects that the tests use, and functions that build and read objects.

use ifo_api::live;
use schemars::{Schema, schema_for};
use serde_json::{Value, json};

/// A kind of objects, and its resource.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    pub api_version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

/// A namespaced kind. `deploy/targets-default` grants the server the right to watch this kind.
pub const VM: Kind = Kind::new("kubevirt.io/v1", "VirtualMachine", "virtualmachines");
/// Another namespaced kind. `deploy/targets-default` grants the right to watch this kind, too.
pub const VMI: Kind = Kind {
    kind: "VirtualMachineInstance",
    plural: "virtualmachineinstances",
    ..VM
};
/// A built-in cluster-scoped kind.
pub const NODE: Kind = Kind::new("v1", "Node", "nodes");
pub const POD: Kind = Kind::new("v1", "Pod", "pods");
pub const NAMESPACE: Kind = Kind::new("v1", "Namespace", "namespaces");
/// The kind of rule sets. A rule set contains CEL expressions that detect operations on the objects
/// of one resource.
pub const RULE_SET: Kind = Kind {
    api_version: "ifo.kubevirt.io/v1alpha1",
    kind: "OperationRuleSet",
    plural: "operationrulesets",
};
/// The kind of operations. The server under test detects operations, such as a migration, on other
/// objects, and serves them.
pub const OPERATION: Kind = Kind {
    api_version: "live.ifo.kubevirt.io/v1alpha1",
    kind: "InFlightOperation",
    plural: "inflightoperations",
};
/// The kind of the records of completed operations.
pub const OPERATION_RECORD: Kind = Kind {
    kind: "OperationRecord",
    plural: "operationrecords",
    ..OPERATION
};
/// The kind of the objects that tell whether a namespace, a node, a component or the cluster is idle.
pub const ACTIVITY: Kind = Kind {
    kind: "Activity",
    plural: "activities",
    ..OPERATION
};
/// The kind of custom resource definitions.
pub const CRD: Kind = Kind {
    api_version: "apiextensions.k8s.io/v1",
    kind: "CustomResourceDefinition",
    plural: "customresourcedefinitions",
};

/// The API path of the `APIService`, with which the kube-apiserver forwards requests for operations to
/// the server.
pub const API_SERVICE: &str =
    "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";

impl Kind {
    pub const fn new(api_version: &'static str, kind: &'static str, plural: &'static str) -> Self {
        Self {
            api_version,
            kind,
            plural,
        }
    }

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

    /// Returns the API path of one object.
    pub fn one(&self, namespace: Option<&str>, name: &str) -> String {
        format!("{}/{name}", self.path(namespace))
    }

    /// Returns an object of this kind. `fields` contains its other fields, and further metadata.
    pub fn object(&self, name: &str, mut fields: Value) -> Value {
        fields["apiVersion"] = json!(self.api_version);
        fields["kind"] = json!(self.kind);
        fields["metadata"]["name"] = json!(name);
        fields
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
    let name = format!("{}.{group}", of.plural);
    let spec = json!({
        "group": group, "scope": scope,
        "names": {"kind": of.kind, "plural": of.plural, "singular": of.kind.to_lowercase()},
        "versions": [{
            "name": version, "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }},
        }],
    });
    CRD.object(&name, json!({"spec": spec}))
}

/// Returns a rule set for the objects of `target`. `rules` contains the operation and the CEL
/// expression of each rule.
pub fn rule_set(name: &str, target: &Kind, rules: &[(&str, &str)]) -> Value {
    let (group, version) = target.group_version();
    let rules: Vec<Value> = rules
        .iter()
        .map(|(operation, expression)| json!({"operation": operation, "expression": expression}))
        .collect();
    let spec = json!({
        "component": "kubevirt",
        "target": {"group": group, "version": version, "resource": target.plural},
        "rules": rules,
    });
    RULE_SET.object(name, json!({"spec": spec}))
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

/// Adds fields to the first rule of a rule set.
pub fn with_rule_fields(mut rule_set: Value, fields: Value) -> Value {
    let rule = rule_set["spec"]["rules"][0].as_object_mut();
    let Value::Object(fields) = fields else {
        panic!("the fields of a rule are an object: {fields}");
    };
    rule.expect("a rule is an object").extend(fields);
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

/// Returns true if the condition of type `kind` has this status or this reason.
pub fn is(object: &Value, kind: &str, status_or_reason: &str) -> bool {
    let condition = condition(object, kind);
    condition["status"] == status_or_reason || condition["reason"] == status_or_reason
}

/// Returns true if the server's own watch of the subject of an operation is interrupted (a watch gap).
pub fn is_in_gap(operation: &Value) -> bool {
    is(operation, "Detected", "Unknown")
}

/// Returns the items of a list.
pub fn items(list: &Value) -> &[Value] {
    list["items"].as_array().expect("a list has items")
}

/// Returns the path of the field that a column of the live table shows, such as `/status/reason`. A
/// cell can show the value in another form.
pub fn path_of_column(name: &str) -> String {
    match name {
        "Name" => "/metadata/name".to_owned(),
        "Kind" => "/spec/subject/kind".to_owned(),
        "Subject" => "/spec/subject/name".to_owned(),
        "Age" | "Started" => "/metadata/creationTimestamp".to_owned(),
        "Full Message" => "/status/message".to_owned(),
        // Any other column has the name of a field.
        name => {
            let field = format!("{}{}", name[..1].to_lowercase(), &name[1..]);
            let has_field = |schema: Schema| {
                let fields = schema.get("properties").and_then(Value::as_object);
                fields.is_some_and(|fields| fields.contains_key(&field))
            };
            if has_field(schema_for!(live::Spec)) {
                return format!("/spec/{field}");
            }
            let is_in_status = has_field(schema_for!(live::Status));
            assert!(is_in_status, "add the path of the column {name} here");
            format!("/status/{field}")
        }
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
