//! Checks of continue tokens and of list options. The fuzz targets call these checks with random
//! inputs.

use super::{ContinueToken, ListRange, Options, key_in_token, list};
use crate::serve::fuzzing::{FuzzServer, check_error};
use crate::serve::request::{Query, ResourceRequest};
use crate::store::{Collection, ReadVersion, Rv, Scope};
use axum::response::IntoResponse as _;
use http::{HeaderMap, StatusCode, Uri};
use http_body_util::BodyExt as _;
use serde_json::Value;

/// Checks a continue token. `limit` is the page size; 0 means no limit.
///
/// - An invalid token must cause a 400.
/// - Encoding and decoding must not change a valid token.
/// - A valid token contains a key `start` and a resourceVersion (its version). The pages that the
///   token requests must contain all objects from `start` on.
/// - All pages must have the token's version. If this version is negative, they must have the
///   newest version of the index.
/// - If the index has dropped the token's version, the answer must be a 410. If the index has not
///   reached this version, the answer must be a 504.
pub fn check(fuzz_server: &FuzzServer, token: &str, limit: usize) {
    let token = match ContinueToken::decode(token) {
        Ok(token) => token,
        Err(failure) => {
            check_error(&failure, &[400]);
            let (code, _) = page(fuzz_server, "", token, limit);
            // An empty token counts as no token.
            assert_eq!(code == StatusCode::OK, token.is_empty());
            return;
        }
    };
    assert!(token.rv != 0 && token.start.starts_with('/'));
    let again =
        ContinueToken::decode(&token.encode()).expect("the token was valid before it was encoded");
    assert_eq!((again.rv, &again.start), (token.rv, &token.start));
    for namespace in ["", "a"] {
        check_pages(fuzz_server, &token, namespace, limit);
    }
}

/// Reads all pages of a list from `token` on, and compares them with the index. An empty
/// `namespace` means all namespaces.
fn check_pages(fuzz_server: &FuzzServer, token: &ContinueToken, namespace: &str, limit: usize) {
    let reader = &fuzz_server.live.reader;
    let scope = if namespace.is_empty() {
        Scope::Collection(Collection::DEFAULT)
    } else {
        Scope::Namespace(namespace.into())
    };
    let at = u64::try_from(token.rv).map_or(ReadVersion::Latest, |rv| ReadVersion::Exact(Rv(rv)));
    let Ok((version, entries)) = reader.list(&scope, at) else {
        let (code, body) = page(fuzz_server, namespace, &token.encode(), limit);
        if u64::try_from(token.rv).is_ok_and(|rv| rv > reader.head().0) {
            // The index does not reach this version within the time limit.
            assert_eq!(code, StatusCode::GATEWAY_TIMEOUT, "{token:?}");
            return;
        }
        assert_eq!(code, StatusCode::GONE, "{token:?}");
        let new_token = body["metadata"]["continue"]
            .as_str()
            .expect("a 410 for a continue token has a new token");
        let new_token = ContinueToken::decode(new_token).expect("the server created the token");
        assert_eq!((new_token.rv, &new_token.start), (-1, &token.start));
        return;
    };
    let of_namespace = !namespace.is_empty();
    let mut expected: Vec<String> = entries
        .iter()
        .map(|entry| {
            String::from_utf8_lossy(&key_in_token(entry, of_namespace).concat()).into_owned()
        })
        .collect();
    expected.retain(|key| key.as_bytes() >= token.start.as_bytes());
    let mut expected = expected.into_iter();
    let mut next = token.encode();
    loop {
        let (code, body) = page(fuzz_server, namespace, &next, limit);
        assert_eq!(code, StatusCode::OK, "{body}");
        assert_eq!(body["metadata"]["resourceVersion"], version.to_string());
        let items = body["items"].as_array().expect("a list has items");
        for item in items {
            let text = |field: &str| {
                item["metadata"][field]
                    .as_str()
                    .expect("name and namespace are strings")
            };
            let key = if of_namespace {
                format!("/{}", text("name"))
            } else {
                format!("/{}/{}", text("namespace"), text("name"))
            };
            assert_eq!(Some(key), expected.next());
        }
        let next_token = body["metadata"]["continue"]
            .as_str()
            .expect("the metadata of a list has this field");
        if next_token.is_empty() {
            break;
        }
        assert_eq!(items.len(), limit);
        assert_eq!(body["metadata"]["remainingItemCount"], expected.len());
        next_token.clone_into(&mut next);
        let next_token = ContinueToken::decode(next_token).expect("the server created the token");
        // All pages have the version of the first page.
        assert_eq!(u64::try_from(next_token.rv), Ok(version.0));
    }
    assert_eq!(expected.next(), None);
}

