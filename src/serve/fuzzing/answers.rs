//! Checks that apply to every answer.

use super::World;
use crate::serve::status::ErrorStatus;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::IntoResponse as _;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::io::Read as _;
use tower::ServiceExt as _;

/// Largest part of a watch that is read, in chunks: the initial events, and some bookmarks. A whole
/// year of a watch would have half a million.
const CHUNKS: usize = 6;

/// Checks an error: its code is one of `expected`, and its body is a `Status` with the same code.
pub fn refused(failure: &ErrorStatus, expected: &[u16]) {
    let code = failure.clone().into_response().status();
    assert!(
        expected.contains(&code.as_u16()),
        "{code} for {failure}, not one of {expected:?}"
    );
    let status: Value = serde_json::from_slice(&failure.json()).expect("a Status is JSON");
    is_status(&status, code.as_u16());
    assert_eq!(status["message"], failure.to_string());
}

/// Checks that the object is a `Status` for `code`.
fn is_status(status: &Value, code: u16) {
    assert_eq!(status["kind"], "Status", "{status}");
    assert_eq!(status["apiVersion"], "v1", "{status}");
    assert_eq!(status["status"], "Failure", "{status}");
    assert_eq!(status["code"], code, "{status}");
    for field in ["message", "reason"] {
        let text = status[field].as_str().expect("both are strings");
        assert!(!text.is_empty(), "{field} of {status}");
    }
    assert!(status["metadata"].is_object(), "{status}");
}

/// The answer to a request: its head, and its decompressed body. An endless body is cut.
pub struct Answer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Sends a request and reads the answer.
pub fn answer(
    world: &World,
    router: &Router,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> Answer {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers.clone();
    world.runtime.block_on(async {
        let answer = router.clone().oneshot(request).await;
        let (head, mut body) = answer.expect("a router cannot fail").into_parts();
        let mut read = Vec::new();
        let compressed = head.headers.contains_key(header::CONTENT_ENCODING);
        // A compressed body has an end.
        let most = if compressed { usize::MAX } else { CHUNKS };
        for _ in 0..most {
            let Some(chunk) = chunk(&mut body).await else {
                break;
            };
            read.extend_from_slice(&chunk);
        }
        if compressed && *method != Method::HEAD {
            read = decompressed(&head.headers, &read);
        }
        Answer {
            code: head.status.as_u16(),
            headers: head.headers,
            body: read,
        }
    })
}

async fn chunk(body: &mut Body) -> Option<Bytes> {
    let frame = body.frame().await?.expect("no body breaks off");
    Some(frame.into_data().expect("there are no trailers"))
}

/// Decompresses a body as a client does, and checks the headers about its coding.
fn decompressed(headers: &HeaderMap, body: &[u8]) -> Vec<u8> {
    assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
    assert_eq!(headers[header::VARY], "Accept-Encoding");
    let mut whole = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(body);
    let read = decoder.read_to_end(&mut whole);
    read.expect("it is compressed, and complete");
    assert!(decoder.into_inner().is_empty(), "nothing comes after it");
    whole
}

/// Checks that Kubernetes has such an answer, and that its body matches its headers.
pub fn check(method: &Method, uri: &Uri, answer: &Answer) {
    let Answer {
        code,
        headers,
        body,
    } = answer;
    // Watches, and reads that wait for a later version, can reach a time limit. No other request
    // may cause a server error.
    assert!(*code < 500 || *code == 504, "{code} for {method} {uri}");
    assert!(*code >= 200 && (*code < 300 || *code == 304 || *code >= 400));
    if *method == Method::HEAD || *code == 304 {
        assert!(body.is_empty());
        return;
    }
    let content_type = headers
        .get(header::CONTENT_TYPE)
        .map_or("", |value| value.to_str().expect("it is a fixed text"));
    match content_type.split(';').next().unwrap_or_default() {
        "application/json" if *code < 300 => lines(body),
        "application/json" => {
            let body: Value = serde_json::from_slice(body).expect("it is JSON");
            if body.get("paths").is_none() {
                is_status(&body, *code);
            }
        }
        "application/yaml" => {
            let body = std::str::from_utf8(body).expect("it is text");
            let body: Value = serde_saphyr::from_str(body).expect("it is YAML");
            assert!(body["kind"].is_string());
        }
        "text/plain" | "application/openmetrics-text" => {
            std::str::from_utf8(body).expect("it is text");
        }
        "" => assert!(body.is_empty(), "{code} for {method} {uri}"),
        other => panic!("{other} for {method} {uri}"),
    }
}

/// Checks a document, or the events of a watch.
fn lines(body: &[u8]) {
    let mut documents = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    let first = documents.next().map(|first| first.expect("it is JSON"));
    let Some(first) = first else {
        // A watch that ended before its first event.
        return;
    };
    let is_event = |value: &Value| value.get("type").is_some() && value.get("object").is_some();
    if !is_event(&first) {
        assert!(documents.next().is_none());
        return;
    }
    let rest = documents.map(|next| next.expect("it is JSON"));
    let mut over = false;
    for event in std::iter::once(first).chain(rest) {
        assert!(is_event(&event) && !over, "{event}");
        let (kind, object) = (&event["type"], &event["object"]);
        assert!(object["kind"].is_string() && object["apiVersion"].is_string());
        match kind.as_str().expect("a type is a string") {
            "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" => {
                assert!(object["metadata"]["resourceVersion"].is_string(), "{event}");
            }
            "ERROR" => {
                let code = object["code"].as_u64().expect("an error has a code");
                let code = u16::try_from(code).expect("codes have three digits");
                assert!(matches!(code, 410 | 429 | 504), "{event}");
                is_status(object, code);
                over = true;
            }
            other => panic!("{other} is no type of an event"),
        }
    }
}

/// Checks that a router that forbids everything only returns public facts: health and discovery.
pub fn check_forbidden(uri: &Uri, answer: &Answer) {
    if !StatusCode::from_u16(answer.code).is_ok_and(|code| code.is_success()) {
        return;
    }
    let path = uri.path().trim_end_matches('/');
    let open = matches!(path, "/version" | "/healthz" | "/livez" | "/readyz")
        || ["/apis", "/openapi/"]
            .iter()
            .any(|root| path.starts_with(root));
    assert!(open, "{} for {uri}", answer.code);
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let kind = body["kind"].as_str().unwrap_or_default();
    assert!(
        !kind.starts_with("InFlightOperation") && kind != "Table",
        "{uri}"
    );
    assert!(body.get("type").is_none(), "{uri}");
}
