//! Tests which requests the list pager sends, and how it handles responses.

use super::*;
use futures::stream;
use http::StatusCode;
use http_body::Frame;
use http_body_util::{Full, StreamBody};
use serde_json::value::RawValue;
use std::convert::Infallible;
use std::io;
use std::sync::{Arc, Mutex};

/// Path with query, and `Accept` header, of each request.
type Requests = Arc<Mutex<Vec<(String, Option<String>)>>>;

/// Returns a client of a fake server, and the list of requests that the server receives. `answer`
/// returns status code and body for a path with query.
fn fake_server(
    answer: impl Fn(&str) -> (u16, String) + Send + Sync + 'static,
) -> (Client, Requests) {
    let requests = Requests::default();
    let log = requests.clone();
    let service = tower::service_fn(move |request: Request<Body>| {
        let uri = request.uri().to_string();
        let accept = request.headers().get(header::ACCEPT);
        let accept = accept.map(|it| it.to_str().unwrap().to_owned());
        let (code, body) = answer(&uri);
        log.lock().unwrap().push((uri, accept));
        let answer = Response::builder().status(code).header("x-note", "kept");
        let answer = answer.body(Full::new(Bytes::from(body))).unwrap();
        std::future::ready(Ok::<_, Infallible>(answer))
    });
    (Client::new(service, "default"), requests)
}

fn limits(objects: usize, bytes: usize) -> PageLimits {
    PageLimits {
        objects,
        bytes,
        reduced_objects: 1,
    }
}

fn uris(requests: &Requests) -> Vec<String> {
    let requests = requests.lock().unwrap();
    requests.iter().map(|(uri, _)| uri.clone()).collect()
}

#[tokio::test]
async fn a_list_is_read_page_by_page() {
    let (client, requests) = fake_server(|uri| {
        let last = uri.contains("continue=");
        let next = if last { "" } else { "a/b=" };
        let metadata = format!(r#"{{"resourceVersion":"7","continue":"{next}"}}"#);
        (
            200,
            format!(r#"{{"metadata":{metadata},"items":[1,{last}]}}"#),
        )
    });
    let pager = ListPager::new(client, "/things", "application/json", limits(500, 1 << 20));
    let first = pager.page(None).await.unwrap();
    assert_eq!(first.headers["x-note"], "kept");
    let items = ListItems::<&RawValue>::read(&first.body).unwrap();
    let texts: Vec<&str> = items.items.iter().map(|item| item.get()).collect();
    assert_eq!(texts, ["1", "false"]);
    assert_eq!(items.version.as_deref(), Some("7"));
    assert_eq!(items.next.as_deref(), Some("a/b="));
    let second = pager.page(items.next.as_deref()).await.unwrap();
    let items = ListItems::<&RawValue>::read(&second.body).unwrap();
    assert_eq!(items.next, None, "an empty continue token must become None");
    let expected = ["/things?limit=500", "/things?limit=500&continue=a%2Fb%3D"];
    assert_eq!(uris(&requests), expected);
    assert_eq!(second.uri, uris(&requests)[1]);
    let accept = &requests.lock().unwrap()[0].1;
    assert_eq!(accept.as_deref(), Some("application/json"));
}

#[tokio::test]
async fn after_a_page_that_is_too_large_fewer_objects_are_requested() {
    let (client, requests) = fake_server(|uri| {
        let bytes = if uri.contains("limit=2") { 11 } else { 10 };
        (200, "x".repeat(bytes))
    });
    let pager = ListPager::new(client, "/things", "*/*", limits(2, 10));
    for token in [None, Some("a"), None] {
        assert!(pager.page(token).await.is_ok());
    }
    let limits = ["2", "1", "1&continue=a", "2", "1"];
    let limits = limits.map(|limit| format!("/things?limit={limit}"));
    assert_eq!(uris(&requests), limits);
}

#[tokio::test]
async fn a_page_that_is_still_too_large_after_one_reduction_is_an_error() {
    let (client, requests) = fake_server(|_| (200, "x".repeat(11)));
    let pager = ListPager::new(client, "/things", "*/*", limits(2, 10));
    for token in [None, Some("a")] {
        let error = pager.page(token).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "a page of the list has more than 10 bytes"
        );
    }
    let limits = ["2", "1", "1&continue=a"].map(|limit| format!("/things?limit={limit}"));
    assert_eq!(uris(&requests), limits);
}

#[tokio::test]
async fn an_error_response_keeps_its_body_and_does_not_reduce_the_page_size() {
    let (client, requests) = fake_server(|_| (410, "x".repeat(11)));
    let pager = ListPager::new(client, "/things", "*/*", limits(2, 10));
    let error = pager.page(None).await.unwrap_err();
    assert_eq!(error.to_string(), "the API server answered 410 Gone");
    let ListError::Refused(answer) = error else {
        panic!("{error:?}")
    };
    assert_eq!(answer.status(), StatusCode::GONE);
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(body, "x".repeat(11));
    assert!(pager.page(None).await.is_err());
    assert_eq!(uris(&requests), ["/things?limit=2", "/things?limit=2"]);
}

#[tokio::test]
async fn a_truncated_page_is_a_transport_error() {
    let service = tower::service_fn(|_: Request<Body>| {
        let frames = [
            Ok(Frame::data(Bytes::from_static(b"{"))),
            Err(io::Error::other("cut")),
        ];
        let body = StreamBody::new(stream::iter(frames));
        std::future::ready(Ok::<_, Infallible>(Response::new(body)))
    });
    let pager = ListPager::new(
        Client::new(service, "default"),
        "/things",
        "*/*",
        limits(2, 10),
    );
    let error = pager.page(None).await.unwrap_err();
    assert!(matches!(error, ListError::Transport(_)), "{error:?}");
    assert!(error.to_string().contains("cut"), "{error}");
}

#[tokio::test]
async fn an_invalid_path_is_an_error_without_a_request() {
    let (client, requests) = fake_server(|_| (200, String::new()));
    let pager = ListPager::new(client, "/a thing", "*/*", limits(2, 10));
    let error = pager.page(None).await.unwrap_err();
    assert!(matches!(error, ListError::Request { .. }), "{error:?}");
    assert!(
        error.to_string().starts_with("/a thing?limit=2: "),
        "{error}"
    );
    assert_eq!(uris(&requests), Vec::<String>::new());
}

#[test]
fn a_body_that_is_not_a_list_is_an_error() {
    for body in ["", "[]", "{}", r#"{"items": 3}"#, "not found"] {
        let read = ListItems::<&RawValue>::read(body.as_bytes());
        assert!(read.is_err(), "{body}");
    }
    for body in [r#"{"items": null}"#, r#"{"metadata": {}, "items": []}"#] {
        let read = ListItems::<u8>::read(body.as_bytes()).unwrap();
        assert_eq!((read.next, read.items), (None, Vec::new()), "{body}");
    }
    assert!(ListItems::<u8>::read(br#"{"items": [1, "a"]}"#).is_err());
}

#[test]
fn a_query_omits_options_without_a_value() {
    assert_eq!(query(&[("a", ""), ("b", "x y"), ("c", "")]), "b=x+y");
}