/// Requests one page. A limit of 0 means no limit.
fn page(
    fuzz_server: &FuzzServer,
    namespace: &str,
    token: &str,
    limit: usize,
) -> (StatusCode, Value) {
    let request = ResourceRequest {
        namespace: namespace.to_owned(),
        ..ResourceRequest::default()
    };
    let target = form_urlencoded::Serializer::new("/?".to_owned())
        .append_pair("continue", token)
        .append_pair("limit", &limit.to_string())
        .finish();
    let uri: Uri = target.parse().expect("an encoded query is a URI");
    let query = Query::of(&uri);
    fuzz_server.runtime.block_on(async {
        let answer = list(&fuzz_server.live, &request, &query, &HeaderMap::new(), None).await;
        let response = answer.unwrap_or_else(super::ErrorStatus::into_response);
        let code = response.status();
        let body = response.into_body().collect().await;
        let bytes = body.expect("the body of a list cannot fail").to_bytes();
        (
            code,
            serde_json::from_slice(&bytes).expect("lists and errors are JSON"),
        )
    })
}

/// Returns the parsed options of a list, or the error, as a text that can be compared.
pub fn options(fuzz_server: &FuzzServer, query: &Query) -> String {
    let options = Options::of_list(query, &fuzz_server.live);
    match options.and_then(|options| ListRange::of(query, &options, false)) {
        Ok(page) => {
            check_version_options(query, &page);
            format!(
                "{:?} {:?} {:?} {:?}",
                page.version, page.min_version, page.token, page.limit
            )
        }
        Err(failure) => {
            check_error(&failure, &[400, 422]);
            failure.to_string()
        }
    }
}

/// Checks that the combination of resourceVersion and resourceVersionMatch is allowed, and has the
/// meaning that the Kubernetes documentation specifies.
fn check_version_options(query: &Query, page: &ListRange) {
    let version = query.text("resourceVersion");
    let resume = query.text("continue");
    let matching = query.text("resourceVersionMatch");
    assert!(query.given("sendInitialEvents").is_none());
    assert!(page.limit != Some(0));
    assert_eq!(page.token.is_some(), !resume.is_empty());
    if let Some(token) = &page.token {
        assert!(matching.is_empty() && version.trim_start_matches('0').is_empty());
        assert_eq!(page.version == ReadVersion::Latest, token.rv < 0);
        assert_eq!(page.min_version, u64::try_from(token.rv).ok());
        return;
    }
    assert_eq!(page.min_version.is_some(), !version.is_empty());
    match (matching, page.min_version) {
        ("", Some(rv)) if rv > 0 && page.limit.is_some() => {
            assert_eq!(page.version, ReadVersion::Exact(Rv(rv)));
        }
        ("" | "NotOlderThan", Some(0)) => {
            assert_eq!(page.version, ReadVersion::Latest);
            assert!(version != "0" || page.limit.is_none());
        }
        ("", _) | ("NotOlderThan", Some(_)) => assert_eq!(page.version, ReadVersion::Latest),
        ("Exact", Some(0)) => {
            assert_eq!(page.version, ReadVersion::Latest);
            assert_ne!(version, "0");
        }
        ("Exact", Some(rv)) => assert_eq!(page.version, ReadVersion::Exact(Rv(rv))),
        other => panic!("{other:?} is accepted"),
    }
}
