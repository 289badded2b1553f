//! Tests of the text that `kubectl ifo describe` prints.

use super::rule_details::DescribedRule;
use super::{OperationDescription, events, related_operations, text};
use crate::colors::Paint;
use crate::listed_operation::{ListedOperation, operation_name_in};
use crate::ownership::Ownership;
use crate::test_fixtures::{client, now, on, subject};
use ifo_api::generate_crds::persisted_operations;
use k8s_openapi::api::core::v1::Event;
use serde_json::{Value, json};

fn object() -> Value {
    json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {
            "name": "web-migrating-3f9c2a1b5e6d7f80", "namespace": "shop", "uid": "u-1",
            "creationTimestamp": "2026-01-01T11:57:00Z",
            "labels": {
                "ifo.kubevirt.io/correlation-group": "vm.web",
                "ifo.kubevirt.io/operation": "Migrating",
            },
        },
        "spec": {
            "operation": "Migrating", "ruleSet": "vm-rules", "component": "kubevirt",
            "subject": {
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "web",
                "namespace": "shop", "uid": "u-2",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Pool", "name": "p", "uid": "u-3", "controller": true},
                    {"apiVersion": "v1", "kind": "Folder", "name": "f", "uid": "u-4"},
                ],
            },
        },
        "status": {
            "phase": "Active", "state": "Failing", "reason": "NoRoom",
            "message": "no node\nhas room", "progress": 45,
            "startTimeSource": "Expression", "lastDetected": "2026-01-01T11:59:30Z",
            "detectedBy": ["vm-rules", "others"], "subjectGeneration": 7,
            "conditions": [
                {"type": "Progressing", "status": "True", "reason": "NoRoom",
                 "message": "no node has room", "lastTransitionTime": "2026-01-01T11:57:00Z"},
                {"type": "Detected", "status": "Unknown", "reason": "WatchGap", "message": "",
                 "lastTransitionTime": "2026-01-01T11:59:00Z"},
            ],
        },
    })
}

fn rule_set() -> Value {
    json!({
        "spec": {
            "target": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
            "variables": [
                {"name": "status", "expression": "object.status"},
                {"name": "statusText", "expression": "'unused'"},
                {"name": "migrations", "expression": "variables.status.migrations"},
                {"name": "disk", "expression": "object.spec.disk"},
                {"name": "limit", "expression": "duration(object.spec.limit)"},
                {"name": "aVariableWithALongName", "expression": "variables.migrations.size()"},
            ],
            "rules": [
                {"operation": "Starting", "expression": "false"},
                {
                    "operation": "Migrating",
                    "expression": "variables.aVariableWithALongName > 0 &&\n  variables.migrations[0].running\n",
                    "continueWhile": "variables.migrations.size() > 0",
                    "state": "'Failing'",
                    "supersedes": ["Starting", "Stopping"],
                    "debounce": "10s",
                    "stateAfter": "5s",
                    "work": "object.metadata.uid",
                    "size": "quantity(variables.disk)",
                    "expectedDuration": "variables.limit",
                    "stalledAfter": "10m",
                },
            ],
        },
        "status": {"conditions": [
            {"type": "Ready", "status": "False", "reason": "Forbidden", "message": "may not watch"},
        ]},
    })
}

fn three_events() -> Vec<Event> {
    serde_json::from_value(json!([
        {"type": "Normal", "reason": "Scheduled", "message": "on node a\n", "count": 1,
         "firstTimestamp": "2026-01-01T11:50:00Z", "lastTimestamp": "2026-01-01T11:50:00Z",
         "eventTime": null, "source": {"component": "scheduler"}},
        {"type": "Warning", "reason": "Evicting", "message": "again", "count": 5,
         "firstTimestamp": "2026-01-01T11:50:00Z", "lastTimestamp": "2026-01-01T11:57:00Z",
         "source": {}, "reportingComponent": "drainer"},
        {"type": "Warning", "reason": "Evicting", "message": "",
         "firstTimestamp": null, "lastTimestamp": null,
         "eventTime": "2026-01-01T11:00:00.000000Z",
         "series": {"count": 3, "lastObservedTime": "2026-01-01T11:59:59.000000Z"}},
    ]))
    .unwrap()
}

