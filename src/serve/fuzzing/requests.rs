//! Checks complete requests with the router.

use super::World;
use super::answers::{self, Answer, answer};
use crate::serve::negotiate::takes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri, header};

/// All operations.
pub const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

/// The documents that every client requests.
const DOCUMENTS: [&str; 5] = [
    "/apis",
    "/apis/live.ifo.kubevirt.io",
    "/apis/live.ifo.kubevirt.io/v1alpha1",
    "/openapi/v2",
    "/openapi/v3",
];

/// Parses `METHOD TARGET`, followed by one `name: value` per line. Input that hyper would refuse is
/// skipped.
pub fn read(input: &[u8]) -> Option<(Method, Uri, HeaderMap)> {
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

/// Checks that an authorized user gets a correct answer, and another user gets no data.
pub fn check(world: &World, method: &Method, uri: &Uri, headers: &HeaderMap) {
    let open = answer(world, &world.open, method, uri, headers);
    answers::check(method, uri, &open);
    if open.headers.contains_key(header::CONTENT_ENCODING) {
        check_compressed(world, method, uri, headers, &open);
    }
    let closed = answer(world, &world.closed, method, uri, headers);
    answers::check(method, uri, &closed);
    answers::check_forbidden(uri, &closed);
}

/// Checks that only clients that accept gzip get it, with the same content.
fn check_compressed(
    world: &World,
    method: &Method,
    uri: &Uri,
    headers: &HeaderMap,
    compressed: &Answer,
) {
    let named = headers
        .get_all(header::ACCEPT_ENCODING)
        .iter()
        .any(|value| {
            value
                .as_bytes()
                .to_ascii_lowercase()
                .windows(4)
                .any(|part| part == b"gzip")
        });
    assert!(named, "{uri}");
    let mut headers = headers.clone();
    headers.remove(header::ACCEPT_ENCODING);
    let plain = answer(world, &world.open, method, uri, &headers);
    assert!(!plain.headers.contains_key(header::CONTENT_ENCODING));
    assert_eq!(plain.code, compressed.code, "{uri}");
    assert!(plain.body == compressed.body, "{uri}");
    for name in [header::CONTENT_TYPE, header::ETAG] {
        assert_eq!(plain.headers.get(&name), compressed.headers.get(&name));
    }
}

/// Checks that discovery and `OpenAPI` have a requested format or are a 406. A client that requests
/// JSON gets it.
pub fn check_discovery(world: &World, accept: &[HeaderValue]) {
    let ask = |uri: &Uri, values: &[HeaderValue]| {
        let values = values.iter().map(|value| (header::ACCEPT, value.clone()));
        let headers = values.collect();
        let answer = answer(world, &world.open, &Method::GET, uri, &headers);
        if answer.code != 200 {
            // The available formats are always the same.
            answers::check(&Method::GET, uri, &answer);
        }
        answer
    };
    for path in DOCUMENTS {
        let uri = Uri::from_static(path);
        let got = ask(&uri, accept);
        match got.code {
            200 => asked_for(&got, accept),
            406 => {
                let plain = HeaderValue::from_static("application/json");
                assert_eq!(ask(&uri, &[plain]).code, 200, "{path}");
            }
            other => panic!("{other} for {path}"),
        }
    }
}

/// Checks that a clause requests the content type, or that there is no clause.
fn asked_for(answer: &Answer, accept: &[HeaderValue]) {
    let content_type = answer.headers[header::CONTENT_TYPE].to_str();
    let content_type = content_type.expect("it is a fixed text");
    let mut parameters = content_type.split(';');
    let media_type = parameters.next().unwrap_or_default();
    let subtype = media_type.trim_start_matches("application/");
    let parameters: Vec<&str> = parameters.collect();
    // As in kube-apiserver, only the first of several headers is read.
    let accept = accept.first().map_or(&b""[..], HeaderValue::as_bytes);
    if accept.is_empty() {
        assert!(subtype == "json" && parameters.is_empty(), "{content_type}");
        return;
    }
    let asked = accept.split(|byte| *byte == b',').any(|clause| {
        let clause = String::from_utf8_lossy(clause);
        let mut parts = clause.split(';');
        let range = parts.next().unwrap_or_default();
        let given: Vec<String> = parts
            .filter_map(|part| part.split_once('='))
            .map(|(name, value)| format!("{}={}", name.trim(), value.trim()))
            .collect();
        let named = |parameter: &&str| given.iter().any(|given| given == parameter);
        takes(range, subtype) && parameters.iter().all(named)
    });
    assert!(
        asked,
        "{content_type} for {:?}",
        String::from_utf8_lossy(accept)
    );
}
