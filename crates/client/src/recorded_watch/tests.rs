//! Tests of the formats of recordings.

use super::*;

fn read_summary(text: &str) -> (Vec<String>, Vec<String>) {
    let (events, faults) = read(text, &KnownKinds::default());
    let events = events
        .iter()
        .map(|event| {
            let Object {
                kind,
                namespace,
                name,
                ..
            } = &event.object;
            let namespace = namespace.as_deref().unwrap_or("-");
            format!("{} {} {kind} {namespace} {name}", event.t, event.resource)
        })
        .collect();
    (events, faults)
}

#[test]
fn both_recording_formats_are_read() {
    let recorded = r#"{"t":3.5,"resource":"apps/v1/deployments","type":"ADDED","object":{"kind":"Deployment","metadata":{"name":"a","namespace":"n"}}}
{"t":3.25,"resource":"v1/nodes","type":"DELETED","object":{"kind":"Node","metadata":{"name":"b"}}}
{"t":4,"resource":"pods","type":"BOOKMARK","object":{}}
{"t":5,"resource":"deployments","type":"MODIFIED","object":{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"c"}}}"#;
    assert_eq!(
        read_summary(recorded).0,
        [
            "3.25 v1/nodes Node - b",
            "3.5 apps/v1/deployments Deployment n a",
            "5 apps/v1/deployments Deployment - c"
        ]
    );
    let object =
        r#"{"apiVersion":"networking.k8s.io/v1","kind":"Ingress","metadata":{"name":"a"}}"#;
    let printed = format!(
        "{{\n  \"type\": \"ADDED\",\n  \"object\": {object}\n}}\n{{\n  \"type\": \"DELETED\", \"object\": {object}}}\n"
    );
    assert_eq!(
        read_summary(&printed).0,
        [
            "0 networking.k8s.io/v1/ingresses Ingress - a",
            "1 networking.k8s.io/v1/ingresses Ingress - a"
        ]
    );
}

#[test]
fn lines_that_are_no_events_are_reported_and_skipped() {
    let good =
        r#"{"type":"ADDED","object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a"}}}"#;
    for (bad, expected) in [
        ("{\"type\":", "event 2: EOF while parsing an object"),
        ("{\"type\": \"ADDED\", \"obj", "event 2: control character"),
        ("{\n  \"type\": {\n  x}\n}", "event 2: key must be a string"),
        (r#"{"type":"ADDED"}"#, "event 2: missing field `object`"),
        (
            r#"{"type":"ADDED","object":{}}"#,
            "event 2: the object has no kind",
        ),
        (
            r#"{"type":"ERROR","object":{"message":"too old"}}"#,
            "event 2: ERROR: too old",
        ),
        (r#"{"type":"X","object":{}}"#, "event 2: unknown type"),
        (
            r#"{"t":1e300,"type":"ADDED","object":{}}"#,
            "event 2: t is not between -3e9 and 3e9 seconds",
        ),
    ] {
        let (events, faults) = read_summary(&format!("{good}\n{bad}\n{good}\n"));
        assert_eq!(events.len(), 2, "{bad}: {faults:?}");
        let first = faults.first().map(String::as_str).unwrap_or_default();
        assert!(first.starts_with(expected), "{faults:?}");
    }
    let (events, faults) = read_summary(&good[..good.len() - 5]);
    assert_eq!((events.len(), faults.len()), (0, 1));
}
