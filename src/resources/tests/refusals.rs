//! Tests of requests that the server refuses: requests without access, for missing objects, with
//! unsupported methods, above the limits, and before the index is complete. This file also tests
//! health probes and audit IDs.

use super::*;
use aggregated_apiserver::auth::{ResourceAttributes, SelectorAttributes, SelectorRequirement};

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

#[tokio::test]
async fn an_invalid_token_is_401_on_every_path() {
    let fixture = Fixture::filled();
    for path in [ALL, "/healthz", "/version", "/nowhere"] {
        let (code, body) = fixture.ask(path, &[("authorization", "Bearer bad")]).await;
        assert_eq!(code, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(
            as_json(&body),
            as_json(
                "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
             \"message\":\"Unauthorized\",\"reason\":\"Unauthorized\",\"code\":401}\n"
            )
        );
    }
}

#[tokio::test]
async fn a_forbidden_response_names_the_missing_right() {
    let fixture = Fixture::filled();
    let nobody = &[("x-user", "nobody")];
    for (path, message, details) in [
        (
            format!("{BASE}/namespaces/n1/inflightoperations/f1"),
            "inflightoperations.live.ifo.kubevirt.io \"f1\" is forbidden: User \"nobody\" cannot \
             get resource \"inflightoperations\" in API group \"live.ifo.kubevirt.io\" in the \
             namespace \"n1\"",
            json!({ "name": "f1", "group": "live.ifo.kubevirt.io", "kind": "inflightoperations" }),
        ),
        (
            ALL.to_owned(),
            "inflightoperations.live.ifo.kubevirt.io is forbidden: User \"nobody\" cannot list \
             resource \"inflightoperations\" in API group \"live.ifo.kubevirt.io\" at the cluster \
             scope",
            json!({ "group": "live.ifo.kubevirt.io", "kind": "inflightoperations" }),
        ),
        (
            "/metrics".to_owned(),
            "forbidden: User \"nobody\" cannot get path \"/metrics\"",
            json!({}),
        ),
        (
            "/readyz/ping".to_owned(),
            "forbidden: User \"nobody\" cannot get path \"/readyz/ping\"",
            json!({}),
        ),
    ] {
        let response = fixture.send(request("GET", &path, nobody)).await;
        assert_eq!(response.status(), StatusCode::FORBIDDEN);
        assert_eq!(response.headers()["x-content-type-options"], "nosniff");
        let status: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(status["message"], message);
        assert_eq!(status["reason"], "Forbidden");
        assert_eq!(status["details"], details);
    }
}

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
                    requirement("metadata.name", "In", &["x"]),
                    requirement("status.phase", "NotIn", &["Active"]),
                ],
            },
            label_selector: SelectorAttributes {
                requirements: vec![requirement("a", "In", &["b", "c"])],
            },
            ..ResourceAttributes::default()
        })
    );
}

#[tokio::test]
async fn probes_and_version_need_no_authorization() {
    let fixture = Fixture::new();
    for path in ["/healthz", "/livez", "/readyz", "/version"] {
        let (code, _) = fixture.ask(path, &[("x-user", "nobody")]).await;
        assert_eq!(code, StatusCode::OK, "{path}");
    }
    assert_eq!(fixture.authorizer.count(), 0);
    let version = fixture.json("/version", &[]).await;
    assert_eq!(version["gitVersion"], "v0.1.0");
    assert_eq!(version["minor"], "1");
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
async fn writes_are_405_and_head_is_get_without_a_body() {
    let fixture = Fixture::filled();
    let one = format!("{BASE}/namespaces/a/inflightoperations/x");
    for (method, path, verb) in [
        ("POST", ALL, "create"),
        ("PUT", &one, "update"),
        ("PATCH", &one, "patch"),
        ("DELETE", &one, "delete"),
        ("DELETE", ALL, "deletecollection"),
    ] {
        let response = fixture.send(request(method, path, &[])).await;
        assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
        let status: Value = serde_json::from_str(&text(response).await).unwrap();
        assert_eq!(
            status["message"],
            format!(
                "{verb} is not supported on resources of kind \
                 \"inflightoperations.live.ifo.kubevirt.io\""
            )
        );
        assert_eq!(
            status["details"],
            json!({ "group": "live.ifo.kubevirt.io", "kind": "inflightoperations" })
        );
    }
    let response = fixture.send(request("OPTIONS", ALL, &[])).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    let response = fixture.send(request("POST", BASE, &[])).await;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert!(text(response).await.contains("MethodNotAllowed"));
    let response = fixture.send(request("HEAD", &one, &[])).await;
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.headers()["content-type"], "application/json");
    let length = fixture.get(&one).await.1.len().to_string();
    assert_eq!(response.headers()["content-length"], length.as_str());
    assert_eq!(text(response).await, "");
}

