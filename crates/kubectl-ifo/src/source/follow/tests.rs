//! What a watch tells over errors.

use super::watched;
use futures::StreamExt as _;
use http::{Request, Response};
use ifo_api::{LIVE_GROUP, VERSION, live};
use kube::api::ApiResource;
use kube::client::Body;
use kube::core::GroupVersionKind;
use kube::runtime::watcher::{Config, Event};
use kube::{Api, Client};
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[tokio::test]
async fn a_watch_that_broke_tells_all_there_is_when_it_is_whole_again() {
    let watches = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&watches);
    let service = tower::service_fn(move |request: Request<Body>| {
        let watch = request.uri().query().unwrap_or_default().contains("watch");
        let (code, body) = if !watch {
            let list = r#"{"apiVersion":"v1","kind":"List","metadata":{"resourceVersion":"7"},"items":[]}"#;
            (200, list)
        } else if seen.fetch_add(1, Ordering::SeqCst) == 0 {
            let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","code":503}"#;
            (503, status)
        } else {
            (200, "")
        };
        let response = Response::builder().status(code);
        let response = response.body(Body::from(body.as_bytes().to_vec()));
        async move { Ok::<_, Infallible>(response.expect("it is one")) }
    });
    let kind = GroupVersionKind::gvk(LIVE_GROUP, VERSION, live::KIND);
    let resource = ApiResource::from_gvk_with_plural(&kind, live::PLURAL);
    let api = Api::all_with(Client::new(service, "default"), &resource);
    let mut events = std::pin::pin!(watched(api, Config::default()));
    let mut told = Vec::new();
    for _ in 0..5 {
        told.push(match events.next().await.expect("it never ends") {
            Ok(Event::Init) => "from the start",
            Ok(Event::InitDone) => "that is all",
            Ok(_) => "a change",
            Err(_) => "broken",
        });
    }
    let expected = [
        "from the start",
        "that is all",
        "broken",
        "from the start",
        "that is all",
    ];
    assert_eq!(told, expected);
    assert_eq!(watches.load(Ordering::SeqCst), 1);
}
