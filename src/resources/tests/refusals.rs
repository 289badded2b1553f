//! Tests of requests that the server refuses: requests without access, for missing objects, above
//! the limits, and before the index is complete. This file also tests health probes and audit IDs.

use super::*;
use aggregated_apiserver::auth::SelectorOperator::{In, NotIn};
use aggregated_apiserver::auth::{ResourceAttributes, SelectorAttributes, SelectorRequirement};

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

#[tokio::test]
async fn authorization_precedes_all_other_checks() {
    let fixture = Fixture::new();
    for (method, path) in [
        ("POST", ALL.to_owned()),
        ("GET", format!("{BASE}/nothings")),
        ("GET", format!("{ALL}?fieldSelector=x")),
        ("GET", "/nowhere".to_owned()),
    ] {
        let response = fixture
            .send(request(method, &path, &[("x-user", "nobody")]))
            .await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN, "{path}");
    }
    // `x-user` is the header of the fixture's authenticator.
    let impersonating = [("x-user", "admin"), ("impersonate-user", "bob")];
    let (code, body) = fixture.ask(ALL, &impersonating).await;
    assert_eq!(code, StatusCode::FORBIDDEN);
    assert!(body.contains("does not impersonate users"), "{body}");
    let (code, body) = fixture.ask(ALL, &[("x-user", "unsure")]).await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    assert!(
        body.contains("Internal error occurred: no connection"),
        "{body}"
    );
}

#[tokio::test]
async fn the_authorizer_receives_the_selectors() {
    let fixture = Fixture::filled();
    fixture
        .get(&format!(
            "{BASE}/namespaces/n/inflightoperations?watch=1&timeoutSeconds=-1\
             &fieldSelector=metadata.name%3Dx,status.phase!%3DActive&labelSelector=a%20in%20(b,c),d%3E1"
        ))
        .await;
    let requirement = |key: &str, operator, values: &[&str]| SelectorRequirement {
        key: key.to_owned(),
        operator,
        values: values.iter().map(|&value| value.to_owned()).collect(),
    };
    assert_eq!(
        fixture.authorizer.last(),
        Attributes::Resource(ResourceAttributes {
            verb: "watch",
            group: "live.ifo.kubevirt.io".to_owned(),
            version: "v1alpha1".to_owned(),
            resource: "inflightoperations".to_owned(),
            namespace: "n".to_owned(),
            name: "x".to_owned(),
            field_selector: SelectorAttributes {
                requirements: vec![
                    requirement("metadata.name", In, &["x"]),
                    requirement("status.phase", NotIn, &["Active"]),
                ],
            },
            label_selector: SelectorAttributes {
                requirements: vec![requirement("a", In, &["b", "c"])],
            },
            ..ResourceAttributes::default()
        })
    );
}

#[tokio::test]
async fn readiness_follows_sync_and_shutdown() {
    let fixture = Fixture::new();
    let (_, body) = fixture.get("/readyz?verbose").await;
    assert_eq!(
        body,
        "[+]ping ok\n[+]informer-sync ok\n[+]replica ok\n[+]shutdown ok\nreadyz check passed\n"
    );
    fixture.readiness.drain();
    let (code, body) = fixture.get("/readyz").await;
    assert_eq!(code, StatusCode::INTERNAL_SERVER_ERROR);
    assert_eq!(
        body,
        "[+]ping ok\n[+]informer-sync ok\n[+]replica ok\n[-]shutdown failed: reason withheld\nreadyz check failed\n"
    );
    let (code, body) = fixture
        .get("/readyz?exclude=shutdown&exclude=x&verbose")
        .await;
    assert_eq!(code, StatusCode::OK);
    assert!(body.contains("[+]shutdown excluded: ok\n"), "{body}");
    assert_eq!(fixture.get("/livez").await.0, StatusCode::OK);
}

#[tokio::test]
async fn until_synced_requests_get_429_with_retry_after() {
    let fixture = Fixture::unsynced();
    for path in [
        ALL.to_owned(),
        format!("{ALL}?watch=1"),
        format!("{BASE}/namespaces/a/inflightoperations/x"),
    ] {
        let response = fixture.send(request("GET", &path, &[])).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(
            as_json(&text(response).await),
            as_json(
                "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
             \"message\":\"storage is (re)initializing\",\"reason\":\"TooManyRequests\",\
             \"details\":{\"retryAfterSeconds\":1},\"code\":429}\n"
            )
        );
    }
    assert_eq!(
        fixture.get("/readyz").await.0,
        StatusCode::INTERNAL_SERVER_ERROR
    );
    assert_eq!(
        fixture.get("/readyz?exclude=informer-sync").await.0,
        StatusCode::OK
    );
    assert_eq!(fixture.get("/version").await.0, StatusCode::OK);
}

#[tokio::test]
async fn audit_ids_are_taken_from_the_request_or_generated_except_behind_the_front_proxy() {
    let fixture = Fixture::filled();
    let response = fixture
        .send(request("GET", ALL, &[("audit-id", "mine")]))
        .await;
    assert_eq!(response.headers()["audit-id"], "mine");
    assert_eq!(response.headers()["cache-control"], "no-cache, private");
    let response = fixture.send(request("GET", ALL, &[])).await;
    assert_eq!(response.headers()["audit-id"].len(), 36);
    let proxied = &[("audit-id", "theirs"), ("x-remote-user", "jane")];
    let response = fixture.send(request("GET", ALL, proxied)).await;
    assert!(!response.headers().contains_key("audit-id"));
    assert!(!response.headers().contains_key("cache-control"));
}
