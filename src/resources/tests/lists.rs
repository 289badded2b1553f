//! Tests of lists: the parts that differ from the lists of custom resources. The comparison with a
//! custom resource in `tests/e2e/compare_with_custom_resource` proves all other options.

use super::*;
use base64::Engine as _;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// A custom resource can have at most 8 selectable fields, so the comparison does not include these.
#[tokio::test]
async fn further_fields_can_be_selected() {
    let mut fixture = Fixture::filled();
    fixture.put(106, "a", "done", |object| {
        object["spec"]["item"] = json!("disk");
        object["status"]["conditions"] = json!([{
            "type": "Overdue", "status": "True", "reason": "LongerThanExpected", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }]);
        object["spec"]["subject"]["namespace"] = json!("a");
    });
    for query in [
        "spec.item%3Ddisk",
        "spec.subject.namespace%3Da",
        "status.conditions.Overdue%3DTrue",
    ] {
        let path = format!("{ALL}?fieldSelector={query}");
        assert_eq!(
            names(&fixture.json(&path, &[]).await),
            ["a/done"],
            "{query}"
        );
    }
    for (rv, name, fields) in [
        (107, "ok", json!({"spec": {"initiator": "ann"}})),
        (
            108,
            "bad",
            json!({"status": {"outcome": "Failed", "reason": "Node"}}),
        ),
    ] {
        let mut record = ifo_api::testing::record(&fields);
        record.metadata.name = name.into();
        let key = crate::index::collection::RECORDS.key("default", name);
        fixture.put_object(rv, key, ifo_api::Object::Record(Arc::new(record)));
    }
    for (query, name) in [
        ("status.outcome%3DFailed", "default/bad"),
        ("status.outcome%21%3DFailed", "default/ok"),
        ("status.reason%3DNode", "default/bad"),
        ("spec.initiator%3Dann", "default/ok"),
    ] {
        let path = format!("{BASE}/operationrecords?fieldSelector={query}");
        assert_eq!(names(&fixture.json(&path, &[]).await), [name], "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn forged_continue_tokens_are_rejected_or_harmless() {
    let fixture = Fixture::filled();
    let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    for (token, code) in [
        (r#"{"v":"meta.k8s.io/v2","rv":105,"start":"/a/x"}"#, 400),
        (r#"{"v":"meta.k8s.io/v1","rv":0,"start":"/a/x"}"#, 400),
        (r#"{"v":"meta.k8s.io/v1","rv":105}"#, 400),
        ("null", 400),
        (r#"{"v":"meta.k8s.io/v1","rv":1,"start":"/a/x"}"#, 410),
        (
            // A replica with a newer index could have issued this token. So the server waits for
            // the version. After three seconds, it answers with a 504.
            r#"{"v":"meta.k8s.io/v1","rv":99999999999,"start":"/a/x"}"#,
            504,
        ),
        (r#"{"v":"meta.k8s.io/v1","rv":-9,"start":"/zzz"}"#, 200),
    ] {
        let path = format!("{ALL}?continue={}", engine.encode(token));
        assert_eq!(fixture.get(&path).await.0.as_u16(), code, "{token}");
    }
}
