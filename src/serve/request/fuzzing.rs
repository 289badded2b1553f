//! Checks for every query and every request line.

use super::{KNOWN_PARAMETERS, Query, RequestTarget, parse};
use crate::serve::fuzzing::{World, refused};
use crate::serve::{list, watch};
use http::{Method, Uri};
use std::collections::BTreeSet;

/// Checks that the parsed options do not depend on their order, their encoding, unknown options, or
/// later values of the same option.
pub fn check_options(world: &World, uri: &Uri) {
    let query = Query::of(uri);
    let outcome = outcome(world, &query);
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
    let mut other = form_urlencoded::Serializer::new("/?".to_owned());
    other.append_pair("limit[]", "1");
    for (name, value) in first.iter().rev() {
        other.append_pair(name, value);
    }
    for (name, _) in &first {
        other.append_pair(name, "another");
    }
    let other = other.finish();
    // Fully encoded, it can exceed the length of a URI.
    if let Ok(other) = other.parse::<Uri>() {
        assert_eq!(self::outcome(world, &Query::of(&other)), outcome, "{other}");
    }
}

fn outcome(world: &World, query: &Query) -> [String; 3] {
    let timeout = match query.timeout() {
        Ok(timeout) => format!("{timeout:?}"),
        Err(failure) => {
            refused(&failure, &[400]);
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
        list::check_options(world, query),
        watch::check_options(world, query),
        timeout,
    ]
}

/// Checks that a request line is a path, a resource or an error, and that each part of a resource
/// is one segment of the path.
pub fn check(method: &Method, uri: &Uri) {
    let query = Query::of(uri);
    let request = match parse(method, uri, &query) {
        Ok(RequestTarget::Resource(request)) => request,
        Ok(RequestTarget::Path(_)) => return,
        Err(failure) => return refused(&failure, &[400]),
    };
    let one = [
        &request.group,
        &request.version,
        &request.resource,
        &request.namespace,
        &request.name,
    ];
    assert!(one.iter().all(|part| !part.contains('/')), "{request:?}");
    assert!(!request.resource.is_empty(), "{request:?}");
    assert!(!matches!(request.name.as_str(), "." | ".."));
    let reads = matches!(*method, Method::GET | Method::HEAD);
    assert_eq!(matches!(request.verb, "get" | "list" | "watch"), reads);
    if request.verb == "list" {
        assert!(request.name.is_empty());
    }
}