#[tokio::test]
async fn unknown_paths_and_names_are_404() {
    let fixture = Fixture::filled();
    for path in [
        format!("{BASE}/nothings"),
        format!("{BASE}/inflightoperations/x"),
        "/apis/live.ifo.kubevirt.io/v9/inflightoperations".to_owned(),
    ] {
        let (code, body) = fixture.get(&path).await;
        assert_eq!(code, StatusCode::NOT_FOUND);
        assert_eq!(
            as_json(&body),
            as_json(
                "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
             \"message\":\"the server could not find the requested resource\",\
             \"reason\":\"NotFound\",\"details\":{},\"code\":404}\n"
            )
        );
    }
    // Operations have no subresources.
    let path = format!("{BASE}/namespaces/a/inflightoperations/x/status");
    for method in ["GET", "PUT"] {
        let response = fixture.send(request(method, &path, &[])).await;
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        let body = text(response).await;
        assert!(
            body.contains(r#"inflightoperations.live.ifo.kubevirt.io \"x\" not found"#),
            "{body}"
        );
    }
    let (code, body) = fixture.get("/nowhere").await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    assert!(
        body.contains("could not find the requested resource"),
        "{body}"
    );
    let (code, _) = fixture
        .get(&format!("{BASE}/namespaces/a/inflightoperations/%2e%2e"))
        .await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
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

#[tokio::test(start_paused = true)]
async fn requests_above_the_limit_get_429_with_retry_after() {
    let fixture = Fixture::limited(1, 1);
    let path = format!("{ALL}?resourceVersion=999");
    let mut waiting = Box::pin(fixture.send(request("GET", &path, &[])));
    assert!(futures::poll!(&mut waiting).is_pending());

    let response = fixture.send(request("GET", ALL, &[])).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(response.headers()["retry-after"], "1");
    let refusal = text(response).await;
    let limit = "too many requests (--max-requests-inflight): the limit is 1";
    assert!(refusal.contains(limit), "{refusal}");
    let masters = &[("x-group", "system:masters")];
    assert_eq!(fixture.ask(ALL, masters).await.0, StatusCode::OK);
    assert_eq!(fixture.get("/readyz").await.0, StatusCode::OK);

    drop(waiting);
    assert_eq!(fixture.get(ALL).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_watch_frees_its_slot_when_its_client_disconnects() {
    let fixture = Fixture::limited(1, 1);
    let path = format!("{ALL}?watch=1");
    let first = fixture.send(request("GET", &path, &[])).await;
    assert_eq!(first.status(), StatusCode::OK);
    let second = fixture.send(request("GET", &path, &[])).await;
    assert_eq!(second.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(fixture.get(ALL).await.0, StatusCode::OK);
    drop(first);
    let third = fixture.send(request("GET", &path, &[])).await;
    assert_eq!(third.status(), StatusCode::OK);
}

#[tokio::test]
async fn discovery_and_openapi_need_no_authorization() {
    let fixture = Fixture::new();
    for path in ["/api", "/apis", "/apis/", BASE, "/openapi/v3"] {
        fixture.ask(path, &[("x-user", "nobody")]).await;
    }
    assert_eq!(fixture.authorizer.count(), 0);
}
