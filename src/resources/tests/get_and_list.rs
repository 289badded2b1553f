//! Tests of get and list requests: order, selectors, pages, versions and syntaxes.

use super::*;
use base64::Engine as _;

const ALL: &str = "/apis/live.ifo.kubevirt.io/v1alpha1/inflightoperations";

#[tokio::test]
async fn a_list_is_ordered_by_the_bytes_of_namespace_and_name() {
    let fixture = Fixture::filled();
    let (code, body) = fixture.get(ALL).await;
    assert_eq!(code, StatusCode::OK);
    assert!(body.starts_with(
        "{\"kind\":\"InFlightOperationList\",\"apiVersion\":\"live.ifo.kubevirt.io/v1alpha1\","
    ));
    assert!(body.ends_with("}]}\n"));
    let list = as_json(&body);
    assert_eq!(
        list["metadata"],
        json!({"continue": "", "resourceVersion": "105"})
    );
    assert_eq!(names(&list), ["a-b/z", "a/x", "a/y", "b/w", "b/x"]);
    assert_eq!(list["items"][0]["metadata"]["resourceVersion"], "103");
}

#[tokio::test]
async fn an_empty_namespace_is_an_empty_list() {
    let fixture = Fixture::filled();
    let (_, body) = fixture
        .get(&format!("{BASE}/namespaces/none/inflightoperations"))
        .await;
    let expected = json!({
        "kind": "InFlightOperationList",
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1",
        "metadata": {"continue": "", "resourceVersion": "105"},
        "items": [],
    });
    assert_eq!(as_json(&body), expected);
}

#[tokio::test]
async fn a_list_longer_than_one_chunk_is_complete() {
    let mut fixture = Fixture::new();
    for number in 0..300 {
        fixture.put(101 + number, "n", &format!("o{number:03}"), |_| {});
    }
    let response = fixture.send(request("GET", ALL, &[])).await;
    let mut body = response.into_body();
    let mut frames = 0;
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        frames += 1;
        bytes.extend_from_slice(&frame.unwrap().into_data().unwrap());
    }
    assert!(frames > 1);
    let list: Value = serde_json::from_slice(&bytes).unwrap();
    assert_eq!(names(&list).len(), 300);
}

#[tokio::test]
async fn selectors_select_by_labels_and_fields() {
    let mut fixture = Fixture::filled();
    fixture.put(106, "a", "done", |object| {
        object["status"]["phase"] = json!("Completed");
        object["spec"]["subject"]["namespace"] = json!("a");
        object["metadata"]["labels"] = json!({ "other": "1" });
    });
    for (query, expected) in [
        ("labelSelector=name%3Dx", &["a/x", "b/x"][..]),
        ("labelSelector=name%20in%20(w,z)", &["a-b/z", "b/w"]),
        ("labelSelector=!name", &["a/done"]),
        ("fieldSelector=metadata.name%3Dx", &["a/x", "b/x"]),
        (
            "fieldSelector=metadata.name%3Dx,metadata.namespace%3Db",
            &["b/x"],
        ),
        ("fieldSelector=metadata.namespace%3Da-b", &["a-b/z"]),
        ("fieldSelector=status.phase!%3DActive", &["a/done"]),
        ("fieldSelector=spec.subject.namespace%3Da", &["a/done"]),
        (
            "fieldSelector=status.phase%3D%3DActive&labelSelector=name%3Dy",
            &["a/y"],
        ),
        ("fieldSelector=metadata.name%3Dnone", &[]),
    ] {
        let list = fixture.json(&format!("{ALL}?{query}"), &[]).await;
        assert_eq!(names(&list), expected, "{query}");
    }
}