fn described(descriptions: &[OperationDescription<'_>]) -> String {
    text::text(descriptions, now(), Paint::default()).to_string()
}

#[test]
fn describe_shows_all_details() {
    let object = object();
    let operation = ListedOperation::read(&object.to_string(), true).unwrap();
    let mut operations = vec![
        operation.clone(),
        on("shop", "VirtualMachineInstance", "web", "Booting").since(5),
        on("shop", "Pool", "p", "Growing").state("Succeeded", None),
        on("shop", "Migration", "m", "Running")
            .group("vm.web", "child")
            .since(60),
        on("", "Node", "n", "Draining")
            .group("vm.web", "root")
            .state("Blocked", None),
        on("elsewhere", "Migration", "m", "Running").group("vm.web", "child"),
        on("shop", "VirtualMachine", "other", "Migrating"),
    ];
    operations[1] = operations[1].clone().owned_by("VirtualMachine", "web");
    operations[1].subject.owner_references[0].uid = "u-2".to_owned();
    operations[2].subject.uid = Some("u-3".to_owned());
    let mut resizing = operation.clone();
    resizing.name = "web-resizing".to_owned();
    resizing.operation = "Resizing".to_owned();
    operations.push(resizing);
    let ownership = Ownership::of(&operations, &[]);
    let description = OperationDescription {
        operation: &operations[0],
        object,
        rule: DescribedRule::of(&rule_set(), "Migrating"),
        related: related_operations::to(&operations[0], &ownership),
        events: Some(Ok(three_events())),
    };
    let text = described(&[description]);
    assert_eq!(text, include_str!("tests/all.txt"), "\n{text}");
}

/// Returns the properties of a schema in a CRD. `path` is the path of the schema in an object.
fn properties(crd: &Value, path: &str) -> serde_json::Map<String, Value> {
    let schema = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    let properties = schema.pointer(&format!("/properties/{path}/properties"));
    properties.unwrap().as_object().unwrap().clone()
}

/// Returns a value that the schema allows, with all fields.
fn example(schema: &Value) -> Value {
    match schema["type"].as_str().unwrap() {
        "object" => {
            let fields = schema["properties"].as_object().into_iter().flatten();
            fields
                .map(|(field, schema)| (field.clone(), example(schema)))
                .collect()
        }
        "array" => json!([example(&schema["items"])]),
        "integer" => json!(7),
        "boolean" => json!(true),
        _ if schema["format"] == "date-time" => json!("2026-01-01T13:00:00Z"),
        _ => schema["enum"].get(0).cloned().unwrap_or(json!("Example")),
    }
}

#[test]
fn each_field_of_an_operation_is_described() {
    let crd = json!(persisted_operations());
    let part =
        |path: &str| example(&json!({"type": "object", "properties": properties(&crd, path)}));
    let object = json!({"metadata": {"name": "a"}, "spec": part("spec"), "status": part("status")});
    let describe = |object: &Value| {
        described(&[OperationDescription {
            operation: &ListedOperation::read(&object.to_string(), true).unwrap(),
            object: object.clone(),
            rule: Err(String::new()),
            related: Vec::new(),
            events: None,
        }])
    };
    let all = describe(&object);
    for part in ["spec", "status"] {
        for field in properties(&crd, part).keys() {
            let mut without = object.clone();
            without[part].as_object_mut().unwrap().remove(field);
            // The custom resource has `liveUID` instead of `metadata.uid`.
            let is_described = describe(&without) != all || field == "liveUID";
            assert!(is_described, "{part}.{field} is not described");
        }
    }
}

#[test]
fn missing_information_is_stated_in_its_section() {
    let operation = on("", "Node", "n", "Draining").item("disk");
    let description = || OperationDescription {
        operation: &operation,
        object: Value::Null,
        rule: Err("you may not get operationrulesets".to_owned()),
        related: Vec::new(),
        events: Some(Err("you may not list events".to_owned())),
    };
    let without_events = OperationDescription {
        events: None,
        ..description()
    };
    let text = described(&[without_events, description()]);
    assert_eq!(text, include_str!("tests/little.txt"), "\n{text}");
    let none = OperationDescription {
        events: Some(Ok(Vec::new())),
        ..description()
    };
    assert!(described(&[none]).ends_with("\nEvents:          <none>\n"));
}

#[test]
fn of_many_relatives_the_closest_are_shown() {
    let operation = on("a", "VM", "web", "Migrating");
    let mut operations: Vec<ListedOperation> = (0..300)
        .map(|number| on("a", "Pod", &format!("p-{number:03}"), "Starting").owned_by("VM", "web"))
        .collect();
    operations.push(operation.clone());
    let ownership = Ownership::of(&operations, &[]);
    let event = |number: usize| -> Event {
        serde_json::from_value(json!({"reason": format!("Event{number:03}")})).unwrap()
    };
    let description = OperationDescription {
        operation: &operation,
        object: Value::Null,
        rule: Err(String::new()),
        related: related_operations::to(&operation, &ownership),
        events: Some(Ok((0..300).map(event).collect())),
    };
    let text = described(&[description]);
    assert!(
        text.contains("… and 250 more; see: kubectl ifo tree"),
        "{text}"
    );
    assert!(text.contains("… and 250 earlier ones"), "{text}");
    assert!(
        text.contains("Event299") && !text.contains("Event249"),
        "{text}"
    );
}

#[test]
fn owners_are_linked_through_resources_without_operations() {
    let operations = [
        on("a", "Deployment", "web", "RollingOut"),
        on("a", "Pod", "x", "Evicting").owned_by("Set", "web-1"),
    ];
    let known = [subject("a", "Set", "web-1").owned_by("a", "Deployment", "web")];
    let ownership = Ownership::of(&operations, &known);
    let hows = |operation: &ListedOperation| -> Vec<(&str, String)> {
        let related = related_operations::to(operation, &ownership);
        let each = related.iter();
        each.map(|it| (it.how, it.operation.subject_name()))
            .collect()
    };
    assert_eq!(hows(&operations[0]), [("Owned", "Pod/x".to_owned())]);
    assert_eq!(
        hows(&operations[1]),
        [("Owner", "Deployment/web".to_owned())]
    );
}

#[test]
fn a_missing_rule_is_reported() {
    assert_eq!(
        DescribedRule::of(&rule_set(), "Resizing"),
        Err("the rule set has no rule for Resizing any more".to_owned())
    );
}

#[test]
fn operation_names_are_distinguished_from_resource_names() {
    for resource in ["VirtualMachine/web", "vm/web", "pods.v1/x"] {
        assert_eq!(operation_name_in(resource), None, "{resource}");
    }
    for operation in [
        "web-migrating-3f9c2a1b5e6d7f80",
        "inflightoperation.live.ifo.kubevirt.io/web-migrating-3f9c2a1b5e6d7f80",
        "ifo/web-migrating-3f9c2a1b5e6d7f80",
    ] {
        assert_eq!(
            operation_name_in(operation),
            Some("web-migrating-3f9c2a1b5e6d7f80")
        );
    }
}

#[tokio::test]
async fn the_newest_events_can_be_on_the_last_page() {
    let server = client(|uri| {
        let (reason, minute, next) = if uri.contains("continue=next") {
            ("Newest", 59, "")
        } else {
            ("Older", 10, "next")
        };
        let time = format!("2026-01-01T11:{minute}:00Z");
        Some(json!({
            "metadata": {"continue": next},
            "items": [{"reason": reason, "lastTimestamp": time, "metadata": {}, "involvedObject": {}}],
        }))
    });
    let subject = subject("shop", "VirtualMachine", "web");
    let events = events::read(&server, &subject).await.expect("two pages");
    let reasons: Vec<_> = events.iter().filter_map(|it| it.reason.clone()).collect();
    assert_eq!(reasons, ["Older", "Newest"]);
}
