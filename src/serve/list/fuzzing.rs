//! Checks for every continue token, and for the options of every list.

use super::{ContinueToken, ListRange, Options, list, relative};
use crate::index::{ListScope, ReadVersion, Rv};
use crate::serve::fuzzing::{World, refused};
use crate::serve::request::{Query, Request};
use axum::response::IntoResponse as _;
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::BodyExt as _;
use serde_json::Value;
use std::sync::Arc;

/// Checks that a parsed token is the same when it is encoded again. The pages from it contain
/// everything from its start on, at its version.
pub fn check(world: &World, token: &str, limit: usize) {
    let token = match ContinueToken::decode(token) {
        Ok(token) => token,
        Err(failure) => {
            refused(&failure, &[400]);
            let (code, _) = page(world, "", token, limit);
            // An empty token means none.
            assert_eq!(code == StatusCode::OK, token.is_empty());
            return;
        }
    };
    assert!(token.rv != 0 && token.start.starts_with('/'));
    let again = ContinueToken::decode(&token.encode()).expect("what is encoded can be decoded");
    assert_eq!((again.rv, &again.start), (token.rv, &token.start));
    for namespace in ["", "a"] {
        walk(world, &token, namespace, limit);
    }
}

/// Reads all pages of `namespace` from `token` on.
fn walk(world: &World, token: &ContinueToken, namespace: &str, limit: usize) {
    let reader = &world.live.reader;
    let scope = if namespace.is_empty() {
        ListScope::All
    } else {
        ListScope::Namespace(Arc::from(namespace))
    };
    let at = u64::try_from(token.rv).map_or(ReadVersion::Latest, |rv| ReadVersion::Exact(Rv(rv)));
    let Ok((version, entries)) = reader.list(&scope, at) else {
        let (code, body) = page(world, namespace, &token.encode(), limit);
        if u64::try_from(token.rv).is_ok_and(|rv| rv > reader.head().0) {
            // The version is not reached within the time limit.
            assert_eq!(code, StatusCode::GATEWAY_TIMEOUT, "{token:?}");
            return;
        }
        assert_eq!(code, StatusCode::GONE, "{token:?}");
        let resume = body["metadata"]["continue"]
            .as_str()
            .expect("the way on is told");
        let resume = ContinueToken::decode(resume).expect("what is issued can be read");
        assert_eq!((resume.rv, &resume.start), (-1, &token.start));
        return;
    };
    let of_namespace = !namespace.is_empty();
    let mut expected: Vec<String> = entries
        .iter()
        .map(|entry| String::from_utf8_lossy(&relative(entry, of_namespace).concat()).into_owned())
        .collect();
    expected.retain(|key| key.as_bytes() >= token.start.as_bytes());
    let mut expected = expected.into_iter();
    let mut next = token.encode();
    loop {
        let (code, body) = page(world, namespace, &next, limit);
        assert_eq!(code, StatusCode::OK, "{body}");
        assert_eq!(body["metadata"]["resourceVersion"], version.to_string());
        let items = body["items"].as_array().expect("a list has items");
        for item in items {
            let text = |field: &str| item["metadata"][field].as_str().expect("both are strings");
            let key = if of_namespace {
                format!("/{}", text("name"))
            } else {
                format!("/{}/{}", text("namespace"), text("name"))
            };
            assert_eq!(Some(key), expected.next());
        }
        let resume = body["metadata"]["continue"]
            .as_str()
            .expect("a list always has it");
        if resume.is_empty() {
            break;
        }
        assert_eq!(items.len(), limit);
        assert_eq!(body["metadata"]["remainingItemCount"], expected.len());
        resume.clone_into(&mut next);
        let resume = ContinueToken::decode(resume).expect("what is issued can be read");
        // Later pages show the state of the first page.
        assert_eq!(u64::try_from(resume.rv), Ok(version.0));
    }
    assert_eq!(expected.next(), None);
}

/// Reads one page. A limit of 0 means no limit.
fn page(world: &World, namespace: &str, token: &str, limit: usize) -> (StatusCode, Value) {
    let request = Request {
        namespace: namespace.to_owned(),
        ..Request::default()
    };
    let target = form_urlencoded::Serializer::new("/?".to_owned())
        .append_pair("continue", token)
        .append_pair("limit", &limit.to_string())
        .finish();
    let uri: Uri = target.parse().expect("an encoded query is a URI");
    let query = Query::of(&uri);
    world.runtime.block_on(async {
        let answer = list(&world.live, &request, &query, &HeaderMap::new()).await;
        let response = answer.unwrap_or_else(super::ErrorStatus::into_response);
        let code = response.status();
        let body = response.into_body().collect().await;
        let bytes = body.expect("a list cannot break off").to_bytes();
        (code, serde_json::from_slice(&bytes).expect("it is JSON"))
    })
}

/// The parsed options of a list, in a form that can be compared.
pub fn options(world: &World, query: &Query) -> String {
    let options = Options::of_list(query, &world.live);
    match options.and_then(|options| ListRange::of(query, &options, false)) {
        Ok(page) => {
            is_in_the_matrix(query, &page);
            format!(
                "{:?} {:?} {:?} {:?}",
                page.at, page.fresh, page.token, page.limit
            )
        }
        Err(failure) => {
            refused(&failure, &[400, 422]);
            failure.to_string()
        }
    }
}

/// Checks that the accepted options are those of Kubernetes' table of resourceVersion and
/// resourceVersionMatch, with the same meaning.
fn is_in_the_matrix(query: &Query, page: &ListRange) {
    let version = query.text("resourceVersion");
    let resume = query.text("continue");
    let matching = query.text("resourceVersionMatch");
    assert!(query.given("sendInitialEvents").is_none());
    assert!(page.limit != Some(0));
    assert_eq!(page.token.is_some(), !resume.is_empty());
    if let Some(token) = &page.token {
        assert!(matching.is_empty() && version.trim_start_matches('0').is_empty());
        assert_eq!(page.at == ReadVersion::Latest, token.rv < 0);
        assert_eq!(page.fresh, u64::try_from(token.rv).ok());
        return;
    }
    assert_eq!(page.fresh.is_some(), !version.is_empty());
    match (matching, page.fresh) {
        ("", Some(rv)) if rv > 0 && page.limit.is_some() => {
            assert_eq!(page.at, ReadVersion::Exact(Rv(rv)));
        }
        ("" | "NotOlderThan", Some(0)) => {
            assert_eq!(page.at, ReadVersion::Latest);
            assert!(version != "0" || page.limit.is_none());
        }
        ("", _) | ("NotOlderThan", Some(_)) => assert_eq!(page.at, ReadVersion::Latest),
        ("Exact", Some(0)) => {
            assert_eq!(page.at, ReadVersion::Latest);
            assert_ne!(version, "0");
        }
        ("Exact", Some(rv)) => assert_eq!(page.at, ReadVersion::Exact(Rv(rv))),
        other => panic!("{other:?} is accepted"),
    }
}
