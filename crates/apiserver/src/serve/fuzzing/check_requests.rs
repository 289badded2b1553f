//! Checks for the fuzz targets: sends complete requests to the router, and checks the answers. A
//! fuzz target is a function that the fuzzer calls with random bytes.

use super::FuzzServer;
use super::answers::{self, CheckedAnswer, send};
use crate::serve::content_negotiation::accepts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};

/// The path of the list of all notes.
pub const ALL: &str = "/apis/example.com/v1/notes";

/// The paths of discovery and `OpenAPI`.
const DOCUMENTS: [&str; 5] = [
    "/apis",
    "/apis/example.com",
    "/apis/example.com/v1",
    "/openapi/v2",
    "/openapi/v3",
];

/// Parses an input of the form `METHOD URI`, followed by lines of the form `name: value`. Ignores
/// invalid headers. Returns None if the method or the URI is not valid, because hyper refuses such
/// requests before the router gets them.
pub fn parse(input: &[u8]) -> Option<(Method, Uri, HeaderMap)> {
    let mut lines = input.split(|byte| *byte == b'\n');
    let first = lines.next()?;
    let space = first.iter().position(|byte| *byte == b' ')?;
    let (method, target) = first.split_at(space);
    let method = Method::from_bytes(method).ok()?;
    let uri = Uri::try_from(target.get(1..)?).ok()?;
    let mut headers = HeaderMap::new();
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if let Ok(name) = HeaderName::from_bytes(name)
            && let Ok(value) = HeaderValue::from_bytes(value)
        {
            headers.append(name, value);
        }
    }
    Some((method, uri, headers))
}

/// Sends the request to the router that allows all access, and to the router that denies all
/// access. Checks both answers. The router that denies all access must return no notes.
pub fn check(fuzz_server: &FuzzServer, method: &Method, uri: &Uri, headers: &HeaderMap) {
    let allowed = send(fuzz_server, &fuzz_server.allowing, method, uri, headers);
    answers::check(method, uri, &allowed);
    if allowed.headers.contains_key(header::CONTENT_ENCODING) {
        check_compressed(fuzz_server, method, uri, headers, &allowed);
    }
    let denied = send(fuzz_server, &fuzz_server.denying, method, uri, headers);
    answers::check(method, uri, &denied);
    answers::check_forbidden(uri, &denied);
}

/// Checks a compressed answer. The header `Accept-Encoding` of the request must name gzip. The same
/// request without this header must get the same content, uncompressed.
fn check_compressed(
    fuzz_server: &FuzzServer,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    compressed: &CheckedAnswer,
) {
    let names_gzip = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .any(|value| {
            value
                .as_bytes()
                .to_ascii_lowercase()
                .windows(4)
                .any(|part| part == b"gzip")
        });
    assert!(names_gzip, "{uri}");
    let mut headers = headers.clone();
    headers.remove(header::ACCEPT_ENCODING);
    let plain = send(fuzz_server, &fuzz_server.allowing, method, uri, &headers);
    assert!(!plain.headers.contains_key(header::CONTENT_ENCODING));
    assert_eq!(plain.code, compressed.code, "{uri}");
    assert!(plain.body == compressed.body, "{uri}");
    for name in [header::CONTENT_TYPE, header::ETAG] {
        assert_eq!(plain.headers.get(&name), compressed.headers.get(&name));
    }
}

/// Checks the content types of discovery and `OpenAPI`. `accept` has the values of the `Accept`
/// headers. Each answer must have a content type that the client accepts, or must be a 406. After a
/// 406, a request for JSON must succeed.
pub fn check_discovery(fuzz_server: &FuzzServer, accept: &[HeaderValue]) {
    let request = |uri: &Uri, values: &[HeaderValue]| {
        let values = values.iter().map(|value| (header::ACCEPT, value.clone()));
        let headers = values.collect();
        let answer = send(
            fuzz_server,
            &fuzz_server.allowing,
            &Method::GET,
            uri,
            &headers,
        );
        // The content of the documents does not depend on the input, and the tests of discovery and
        // `OpenAPI` check this content. So only errors are checked here.
        if answer.code != 200 {
            answers::check(&Method::GET, uri, &answer);
        }
        answer
    };
    for path in DOCUMENTS {
        let uri = Uri::from_static(path);
        let answer = request(&uri, accept);
        match answer.code {
            200 => check_content_type(&answer, accept),
            406 => {
                let plain = HeaderValue::from_static("application/json");
                assert_eq!(request(&uri, &[plain]).code, 200, "{path}");
            }
            other => panic!("{other} for {path}"),
        }
    }
}

/// Checks that a clause (comma-separated part) of `Accept` requests the content type of the answer.
/// If `Accept` is absent or empty, the content type must be JSON.
fn check_content_type(answer: &CheckedAnswer, accept: &[HeaderValue]) {
    let content_type = answer.headers[header::CONTENT_TYPE].to_str();
    let content_type = content_type.expect("content types are ASCII constants");
    let mut parameters = content_type.split(';');
    let media_type = parameters.next().unwrap_or_default();
    let subtype = media_type.trim_start_matches("application/");
    let parameters: Vec<&str> = parameters.collect();
    // As in the kube-apiserver, only the first of several `Accept` headers counts.
    let accept = accept.first().map_or(&b""[..], HeaderValue::as_bytes);
    if accept.is_empty() {
        assert!(subtype == "json" && parameters.is_empty(), "{content_type}");
        return;
    }
    let is_requested = accept.split(|byte| *byte == b',').any(|clause| {
        let clause = String::from_utf8_lossy(clause);
        let mut parts = clause.split(';');
        let range = parts.next().unwrap_or_default();
        let given: Vec<String> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| format!("{}={}", name.trim(), value.trim()))
            .collect();
        let named = |parameter: &&str| given.iter().any(|given| given == parameter);
        accepts(range, subtype) && parameters.iter().all(named)
    });
    assert!(
        is_requested,
        "{content_type} for {:?}",
        String::from_utf8_lossy(accept)
    );
}
