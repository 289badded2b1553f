//! Tests of continue tokens, and of list options that are invalid or exclude each other.

use super::*;
use base64::Engine as _;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

#[tokio::test(start_paused = true)]
async fn forged_continue_tokens_are_rejected_or_harmless() {
    let fixture = Fixture::filled();
    let engine = base64::engine::general_purpose::URL_SAFE_NO_PAD;
    for (token, code) in [
        (r#"{"v":"meta.k8s.io/v2","rv":105,"start":"/a/x"}"#, 400),
        (r#"{"v":"meta.k8s.io/v1","rv":0,"start":"/a/x"}"#, 400),
        (r#"{"v":"meta.k8s.io/v1","rv":105,"start":"/../x"}"#, 400),
        (r#"{"v":"meta.k8s.io/v1","rv":105,"start":"/a//x"}"#, 400),
        (r#"{"v":"meta.k8s.io/v1","rv":105,"start":"a/x"}"#, 200),
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
    for (query, why) in [
        (
            "continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MTA1LCJzdGFydCI6Ii9hL3gifQ&resourceVersion=105",
            "specifying resource version is not allowed when using continue",
        ),
        ("continue=!!!", "illegal base64 data at input byte 0"),
    ] {
        let (code, body) = fixture.get(&format!("{ALL}?{query}")).await;
        assert_eq!(code, StatusCode::BAD_REQUEST);
        assert!(body.contains(why), "{body}");
    }
}

#[tokio::test]
async fn tokens_of_one_namespace_work_in_another_one() {
    let fixture = Fixture::filled();
    let list = |namespace| format!("{BASE}/namespaces/{namespace}/inflightoperations");
    let first = fixture.json(&format!("{}?limit=1", list("a")), &[]).await;
    assert_eq!(names(&first), ["a/x"]);
    let token = first["metadata"]["continue"].as_str().unwrap();
    // The list continues after the name `x`. The namespace `b` has no later name.
    for (namespace, rest) in [("a", &["a/y"][..]), ("a-b", &["a-b/z"]), ("b", &[])] {
        let path = format!("{}?continue={token}", list(namespace));
        let page = fixture.json(&path, &[]).await;
        assert_eq!(names(&page), rest, "{namespace}");
    }
    // The server ignores the option `limit` for the resourceVersion "0", but not for "00".
    let path = format!("{}?limit=1&resourceVersion=0", list("a"));
    assert_eq!(names(&fixture.json(&path, &[]).await), ["a/x", "a/y"]);
    let path = format!("{}?limit=1&resourceVersion=00", list("a"));
    assert_eq!(names(&fixture.json(&path, &[]).await), ["a/x"]);
}

#[tokio::test]
async fn all_invalid_options_are_reported_at_once() {
    let fixture = Fixture::filled();
    let query = "resourceVersionMatch=Bogus&continue=x&sendInitialEvents=true";
    let (code, body) = fixture.get(&format!("{ALL}?{query}")).await;
    assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY);
    let status: Value = serde_json::from_str(&body).unwrap();
    let causes = status["details"]["causes"].as_array().unwrap();
    let messages: Vec<String> = causes
        .iter()
        .map(|cause| {
            let text = |name: &str| cause[name].as_str().unwrap().to_owned();
            format!("{}: {}", text("field"), text("message"))
        })
        .collect();
    assert_eq!(
        messages,
        [
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless \
             resourceVersion is provided",
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden when continue is \
             provided",
            "resourceVersionMatch: Unsupported value: \"Bogus\": supported values: \"Exact\", \
             \"NotOlderThan\", \"\"",
            "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list",
        ]
    );
    let message = format!(
        "ListOptions.meta.k8s.io \"\" is invalid: [{}]",
        messages.join(", ")
    );
    assert_eq!(status["message"], message);
}
