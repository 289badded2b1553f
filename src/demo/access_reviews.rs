//! Answers the question of a client what its user may do (`SelfSubjectAccessReview`), as a
//! kube-apiserver does. `kubectl auth can-i` and k9s ask it, in protobuf. They accept JSON as the answer.

use super::users::DemoUsers;
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

/// The first bytes of an object in Kubernetes' protobuf encoding.
const PROTOBUF: &[u8] = b"k8s\0";
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
    let asked = verb_and_namespace(body).ok_or_else(|| ErrorStatus::bad_request("not a review"))?;
    let review = json!({
        "kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {},
        "status": {"allowed": user.may(&asked.0, &asked.1)},
    });
    let content_type = [(CONTENT_TYPE, "application/json")];
    Ok((StatusCode::CREATED, content_type, review.to_string()).into_response())
}

/// Returns the verb and the namespace of a review in JSON or protobuf. The users of the demo differ only
/// in the namespaces that they may read. The texts are empty if the review is about no resource.
fn verb_and_namespace(body: &[u8]) -> Option<(String, String)> {
    let Some(envelope) = body.strip_prefix(PROTOBUF) else {
        let review: Value = serde_json::from_slice(body).ok()?;
        let attributes = &review["spec"]["resourceAttributes"];
        let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
        return Some((text("verb"), text("namespace")));
    };
    // The review is the field 2 of the envelope, its spec is the field 2 of the review, and the
    // attributes are the field 1 of the spec.
    let spec = field(field(envelope, 2)?, 2)?;
    let attributes = field(spec, 1).unwrap_or_default();
    let text = |number| {
        let text = field(attributes, number).unwrap_or_default();
        String::from_utf8_lossy(text).into_owned()
    };
    Some((text(2), text(1)))
}

/// Returns the content of a field of a protobuf message. The field must be a text or a message. Returns
/// None if the message does not have the field, or is not valid.
fn field(mut message: &[u8], number: u64) -> Option<&[u8]> {
    loop {
        let key = varint(&mut message)?;
        match key & 7 {
            0 => drop(varint(&mut message)?),
            2 => {
                let length = usize::try_from(varint(&mut message)?).ok()?;
                let (content, rest) = message.split_at_checked(length)?;
                if key >> 3 == number {
                    return Some(content);
                }
                message = rest;
            }
            _ => return None,
        }
    }
}

/// Reads a number of a protobuf message: 7 bits in each byte, the lowest first.
fn varint(message: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let bytes = *message;
        let (byte, rest) = bytes.split_first()?;
        *message = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if *byte < 0x80 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_review_in_protobuf_is_decoded() {
        // The request of `kubectl auth can-i list inflightoperations -n team-a`, version 1.32.
        let body =
            b"k8s\0\n2\n\x17authorization.k8s.io/v1\x12\x17SelfSubjectAccessReview\x12J\n\x10\n\0\
            \x12\0\x1a\0\"\0*\x002\x008\0B\0\x12,\n*\n\x06team-a\x12\x04list\x1a\0\"\0*\
            \x12inflightoperations2\0:\0\x1a\x08\x08\0\x12\0\x1a\0\x20\0\x1a\0\"\0";
        let asked = verb_and_namespace(body);
        assert_eq!(asked, Some(("list".to_owned(), "team-a".to_owned())));
        // The last 4 bytes are empty fields of the envelope.
        for end in 0..body.len() - 4 {
            assert!(verb_and_namespace(&body[..end]).is_none(), "{end}");
        }
    }
}
