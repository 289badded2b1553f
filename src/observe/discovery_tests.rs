//! Tests discovery with a scripted API server. tokio's clock is paused, so the tests do not wait.

use super::*;
use http::{Request, Response};
use kube::client::Body;
use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
};
use tower::service_fn;

const LIST: &str = r#"{"kind":"APIResourceList","resources":[
    {"name":"cows","kind":"Cow","namespaced":true,"verbs":["get","list","watch"]},
    {"name":"cows/status","kind":"Cow","namespaced":true,"verbs":["get"]},
    {"name":"barns","kind":"Barn","namespaced":false,"verbs":["list","watch"]},
    {"name":"milkings","kind":"Milking","namespaced":true,"verbs":["create"]}]}"#;

/// Creates a `Discovery` with a scripted API server. `answer` gets the path of a request and the
/// number of earlier requests, and returns the status code and the body. The second returned value
/// contains the paths of all requests so far.
fn discovery(
    answer: impl Fn(&str, usize) -> (u16, &'static str) + Send + Sync + 'static,
) -> (Discovery, Arc<Mutex<Vec<String>>>) {
    let requested = Arc::new(Mutex::new(Vec::new()));
    let log = Arc::clone(&requested);
    let answer = Arc::new(answer);
    let client = Client::new(
        service_fn(move |request: Request<Body>| {
            let path = request.uri().path().to_owned();
            let mut log = log.lock().unwrap();
            let (code, text) = answer(&path, log.len());
            log.push(path);
            let response = Response::builder()
                .status(code)
                .body(Body::from(text.as_bytes().to_vec()))
                .unwrap();
            ready(Ok::<_, Infallible>(response))
        }),
        "default",
    );
    (Discovery::new(&Connection::through(client)), requested)
}

fn gvr(resource: &str) -> Gvr {
    Gvr {
        group: "farm.io".into(),
        version: "v1".into(),
        resource: resource.into(),
    }
}

#[tokio::test]
async fn served_resources_are_reported_with_kind_and_scope() {
    let (discovery, requested) = discovery(|_, _| (200, LIST));
    let served = |kind: &str, namespaced| Resolution::Served {
        kind: kind.into(),
        namespaced,
    };
    assert_eq!(discovery.resolve(&gvr("cows")).await, served("Cow", true));
    assert_eq!(
        discovery.resolve(&gvr("barns")).await,
        served("Barn", false)
    );
    assert_eq!(requested.lock().unwrap()[0], "/apis/farm.io/v1");
}

#[tokio::test]
async fn a_resource_missing_on_a_ready_server_is_not_served() {
    for (code, resource) in [
        (200, "pigs"),
        (200, "milkings"),
        (200, "cows/status/x"),
        (404, "cows"),
    ] {
        let (discovery, requested) = discovery(move |path, _| {
            if path == "/readyz" {
                (200, "ok")
            } else {
                (code, LIST)
            }
        });
        let resolution = discovery.resolve(&gvr(resource)).await;
        let Resolution::NotServed { group_served, .. } = resolution else {
            panic!("{resource}: {resolution:?}");
        };
        assert_eq!(group_served, code == 200, "{resource}");
        let requested = requested.lock().unwrap();
        let paths: Vec<_> = requested
            .iter()
            .filter(|it| !["/apis", "/apis/farm.io"].contains(&it.as_str()))
            .collect();
        assert_eq!(paths, ["/apis/farm.io/v1", "/readyz", "/apis/farm.io/v1"]);
    }
}

#[tokio::test]
async fn a_kind_or_singular_in_place_of_the_plural_has_a_hint() {
    for name in ["cow", "Cow"] {
        let (discovery, _) = discovery(|path, _| match path {
            "/readyz" => (200, "ok"),
            _ => (200, LIST),
        });
        match discovery.resolve(&gvr(name)).await {
            Resolution::NotServed { message, .. } => {
                let expected =
                    format!("farm.io/v1 has no resource {name} (hint: write the plural: cows)");
                assert_eq!(message, expected);
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_missing_version_is_distinguished_from_a_missing_group() {
    for (group, served) in [(200, Some(true)), (404, Some(false)), (503, None)] {
        let (discovery, _) = discovery(move |path, _| match path {
            "/readyz" => (200, "ok"),
            "/apis/farm.io" => (group, "{}"),
            _ => (404, ""),
        });
        match discovery.resolve(&gvr("cows")).await {
            Resolution::NotServed { group_served, .. } => assert_eq!(Some(group_served), served),
            Resolution::Unknown { .. } => assert_eq!(served, None),
            served @ Resolution::Served { .. } => panic!("{served:?}"),
        }
    }
}

#[tokio::test]
async fn a_missing_group_comes_with_the_served_group_that_it_resembles() {
    for (groups, expected) in [
        (
            r#"{"groups": [{"name": "apps"}, {"name": "farms.io"}]}"#,
            Some("farms.io"),
        ),
        (r#"{"groups": [{"name": "apps"}]}"#, None),
        ("unreadable", None),
    ] {
        let (discovery, _) = discovery(move |path, _| match path {
            "/readyz" => (200, "ok"),
            "/apis" => (200, groups),
            _ => (404, ""),
        });
        match discovery.resolve(&gvr("cows")).await {
            Resolution::NotServed { similar_group, .. } => {
                assert_eq!(similar_group.as_deref(), expected, "{groups}");
            }
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn discovery_of_a_server_that_is_not_ready_is_inconclusive() {
    let (starting, _) = discovery(|path, _| {
        if path == "/readyz" {
            (500, "poststarthook failed")
        } else {
            (404, "")
        }
    });
    assert!(matches!(
        starting.resolve(&gvr("cows")).await,
        Resolution::Unknown { .. }
    ));
    // The first answer is "not served". Then the kube-apiserver begins to serve the resource, so
    // the second answer is "served". The second answer counts.
    let (ready, _) = discovery(|path, n| {
        if n == 0 {
            (404, "")
        } else if path == "/readyz" {
            (200, "ok")
        } else {
            (200, LIST)
        }
    });
    assert!(matches!(
        ready.resolve(&gvr("cows")).await,
        Resolution::Served { .. }
    ));
}

#[tokio::test]
async fn only_a_complete_discovery_answer_is_conclusive() {
    for (code, text) in [
        (403, ""),
        (401, ""),
        (429, ""),
        (500, ""),
        (503, "not available"),
        (200, "<html>"),
        (400, ""),
        (410, ""),
    ] {
        let (discovery, requested) = discovery(move |_, _| (code, text));
        let resolution = discovery.resolve(&gvr("cows")).await;
        assert!(
            matches!(resolution, Resolution::Unknown { .. }),
            "{code}: {resolution:?}"
        );
        assert_eq!(requested.lock().unwrap().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn simultaneous_crd_changes_cause_one_signal_and_one_repeat() {
    let (send, changes) = futures::channel::mpsc::unbounded();
    let mut coalesced = Box::pin(coalesce(changes));
    for _ in 0..50 {
        send.unbounded_send(()).unwrap();
    }
    let began = tokio::time::Instant::now();
    coalesced.next().await.unwrap();
    assert_eq!(began.elapsed(), COALESCE_PERIOD);
    coalesced.next().await.unwrap();
    assert_eq!(began.elapsed(), COALESCE_PERIOD + SECOND_REPORT_DELAY);
    let third = tokio::time::timeout(Duration::from_mins(10), coalesced.next()).await;
    assert!(third.is_err(), "a change must be repeated only once");
}
