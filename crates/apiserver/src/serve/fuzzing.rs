//! The fuzz targets of the HTTP API. Each function gets bytes that a client could send. It sends a
//! request with these bytes to a small server. It panics if the server violates one of these
//! guarantees:
//!
//! - The server does not panic, and answers no request with a 5xx. The only exception is the 504
//!   for a resourceVersion that the store has not reached.
//! - A JSON answer is valid JSON. Each line of a watch is valid JSON.
//!
//! This code is compiled only for the fuzz targets in `fuzz/` and for tests. The tests run each
//! target with its corpus, which is a folder of stored inputs.

use super::resource::{Column, SelectableField};
use super::{Resource, ResourceInfo, ServerParameters, router};
use crate::Typed;
use crate::auth::{
    AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates, Unauthenticated,
    Undecided, User,
};
use crate::store::{Bounds, Key, Rv, VersionAssignment, Write, open_from};
use axum::Router;
use axum::body::Body;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use http_body_util::BodyExt as _;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::ObjectMeta;
use schemars::JsonSchema as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};
use tower::ServiceExt as _;

/// Largest length of an input in bytes. Longer inputs slow the fuzzer down and find no new cases.
/// The script `.ci/fuzz` passes the same value to the fuzzer with the option `-max_len`. Escapes
/// make a URI longer than the input. The fuzz targets send no request whose URI is longer than
/// eight times this length.
pub const LONGEST: usize = 2048;

const ALL: &str = "/apis/example.com/v1/notes";

/// Checks the option `labelSelector`.
pub fn label_selector(input: &[u8]) {
    send_options(&[("labelSelector", input)]);
}

/// Checks the option `fieldSelector`. The first line of the input is a field selector, and the rest
/// is a label selector.
pub fn field_selector(input: &[u8]) {
    let (fields, labels) = split_line(input);
    send_options(&[("fieldSelector", fields), ("labelSelector", labels)]);
}

/// Checks the option `continue`. The lowest three bits of the first byte are the page size. The
/// next bit determines the format of the other bytes: 0 for the JSON that a continue token encodes,
/// 1 for a continue token.
pub fn continue_token(input: &[u8]) {
    let Some((first, rest)) = input.split_first() else {
        return;
    };
    let limit = (first % 8).to_string();
    let encoded = URL_SAFE_NO_PAD.encode(rest);
    let token = if first & 8 == 0 {
        encoded.as_bytes()
    } else {
        rest
    };
    send_options(&[("continue", token), ("limit", limit.as_bytes())]);
}

/// Checks the query of a URI, for a list of notes and for a health probe.
pub fn query(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    for path in [ALL, "/livez"] {
        send(&Method::GET, &format!("{path}?{text}"), &HeaderMap::new());
    }
}

/// Checks content negotiation. Each line of the input is the value of an `Accept` header.
pub fn accept(input: &[u8]) {
    let mut headers = HeaderMap::new();
    for line in input.split(|byte| *byte == b'\n') {
        if let Ok(value) = HeaderValue::from_bytes(line) {
            headers.append(http::header::ACCEPT, value);
        }
    }
    for path in ["/apis", "/openapi/v3", ALL] {
        send(&Method::GET, path, &headers);
    }
}

/// Checks a complete request. The first line of the input is `METHOD URI`. Each further line is a
/// header, such as `accept: application/json`.
pub fn request(input: &[u8]) {
    let (first, rest) = split_line(input);
    let first = String::from_utf8_lossy(first);
    let (method, uri) = first.split_once(' ').unwrap_or_default();
    let Ok(method) = method.parse() else {
        return;
    };
    let mut headers = HeaderMap::new();
    for line in rest.split(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        if let (Ok(name), Ok(value)) = (
            HeaderName::from_bytes(name),
            HeaderValue::from_bytes(value.get(1..).unwrap_or_default().trim_ascii()),
        ) {
            headers.append(name, value);
        }
    }
    send(&method, uri, &headers);
}

fn split_line(input: &[u8]) -> (&[u8], &[u8]) {
    let end = input.iter().position(|byte| *byte == b'\n');
    let (line, rest) = input.split_at(end.unwrap_or(input.len()));
    (line, rest.get(1..).unwrap_or_default())
}

/// Requests a list and a watch with these options.
fn send_options(options: &[(&str, &[u8])]) {
    let mut query = form_urlencoded::Serializer::new(String::new());
    for (name, value) in options {
        query.append_pair(name, &String::from_utf8_lossy(value));
    }
    let query = query.finish();
    for watch in ["", "&watch=1&timeoutSeconds=1"] {
        send(
            &Method::GET,
            &format!("{ALL}?{query}{watch}"),
            &HeaderMap::new(),
        );
    }
}

