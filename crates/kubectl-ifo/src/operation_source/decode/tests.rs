//! Tests of the decoding of operations of all kinds.

use super::*;
use crate::operation::OperationFacts as _;

#[test]
fn an_object_with_few_fields_is_decoded() {
    let json = r#"{"metadata":{"name":"a","creationTimestamp":"2026-01-01T00:00:00Z"},
        "spec":{"operation":"Migrating","subject":{"kind":"VM","name":"x"}}}"#;
    let operation = decode(json).unwrap();
    assert!(operation.is_active());
    assert_eq!(operation.status.state.name(), "Active");
    assert_eq!(operation.subject_name(), "VM/x");
    let later = "2026-01-01T00:01:00Z".parse().unwrap();
    assert_eq!(operation.age(later), "60s");
    for no_object in ["[]", "{\"status\": 5}", "{\"metadata\": []}"] {
        assert!(decode(no_object).is_err(), "{no_object}");
    }
}

#[test]
fn a_custom_resource_and_a_record_have_the_start_of_the_operation() {
    let start = "2026-01-01T00:00:00Z";
    for state in [
        json!({"phase": "Completed", "state": "Failed"}),
        json!({"outcome": "Failed"}),
    ] {
        let mut object = json!({
            "metadata": {"uid": "of the object", "creationTimestamp": "2026-01-02T00:00:00Z"},
            "status": {
                "started": start, "liveUID": "u",
                "completed": "2026-01-01T00:04:00Z", "durationSeconds": 230, "nodes": ["a"],
            },
        });
        let status = object["status"].as_object_mut().unwrap();
        status.extend(state.as_object().unwrap().clone());
        let it = decode(&object.to_string()).unwrap();
        assert!(!it.is_active());
        assert_eq!(it.marked_state(), "Failed");
        assert_eq!(
            (it.started().to_string(), &*it.metadata.uid),
            (start.to_owned(), "u")
        );
        assert_eq!((it.duration(), &*it.status.nodes[0]), (Some(230), "a"));
        let mut encoded = encode(&it);
        encoded["metadata"] = object["metadata"].clone();
        assert_eq!(encoded, object);
    }
}