#[tokio::test]
async fn invalid_selectors_are_rejected() {
    let fixture = Fixture::filled();
    for (query, message) in [
        ("fieldSelector=foo%3D1", "field label not supported: foo"),
        (
            "fieldSelector=x",
            "invalid selector: 'x'; can't understand 'x'",
        ),
        (
            "labelSelector=,",
            "unable to parse requirement: found \",\", expected: a label key",
        ),
        (
            "labelSelector=!",
            "unable to parse requirement: found \"\", expected: a label key",
        ),
        // The server reports an option that it cannot parse before options that exclude each other.
        (
            "limit=x&labelSelector=,&sendInitialEvents=true",
            "limit: parsing \"x\": invalid digit found in string",
        ),
        (
            "timeoutSeconds=",
            "timeoutSeconds: parsing \"\": cannot parse integer from empty string",
        ),
    ] {
        let (code, body) = fixture.get(&format!("{ALL}?{query}")).await;
        assert_eq!(code, StatusCode::BAD_REQUEST);
        let status: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(status["message"], message);
    }
    // Objects of a cluster-scoped resource have no namespace that a selector could select.
    let (code, _) = fixture
        .get(
            "/apis/ifo.kubevirt.io/v1alpha1/operationrulesets?fieldSelector=metadata.namespace%3Da",
        )
        .await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn selectors_are_limited() {
    let fixture = Fixture::filled();
    let selector = "!a,".repeat(100) + "!a";
    let (code, _) = fixture
        .get(&format!("{ALL}?labelSelector={selector}"))
        .await;
    assert_eq!(code, StatusCode::BAD_REQUEST);
    // A set with many values is only one requirement. Equal values count once.
    let values = vec!["0123456789".to_owned(); 1000].join(",");
    let (code, _) = fixture
        .get(&format!("{ALL}?labelSelector=name%20in%20({values})"))
        .await;
    assert_eq!(code, StatusCode::OK);
}

#[tokio::test]
async fn all_pages_show_one_version_despite_changes() {
    let mut fixture = Fixture::filled();
    let first = fixture.json(&format!("{ALL}?limit=2"), &[]).await;
    assert_eq!(names(&first), ["a-b/z", "a/x"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    let decoded = base64::engine::general_purpose::URL_SAFE_NO_PAD
        .decode(&token)
        .unwrap();
    assert_eq!(
        String::from_utf8(decoded).unwrap(),
        r#"{"v":"meta.k8s.io/v1","rv":105,"start":"/a/x\u0000"}"#
    );

    fixture.delete(106, "a", "y");
    fixture.put(107, "a", "y2", |_| {});
    let second = fixture
        .json(&format!("{ALL}?limit=2&continue={token}"), &[])
        .await;
    assert_eq!(names(&second), ["a/y", "b/w"]);
    assert_eq!(second["metadata"]["resourceVersion"], "105");
    let token = second["metadata"]["continue"].as_str().unwrap();
    let third = fixture
        .json(&format!("{ALL}?limit=2&continue={token}"), &[])
        .await;
    assert_eq!(names(&third), ["b/x"]);
    assert_eq!(third["metadata"]["continue"], "");
}

#[tokio::test]
async fn an_expired_page_is_410_with_a_token_to_continue() {
    let mut fixture = Fixture::bounded(0);
    fixture.fill();
    let first = fixture.json(&format!("{ALL}?limit=2"), &[]).await;
    let token = first["metadata"]["continue"].as_str().unwrap().to_owned();
    for rv in 106..120 {
        fixture.put(rv, "c", "c", |object| {
            object["status"]["progress"] = json!(rv);
        });
    }
    let (code, body) = fixture.get(&format!("{ALL}?continue={token}")).await;
    assert_eq!(code, StatusCode::GONE, "{body}");
    let status: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(status["reason"], "Expired");
    let token = status["metadata"]["continue"].as_str().unwrap();
    let rest = fixture.json(&format!("{ALL}?continue={token}"), &[]).await;
    assert_eq!(names(&rest), ["a/y", "b/w", "b/x", "c/c"]);

    let (code, body) = fixture
        .get(&format!(
            "{ALL}?resourceVersion=101&resourceVersionMatch=Exact"
        ))
        .await;
    assert_eq!(code, StatusCode::GONE);
    assert!(body.contains("The resourceVersion for the provided list is too old."));
}

#[tokio::test]
async fn versions_select_the_state_that_is_listed() {
    let mut fixture = Fixture::filled();
    fixture.delete(106, "b", "x");
    for (query, count, rv) in [
        ("", 4, "106"),
        ("resourceVersion=0&limit=1", 4, "106"),
        ("resourceVersion=103", 4, "106"),
        (
            "resourceVersion=103&resourceVersionMatch=NotOlderThan&limit=10",
            4,
            "106",
        ),
        ("resourceVersion=103&resourceVersionMatch=Exact", 3, "103"),
        ("resourceVersion=105&limit=10", 5, "105"),
        ("limit=-1", 4, "106"),
    ] {
        let list = fixture.json(&format!("{ALL}?{query}"), &[]).await;
        assert_eq!(names(&list).len(), count, "{query}");
        assert_eq!(list["metadata"]["resourceVersion"], rv, "{query}");
    }
}

#[tokio::test]
async fn invalid_numbers_and_tokens_are_rejected() {
    let fixture = Fixture::filled();
    for (query, message) in [
        ("resourceVersion=abc", "invalid resource version: "),
        ("limit=abc", "limit: parsing \"abc\": "),
        ("limit=", "limit: parsing \"\": "),
        (
            "continue=%7B",
            "invalid continue token: continue key is not valid",
        ),
    ] {
        let (code, body) = fixture.get(&format!("{ALL}?{query}")).await;
        assert_eq!(code, StatusCode::BAD_REQUEST);
        let found = as_json(&body)["message"].as_str().unwrap().to_owned();
        assert!(found.starts_with(message), "{found}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_version_from_the_future_times_out_with_a_retry() {
    let fixture = Fixture::filled();
    for path in [
        format!("{ALL}?resourceVersion=99999"),
        format!("{BASE}/namespaces/a/inflightoperations/x?resourceVersion=99999"),
    ] {
        let response = fixture.send(request("GET", &path, &[])).await;
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(response.headers()["retry-after"], "1");
        assert_eq!(
            as_json(&text(response).await),
            as_json(
                "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
             \"message\":\"Timeout: Too large resource version: 99999, current: 105\",\
             \"reason\":\"Timeout\",\"details\":{\"causes\":[{\"reason\":\"ResourceVersionTooLarge\",\
             \"message\":\"Too large resource version\"}],\"retryAfterSeconds\":1},\"code\":504}\n"
            )
        );
    }
}

#[tokio::test]
async fn a_get_returns_the_object_or_a_404_that_names_it() {
    let fixture = Fixture::filled();
    let object = fixture
        .json(
            &format!("{BASE}/namespaces/a/inflightoperations/x?watch=1&limit=abc"),
            &[],
        )
        .await;
    assert_eq!(object["metadata"]["resourceVersion"], "104");
    assert_eq!(object["kind"], "InFlightOperation");

    let (code, body) = fixture
        .get(&format!("{BASE}/namespaces/a/inflightoperations/nope"))
        .await;
    assert_eq!(code, StatusCode::NOT_FOUND);
    assert_eq!(
        as_json(&body),
        as_json(
            "{\"kind\":\"Status\",\"apiVersion\":\"v1\",\"metadata\":{},\"status\":\"Failure\",\
         \"message\":\"inflightoperations.live.ifo.kubevirt.io \\\"nope\\\" not found\",\
         \"reason\":\"NotFound\",\"details\":{\"name\":\"nope\",\"group\":\"live.ifo.kubevirt.io\",\
         \"kind\":\"inflightoperations\"},\"code\":404}\n"
        )
    );
}