/// Sends a request and checks the answer. If the answer has not ended after an hour of simulated
/// time, its body is not checked. Only a watch can last so long.
fn send(method: &Method, uri: &str, headers: &HeaderMap) {
    if uri.len() > 8 * LONGEST {
        return;
    }
    let Ok(mut request) = Request::builder()
        .method(method)
        .uri(uri)
        .body(Body::empty())
    else {
        return;
    };
    *request.headers_mut() = headers.clone();
    SERVER.with(|server| {
        server
            .runtime
            .block_on(check(server.router.clone(), request));
    });
}

async fn check(router: Router, request: Request<Body>) {
    let response = router.oneshot(request).await.expect("a router never fails");
    let code = response.status();
    let is_json = response
        .headers()
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind == "application/json");
    let is_compressed = response
        .headers()
        .contains_key(http::header::CONTENT_ENCODING);
    let collected = response.into_body().collect();
    let Ok(body) = tokio::time::timeout(Duration::from_hours(1), collected).await else {
        return;
    };
    let body = body.expect("the body has no error").to_bytes();
    // A store that has not reached the requested resourceVersion answers 504.
    let is_failure = code.is_server_error() && code != StatusCode::GATEWAY_TIMEOUT;
    assert!(!is_failure, "{code}: {}", String::from_utf8_lossy(&body));
    if is_json && !is_compressed {
        for line in body
            .split(|byte| *byte == b'\n')
            .filter(|it| !it.is_empty())
        {
            let parsed = serde_json::from_slice::<serde_json::Value>(line);
            assert!(parsed.is_ok(), "{}", String::from_utf8_lossy(line));
        }
    }
}

thread_local! {
    static SERVER: Server = Server::new();
}

/// A server with six notes, and a runtime with a simulated clock.
struct Server {
    runtime: Runtime,
    router: Router,
}

/// Authenticates every client, and allows every request.
struct Everybody;

impl Authenticate for Everybody {
    fn authenticate<'a>(
        &'a self,
        _: &'a PeerCertificates,
        _: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>> {
        Box::pin(async { Ok(User::default()) })
    }
}

impl Authorize for Everybody {
    fn authorize<'a>(
        &'a self,
        _: &'a User,
        _: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>> {
        Box::pin(async { Ok(AccessDecision::Allow) })
    }
}

fn note(namespace: &str, name: &str, labels: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace.to_owned()),
            labels: serde_json::from_str(labels).expect("the labels are JSON"),
            ..ObjectMeta::default()
        },
        ..ConfigMap::default()
    }
}

static COLUMNS: &[Column<Typed<ConfigMap>>] = &[Column::text("Name", |it: &ConfigMap, _| {
    it.metadata.name.as_deref().into()
})];

impl Server {
    fn new() -> Self {
        let bounds = Bounds {
            bytes: 1 << 20,
            age: Duration::from_mins(10),
        };
        let (mut writer, reader) = open_from(bounds, Rv(100));
        for (rv, (namespace, name, labels)) in [
            ("b", "x", r#"{"name":"x","n":"3"}"#),
            ("a", "y", r#"{"name":"y","n":"-7","empty":""}"#),
            ("a-b", "z", r#"{"a.b/c":"x","name":"z"}"#),
            ("a", "x", "{}"),
            ("b", "w", r#"{"n":"9223372036854775807","odd":"\"\\/é"}"#),
            ("c", "long-name.with.dots", r#"{"in":"notin","notin":"in"}"#),
        ]
        .into_iter()
        .enumerate()
        {
            let put = Write::Put {
                key: Key::new(namespace, name),
                object: note(namespace, name, labels),
            };
            let version = VersionAssignment::Exact(Rv(101 + rv as u64));
            writer.commit([put], version).expect("the versions grow");
        }
        let info = ResourceInfo::namespaced(("example.com", "v1"), "notes", "Note");
        let resource = Resource {
            columns: COLUMNS,
            fields: vec![(
                "data.a",
                SelectableField::Text(|it: &ConfigMap| Some(it.data.as_ref()?.get("a")?.as_str())),
            )],
            ..Resource::new(info, ConfigMap::json_schema, reader)
        };
        let server = ServerParameters::new("notes", Arc::new(Everybody), Arc::new(Everybody));
        server.readiness.set_synced();
        let mut runtime = Builder::new_current_thread();
        let runtime = runtime.enable_time().start_paused(true).build();
        Self {
            runtime: runtime.expect("the system has resources for a runtime"),
            router: router(server, vec![resource]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "not JSON")]
    fn an_answer_that_is_not_json_is_found() {
        let answer = async || ([("content-type", "application/json")], "not JSON");
        let router = Router::new().route("/", axum::routing::get(answer));
        let request = Request::get("/").body(Body::empty()).unwrap();
        SERVER.with(|server| server.runtime.block_on(check(router, request)));
    }
}
