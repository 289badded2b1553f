//! Checks of the parser of requests, for the fuzz targets.

use super::{KNOWN_PARAMETERS, Query, RequestTarget, parse};
use crate::serve::fuzzing::{FuzzServer, check_error};
use crate::serve::{list, watch};
use http::{Method, Uri};
use std::collections::BTreeSet;

/// Checks that the result of parsing the options does not depend on their order or their encoding.
/// Unknown options, and further values of an option, must not change the result either.
pub fn check_options(fuzz_server: &FuzzServer, uri: &Uri) {
    let query = Query::of(uri);
    let outcome = outcome(fuzz_server, &query);
    let mut seen = BTreeSet::new();
    let given = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    let first: Vec<_> = given
        .filter(|(name, _)| seen.insert(name.clone()))
        .collect();
    for (name, value) in &first {
        if KNOWN_PARAMETERS.contains(&&**name) {
            assert_eq!(query.given(name), Some(&**value));
        }
    }
    let mut reordered = form_urlencoded::Serializer::new("/?".to_owned());
    reordered.append_pair("limit[]", "1");
    for (name, value) in first.iter().rev() {
        reordered.append_pair(name, value);
    }
    for (name, _) in &first {
        reordered.append_pair(name, "another");
    }
    let reordered = reordered.finish();
    // The reordered URI is longer than `uri`, because it has additional options, and all its values
    // are encoded. Its length can exceed the maximum length of a URI.
    if let Ok(reordered) = reordered.parse::<Uri>() {
        assert_eq!(
            self::outcome(fuzz_server, &Query::of(&reordered)),
            outcome,
            "{reordered}"
        );
    }
}

fn outcome(fuzz_server: &FuzzServer, query: &Query) -> [String; 3] {
    let timeout = match query.timeout() {
        Ok(timeout) => format!("{timeout:?}"),
        Err(failure) => {
            check_error(&failure, &[400]);
            failure.to_string()
        }
    };
    if let Ok(Some(rv)) = query.resource_version() {
        let digits = query.text("resourceVersion").trim_start_matches('0');
        assert_eq!(
            if rv == 0 {
                String::new()
            } else {
                rv.to_string()
            },
            digits
        );
    }
    [
        list::check_options(fuzz_server, query),
        watch::check_options(fuzz_server, query),
        timeout,
    ]
}

/// Checks the result of parsing a method and a URI. Errors must be a 400. For a resource:
///
/// - The group, the version, the resource, the namespace and the name must not contain a slash.
/// - For GET and HEAD, the verb must be `get`, `list` or `watch`.
/// - For all other methods, the verb must be another verb, or empty.
pub fn check(method: &Method, uri: &Uri) {
    let query = Query::of(uri);
    let request = match parse(method, uri, &query) {
        Ok(RequestTarget::Resource(request)) => request,
        Ok(RequestTarget::Path(_)) => return,
        Err(failure) => return check_error(&failure, &[400]),
    };
    let segments = [
        &request.group,
        &request.version,
        &request.resource,
        &request.namespace,
        &request.name,
    ];
    assert!(
        segments.iter().all(|part| !part.contains('/')),
        "{request:?}"
    );
    assert!(!request.resource.is_empty(), "{request:?}");
    assert!(!matches!(request.name.as_str(), "." | ".."));
    let reads = matches!(*method, Method::GET | Method::HEAD);
    assert_eq!(matches!(request.verb, "get" | "list" | "watch"), reads);
    if request.verb == "list" {
        assert!(request.name.is_empty());
    }
}
