//! Tests requests with a bearer token, and requests without credentials.

use super::*;
use http::Method;

#[tokio::test]
async fn a_valid_token_authenticates_its_user() {
    let setup = Setup::new();
    let user = setup
        .authenticate(&no_certificate(), &[("Authorization", "bEaReR good")])
        .await
        .unwrap();
    assert_eq!(user.name, "tess");
    assert_eq!(user.uid.as_deref(), Some("7"));
    assert_eq!(user.groups, ["testers", "system:authenticated"]);
    assert_eq!(user.extra["scope"], ["a", "b"]);
    let asked = setup.cluster.seen(&Method::POST);
    assert_eq!(asked[0].path, "/apis/authentication.k8s.io/v1/tokenreviews");
    assert_eq!(asked[0].body["spec"], json!({"token": "good"}));
}

#[tokio::test]
async fn a_request_without_a_bearer_token_is_anonymous() {
    let setup = Setup::new();
    for value in ["Bearer", "Bearer  good", "Basic good", "", "good"] {
        let user = setup
            .authenticate(&no_certificate(), &[("Authorization", value)])
            .await;
        let user = user.unwrap();
        assert_eq!(user.name, "system:anonymous", "{value:?}");
        assert_eq!(user.groups, ["system:unauthenticated"]);
    }
    assert!(setup.cluster.seen(&Method::POST).is_empty());
}

#[tokio::test]
async fn a_non_text_token_is_rejected_without_a_review() {
    let setup = Setup::new();
    let mut headers = HeaderMap::new();
    let odd = HeaderValue::from_bytes(b"Bearer go\xffod").unwrap();
    headers.insert("authorization", odd);
    let answer = setup
        .authenticator
        .authenticate(&no_certificate(), &headers)
        .await;
    assert!(answer.is_err());
    assert!(setup.cluster.seen(&Method::POST).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_token_that_cannot_be_reviewed_is_rejected_and_not_cached() {
    let setup = Setup::new();
    let headers = [("Authorization", "Bearer good")];
    setup.cluster.refuse(Method::POST, "tokenreviews", 403);
    assert_eq!(setup.user_name(&no_certificate(), &headers).await, "401");
    assert_eq!(setup.user_name(&no_certificate(), &headers).await, "tess");
}
