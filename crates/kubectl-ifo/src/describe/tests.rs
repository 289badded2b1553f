//! Tests of the text that `kubectl ifo describe` prints.

use super::{DescribedFacts, OperationDescription, events, related, rule, text};
use crate::colors::Paint;
use crate::operation::{InFlightOperation, OperationFacts as _};
use crate::operation_source::decode;
use crate::test_fixtures::{OperationFixture as _, client, now, on, subject};
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
            "initiator": "ann", "subject": {
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
            "message": "no node\nhas room", "progress": 45, "cancel": "kubectl delete vmim 'a b'",
            "queuedAt": "2026-01-01T11:55:30Z", "startTimeSource": "Expression", "lastDetected": "2026-01-01T11:59:30Z", "estimatedCompletion": "2026-01-01T12:05:00Z",
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

/// Describes an operation that is related to `all`.
fn described(operation: &InFlightOperation, object: Value, all: &[InFlightOperation]) -> String {
    let facts = DescribedFacts {
        rule: rule::rule_for(&rule_set(), "Migrating"),
        events: Some(Ok(three_events())),
    };
    let description = OperationDescription::new(operation, object, &facts, all);
    text::text(&[description], now(), Paint::default()).to_string()
}

#[test]
fn describe_shows_all_fields_the_rule_and_events() {
    let operation = decode(&object().to_string()).unwrap();
    let text = described(&operation, object(), &[]);
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    for line in [
        "Name: web-migrating-3f9c2a1b5e6d7f80",
        "Initiator: ann",
        "Queued: 90s",
        "To Stop It: kubectl delete vmim 'a b'",
        "ruleSet: vm-rules",
        "apiVersion: kubevirt.io/v1",
        "controller: true",
        "detectedBy: vm-rules, others",
        "lastDetected: 2026-01-01T11:59:30Z (30s ago)",
        "estimatedCompletion: 2026-01-01T12:05:00Z (in 5m)",
        "message: no node",
        "has room",
        "Progressing True 3m NoRoom no node has room",
        "Detected Unknown 60s WatchGap",
        "expression: variables.aVariableWithALongName > 0 &&",
        "variables.migrations[0].running",
        "supersedes: Starting, Stopping",
        "migrations: variables.status.migrations",
        "notReady: may not watch",
        "Related: <none>",
        "Warning Evicting 3m (x5) drainer again",
        "Warning Evicting 1s (x3)",
    ] {
        assert!(lines.iter().any(|it| it == line), "{line}: {text}");
    }
    let head = [
        "State: Failing",
        "Message: no node",
        "has room",
        "Since: 2026-01-01T11:57:00Z (3m ago)",
    ];
    assert_eq!(lines[..4], head, "{text}");
    let end = [
        "Labels:",
        "ifo.kubevirt.io/correlation-group: vm.web",
        "ifo.kubevirt.io/operation: Migrating",
        "UID: u-1",
    ];
    assert_eq!(lines[lines.len() - 4..], end, "{text}");
    assert!(!text.contains("unused"), "{text}");
    // The first section begins at the margin, and no text of the object does.
    assert!(!text.contains("\nhas room"), "{text}");
}

/// Removes each field of the object, and expects that the description changes.
#[test]
fn each_field_of_an_operation_is_described() {
    let operation = decode(&object().to_string()).unwrap();
    let all = described(&operation, object(), &[]);
    for part in ["spec", "status"] {
        let fields = object()[part].as_object().cloned().unwrap_or_default();
        for field in fields.keys().filter(|it| *it != "conditions") {
            let mut without = object();
            without[part].as_object_mut().unwrap().remove(field);
            let changed = described(&operation, without, &[]);
            assert_ne!(changed, all, "{part}.{field} is not described");
        }
    }
}

#[test]
fn operations_of_the_same_subject_owners_and_groups_are_related() {
    let operation = decode(&object().to_string()).unwrap();
    let mut owned =
        on("shop", "VirtualMachineInstance", "web", "Booting").owned_by("VirtualMachine", "web");
    std::sync::Arc::make_mut(&mut owned.spec.subject.owner_references)[0].uid = "u-2".into();
    let mut owner = on("shop", "Pool", "p", "Growing").state("Succeeded", None);
    owner.spec.subject.uid = Some("u-3".into());
    let mut resizing = operation.clone();
    resizing.metadata.name = "web-resizing".into();
    let in_group =
        |namespace: &str, kind: &str| on(namespace, kind, "m", "Running").group("vm.web", "child");
    let all = [
        owner,
        owned,
        in_group("shop", "Migration"),
        in_group("", "Node"),
        in_group("elsewhere", "Migration"),
        on("shop", "VirtualMachine", "other", "Migrating"),
        operation.clone(),
        resizing,
    ];
    let related = related::to(&operation, &all);
    let related: Vec<(&str, String)> = related
        .iter()
        .map(|it| (it.0, it.1.subject_name()))
        .collect();
    let expected = [
        ("Owned", "VirtualMachineInstance/web"),
        ("Same group", "Migration/m"),
        ("Same group", "Node/m"),
        ("Same subject", "VirtualMachine/web"),
        ("Owner", "Pool/p"),
    ];
    assert_eq!(related, expected.map(|(how, name)| (how, name.to_owned())));
}

#[test]
fn missing_information_is_stated_and_long_tables_are_cut() {
    let operation = on("a", "VM", "web", "Migrating");
    let relative = |number: usize| on("a", "VM", "web", &format!("Resizing{number}"));
    let all: Vec<InFlightOperation> = (0..300).map(relative).collect();
    let facts = DescribedFacts {
        rule: Err("you may not get operationrulesets".to_owned()),
        events: Some(Err("you may not list events".to_owned())),
    };
    let description = OperationDescription::new(&operation, Value::Null, &facts, &all);
    let text = text::text(&[description], now(), Paint::default()).to_string();
    for part in [
        "<not shown: you may not get operationrulesets>",
        "<not shown: you may not list events>",
        "Conditions:           <none>",
        "… and 250 more",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[tokio::test]
async fn the_newest_events_can_be_on_the_last_page() {
    let subject = subject("shop", "VirtualMachine", "web");
    let uid = subject.uid.clone();
    let server = client(move |uri| {
        let (reason, minute, next) = if uri.contains("continue=next") {
            ("Newest", 59, "")
        } else {
            ("Older", 10, "next")
        };
        let time = format!("2026-01-01T11:{minute}:00Z");
        Some(json!({
            "metadata": {"continue": next},
            "items": [{"reason": reason, "lastTimestamp": time, "metadata": {},
                       "involvedObject": {"kind": "VirtualMachine", "name": "web", "uid": uid}}],
        }))
    });
    let events = events::read(&server, &subject).await.expect("two pages");
    let reasons: Vec<_> = events.iter().filter_map(|it| it.reason.clone()).collect();
    assert_eq!(reasons, ["Newest", "Older"]);
}
