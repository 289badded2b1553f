//! The checks of the server's answers, and the function [`send`], which sends a request and returns
//! the answer. The fuzz targets call these functions.

use super::FuzzServer;
use super::notes::{GROUP, VERSION};
use crate::serve::error_status::ErrorStatus;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::response::IntoResponse as _;
use http::{HeaderMap, Method, Request, StatusCode, Uri, header};
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::io::Read as _;
use tower::ServiceExt as _;

/// Largest number of chunks that [`send`] reads from an uncompressed body. After these chunks,
/// [`send`] ends the request. For a watch, they contain the initial events and some bookmarks. The
/// limit is needed because a fuzzer can request a very long watch: a watch of one year would send
/// half a million bookmarks.
const MAX_CHUNKS: usize = 6;

/// Checks that the code of an error is one of `expected`, and that its body is a `Status` with this
/// code.
pub fn check_error(failure: &ErrorStatus, expected: &[u16]) {
    let code = failure.clone().into_response().status();
    assert!(
        expected.contains(&code.as_u16()),
        "the code of {failure:?} is {code}, expected one of {expected:?}"
    );
    let status: Value =
        serde_json::from_slice(&failure.json()).expect("the server has encoded the body as JSON");
    check_status(&status, code.as_u16());
    assert_eq!(status["message"], failure.to_string());
}

/// Checks that the object is a `Status` with this code.
fn check_status(status: &Value, code: u16) {
    assert_eq!(status["kind"], "Status", "{status}");
    assert_eq!(status["apiVersion"], "v1", "{status}");
    assert_eq!(status["status"], "Failure", "{status}");
    assert_eq!(status["code"], code, "{status}");
    for field in ["message", "reason"] {
        let text = status[field]
            .as_str()
            .expect("message and reason are strings");
        assert!(!text.is_empty(), "{field} is empty: {status}");
    }
    assert!(status["metadata"].is_object(), "{status}");
}

