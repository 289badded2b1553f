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
        ("continue=!!!", "continue key is not valid"),
    ] {
        let (code, body) = fixture.get(&format!("{ALL}?{query}")).await;
        assert_eq!(code, StatusCode::BAD_REQUEST);
        assert!(body.contains(why), "{body}");
    }
}

#[tokio::test]
async fn the_limit_is_ignored_for_the_version_0() {
    let fixture = Fixture::filled();
    let list = format!("{BASE}/namespaces/a/inflightoperations?limit=1&resourceVersion=");
    for (version, expected) in [("0", &["a/x", "a/y"][..]), ("00", &["a/x"])] {
        let list = fixture.json(&format!("{list}{version}"), &[]).await;
        assert_eq!(names(&list), expected);
    }
}

#[tokio::test]
async fn options_that_exclude_each_other_are_rejected() {
    let fixture = Fixture::filled();
    let unsupported =
        "Unsupported value: \"Bogus\": supported values: \"Exact\", \"NotOlderThan\", \"\"";
    for (query, field, message) in [
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=1&continue=x",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
        (
            "resourceVersionMatch=Bogus&resourceVersion=1",
            "resourceVersionMatch",
            unsupported,
        ),
        (
            "sendInitialEvents=true",
            "sendInitialEvents",
            "Forbidden: sendInitialEvents is forbidden for list",
        ),
        (
            "watch=1&sendInitialEvents=true",
            "resourceVersionMatch",
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=1&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is \
             provided",
        ),
        (
            "watch=1&continue=x",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
    ] {
        let (code, body) = fixture.get(&format!("{ALL}?{query}")).await;
        assert_eq!(code, StatusCode::UNPROCESSABLE_ENTITY, "{query}");
        let status: Value = serde_json::from_str(&body).unwrap();
        let cause = &status["details"]["causes"][0];
        assert_eq!(
            (&cause["field"], &cause["message"]),
            (&json!(field), &json!(message))
        );
        let expected = format!("ListOptions.meta.k8s.io \"\" is invalid: {field}: {message}");
        assert_eq!(status["message"], expected);
    }
}
