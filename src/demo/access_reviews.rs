//! Answers each `SelfSubjectAccessReview` as a kube-apiserver does. With this request, a client
//! asks whether its user may do something. `kubectl auth can-i` and k9s send the request in
//! protobuf, and accept an answer in JSON.

use super::users::{DemoUser, DemoUsers, READ_VERBS};
use aggregated_apiserver::auth::bearer_token;
use aggregated_apiserver::serve::ErrorStatus;
use axum::Router;
use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use std::future::ready;
use std::sync::Arc;

const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Adds the path of the reviews to a router.
pub fn add_to(router: Router, users: Arc<DemoUsers>) -> Router {
    let answer = move |headers: HeaderMap, body: Bytes| {
        let answered = answer(&users, &headers, &body);
        ready(answered.unwrap_or_else(ErrorStatus::into_response))
    };
    router.route(PATH, post(answer))
}

fn answer(users: &DemoUsers, headers: &HeaderMap, body: &[u8]) -> Result<Response, ErrorStatus> {
    let user = bearer_token(headers).and_then(|token| users.with_token(token));
    let user = user.ok_or_else(ErrorStatus::unauthorized)?;
    let allowed = is_allowed(user, body).ok_or_else(|| ErrorStatus::bad_request("not a review"))?;
    let review = json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {},
        "status": {"allowed": allowed},
    });
    let content_type = [(CONTENT_TYPE, "application/json")];
    Ok((StatusCode::CREATED, content_type, review.to_string()).into_response())
}

/// Returns true if the user may send the request that a review describes. Returns None if the
/// review is neither valid JSON nor protobuf, which begins with `k8s`.
///
/// In protobuf, this function only searches for the namespace of the user together with a verb that
/// reads. This suffices, because a viewer may read everything in one namespace, and nothing else.
fn is_allowed(user: &DemoUser, body: &[u8]) -> Option<bool> {
    if !body.starts_with(b"k8s\0") {
        let review: Value = serde_json::from_slice(body).ok()?;
        let attributes = &review["spec"]["resourceAttributes"];
        let text = |field: &str| attributes[field].as_str().unwrap_or_default();
        return Some(user.may(text("verb"), text("namespace")));
    }
    let Some(namespace) = user.namespace else {
        return Some(true);
    };
    // In protobuf, the namespace (field 1) and the verb (field 2) follow each other. A field is its
    // tag, its length and its text. A length below 128 is one byte.
    let field = |tag: char, text: &str| {
        let length = u8::try_from(text.len()).map_or('\0', char::from);
        format!("{tag}{length}{text}")
    };
    Some(READ_VERBS.iter().any(|verb| {
        let fields = field('\n', namespace) + &field('\x12', verb);
        let mut parts = body.windows(fields.len());
        parts.any(|part| part == fields.as_bytes())
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_in_protobuf_is_allowed_only_in_the_namespace_of_the_user() {
        // The request of `kubectl auth can-i list inflightoperations -n team-a`, version 1.32.
        let body =
            b"k8s\0\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x12J\n\x10\n\0\
            \x12\0\x1a\0\"\0*\x002\x008\0B\0\x12,\n*\n\x06team-a\x12\x04list\x1a\0\"\0*\
            \x12inflightoperations2\0:\0\x1a\x08\x08\0\x12\0\x1a\0\x20\0\x1a\0\"\0";
        for (namespace, expected) in [
            (Some("team-a"), true),
            (Some("team-b"), false),
            (None, true),
        ] {
            let user = DemoUser {
                name: "a",
                namespace,
                token: String::new(),
            };
            assert_eq!(is_allowed(&user, body), Some(expected), "{namespace:?}");
            assert_eq!(is_allowed(&user, b"no review"), None);
        }
    }
}