/// The answer to a request. The body is decompressed. For a watch, the body contains only the first
/// events.
pub struct CheckedAnswer {
    pub code: u16,
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

/// Sends a request and returns the answer.
pub fn send(
    fuzz_server: &FuzzServer,
    router: &Router,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
) -> CheckedAnswer {
    let mut request = Request::new(Body::empty());
    *request.method_mut() = method.clone();
    *request.uri_mut() = uri.clone();
    *request.headers_mut() = headers.clone();
    fuzz_server.runtime.block_on(async {
        let answer = router.clone().oneshot(request).await;
        let (head, mut body) = answer
            .expect("the error type of a router is Infallible")
            .into_parts();
        let mut bytes = Vec::new();
        let is_compressed = head.headers.contains_key(header::CONTENT_ENCODING);
        // The server does not compress watches, so a compressed body is not endless.
        let max_chunks = if is_compressed {
            usize::MAX
        } else {
            MAX_CHUNKS
        };
        for _ in 0..max_chunks {
            let Some(chunk) = next_chunk(&mut body).await else {
                break;
            };
            bytes.extend_from_slice(&chunk);
        }
        if is_compressed && *method != Method::HEAD {
            bytes = decompress(&head.headers, &bytes);
        }
        CheckedAnswer {
            code: head.status.as_u16(),
            headers: head.headers,
            body: bytes,
        }
    })
}

async fn next_chunk(body: &mut Body) -> Option<Bytes> {
    let frame = body
        .frame()
        .await?
        .expect("bodies of this server cannot fail");
    Some(frame.into_data().expect("this server sends no trailers"))
}

/// Decompresses a body, and checks the headers of a compressed answer.
fn decompress(headers: &HeaderMap, body: &[u8]) -> Vec<u8> {
    assert_eq!(headers[header::CONTENT_ENCODING], "gzip");
    assert_eq!(headers[header::VARY], "Accept-Encoding");
    let mut whole = Vec::new();
    let mut decoder = flate2::bufread::GzDecoder::new(body);
    let result = decoder.read_to_end(&mut whole);
    result.expect("a compressed body must be complete gzip data");
    assert!(
        decoder.into_inner().is_empty(),
        "there is data after the end of the gzip data"
    );
    whole
}

/// Checks the status code and the body of an answer. The code must be 2xx, 304, 4xx or 504. The
/// body must match the content type.
pub fn check(method: &Method, uri: &Uri, answer: &CheckedAnswer) {
    let CheckedAnswer {
        code,
        headers,
        body,
    } = answer;
    // A request that waits for a future resourceVersion can exceed its time limit and get a 504. No
    // other server error may occur.
    assert!(*code < 500 || *code == 504, "{code} for {method} {uri}");
    assert!(*code >= 200 && (*code < 300 || *code == 304 || *code >= 400));
    if *method == Method::HEAD || *code == 304 {
        assert!(body.is_empty());
        return;
    }
    let content_type = headers.get(header::CONTENT_TYPE).map_or("", |value| {
        value.to_str().expect("content types are ASCII constants")
    });
    match content_type.split(';').next().unwrap_or_default() {
        "application/json" if *code < 300 => check_json(body),
        "application/json" => {
            let body: Value = serde_json::from_slice(body).expect("an error must be JSON");
            if body.get("paths").is_none() {
                check_status(&body, *code);
            }
        }
        "application/yaml" => {
            let body = std::str::from_utf8(body).expect("YAML must be valid UTF-8");
            let body: Value = serde_saphyr::from_str(body).expect("the body must be YAML");
            assert!(body["kind"].is_string());
        }
        "text/plain" | "application/openmetrics-text" => {
            std::str::from_utf8(body).expect("plain text must be valid UTF-8");
        }
        "" => assert!(body.is_empty(), "{code} for {method} {uri}"),
        other => panic!("unexpected content type {other} for {method} {uri}"),
    }
}

/// Checks that the body is one JSON document, or that it consists of watch events.
fn check_json(body: &[u8]) {
    let mut documents = serde_json::Deserializer::from_slice(body).into_iter::<Value>();
    let first = documents
        .next()
        .map(|first| first.expect("the body must be JSON"));
    let Some(first) = first else {
        // The body is empty if a watch ends before its first event.
        return;
    };
    let is_event = |value: &Value| value.get("type").is_some() && value.get("object").is_some();
    if !is_event(&first) {
        assert!(documents.next().is_none());
        return;
    }
    let rest = documents.map(|next| next.expect("each event must be JSON"));
    let mut has_failed = false;
    for event in std::iter::once(first).chain(rest) {
        assert!(is_event(&event) && !has_failed, "{event}");
        let (kind, object) = (&event["type"], &event["object"]);
        assert!(object["kind"].is_string() && object["apiVersion"].is_string());
        match kind.as_str().expect("the type of an event is a string") {
            "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK" => {
                assert!(object["metadata"]["resourceVersion"].is_string(), "{event}");
            }
            "ERROR" => {
                let code = object["code"].as_u64().expect("an error has a code");
                let code = u16::try_from(code).expect("HTTP status codes have three digits");
                assert!(matches!(code, 410 | 429 | 504), "{event}");
                check_status(object, code);
                has_failed = true;
            }
            other => panic!("{other} is not an event type"),
        }
    }
}

/// Returns true if the path is a health probe, or a document that the server serves without
/// authorization, such as the OpenAPI document.
fn is_public_or_probe(path: &str) -> bool {
    // The server ignores all slashes at the end of a path.
    let path = path.trim_end_matches('/');
    let document = path.strip_prefix("/openapi/v3").unwrap_or(path);
    matches!(
        path,
        "/version" | "/healthz" | "/livez" | "/readyz" | "/apis" | "/openapi/v2" | "/openapi/v3"
    ) || path == format!("/apis/{GROUP}")
        || document == format!("/apis/{GROUP}/{VERSION}")
}

/// Checks an answer of the router that denies all access. Only requests for public paths and health
/// probes may succeed, and the answer must not contain notes.
pub fn check_forbidden(uri: &Uri, answer: &CheckedAnswer) {
    if !StatusCode::from_u16(answer.code).is_ok_and(|code| code.is_success()) {
        return;
    }
    assert!(is_public_or_probe(uri.path()), "{} for {uri}", answer.code);
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let kind = body["kind"].as_str().unwrap_or_default();
    assert!(!kind.starts_with("Note") && kind != "Table", "{uri}");
    assert!(body.get("type").is_none(), "{uri}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passes(path: &str, body: &str) -> bool {
        let answer = CheckedAnswer {
            code: 200,
            headers: HeaderMap::new(),
            body: body.as_bytes().to_vec(),
        };
        let uri = path.parse().unwrap();
        std::panic::catch_unwind(|| check_forbidden(&uri, &answer)).is_ok()
    }

    #[test]
    fn without_access_only_public_documents_may_be_served() {
        let group = "/apis/example.com";
        for path in [
            "/apis",
            group,
            &format!("{group}/v1"),
            &format!("/openapi/v3{group}/v1"),
            &format!("/openapi/v3{group}/v1///"),
        ] {
            assert!(passes(path, r#"{"kind":"APIGroup"}"#), "{path}");
        }
        for body in [
            "kind: NoteList",
            r#"{"kind":"PartialObjectMetadataList"}"#,
            r#"{"kind":"FolderList"}"#,
        ] {
            let path = format!("{group}/v1/notes");
            assert!(!passes(&path, body), "{body}");
        }
    }
}
