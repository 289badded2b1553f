//! Answers the question of a client what its user may do (`SelfSubjectAccessReview`), as a
//! kube-apiserver does. `kubectl auth can-i` and k9s ask it, in protobuf. They accept JSON as the answer.

use super::users::DemoUsers;
use aggregated_apiserver::auth::{
    AccessDecision, Attributes, Authenticate as _, Authorize as _, PeerCertificates,
    ResourceAttributes,
};
use aggregated_apiserver::serve::ErrorStatus;
use axum::Router;
use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, StatusCode};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes as AskedResource, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
};
use std::sync::Arc;

/// The first bytes of an object in Kubernetes' protobuf encoding.
const PROTOBUF: &[u8] = b"k8s\0";
const PATH: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";

/// Adds the path of the reviews to a router.
pub fn add_to(router: Router, users: Arc<DemoUsers>) -> Router {
    let answer = move |headers: HeaderMap, body: Bytes| async move {
        let answered = answer(&users, &headers, &body).await;
        answered.unwrap_or_else(ErrorStatus::into_response)
    };
    router.route(PATH, post(answer))
}

async fn answer(
    users: &DemoUsers,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, ErrorStatus> {
    let peer = PeerCertificates::default();
    let user = users.authenticate(&peer, headers).await;
    let user = user.map_err(|_| ErrorStatus::unauthorized())?;
    let spec = decode(body).ok_or_else(|| ErrorStatus::bad_request("not a review"))?;
    let decision = users.authorize(&user, &asked(&spec)).await;
    let review = SelfSubjectAccessReview {
        spec,
        status: Some(SubjectAccessReviewStatus {
            allowed: matches!(decision, Ok(AccessDecision::Allow)),
            ..SubjectAccessReviewStatus::default()
        }),
        ..SelfSubjectAccessReview::default()
    };
    let json = serde_json::to_string(&review).expect("a review is valid JSON");
    let content_type = [(CONTENT_TYPE, "application/json")];
    Ok((StatusCode::CREATED, content_type, json).into_response())
}

/// Decodes a review in JSON or protobuf. Of a review in protobuf, only the fields that [`asked`] reads
/// are decoded.
fn decode(body: &[u8]) -> Option<SelfSubjectAccessReviewSpec> {
    let Some(envelope) = body.strip_prefix(PROTOBUF) else {
        let review: SelfSubjectAccessReview = serde_json::from_slice(body).ok()?;
        return Some(review.spec);
    };
    // The envelope has the review in its field 2, and the review has its spec in the field 2.
    let spec = field(field(envelope, 2)?, 2)?;
    let resource_attributes = field(spec, 1).map(|asked| {
        let text = |number| Some(String::from_utf8_lossy(field(asked, number)?).into_owned());
        AskedResource {
            namespace: text(1),
            verb: text(2),
            group: text(3),
            resource: text(5),
            ..AskedResource::default()
        }
    });
    Some(SelfSubjectAccessReviewSpec {
        resource_attributes,
        ..SelfSubjectAccessReviewSpec::default()
    })
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

/// Returns the access that a review asks about. The users of the demo differ only in the namespaces
/// that they may read. So all verbs that do not read are treated as `create`.
fn asked(spec: &SelfSubjectAccessReviewSpec) -> Attributes {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let Some(asked) = &spec.resource_attributes else {
        let path = spec.non_resource_attributes.as_ref();
        return Attributes::NonResource {
            path: path.map(|it| text(&it.path)).unwrap_or_default(),
            verb: "get",
        };
    };
    let verb = asked.verb.as_deref();
    let read = ["get", "list", "watch"].into_iter();
    Attributes::Resource(ResourceAttributes {
        verb: read
            .into_iter()
            .find(|it| verb == Some(it))
            .unwrap_or("create"),
        group: text(&asked.group),
        resource: text(&asked.resource),
        namespace: text(&asked.namespace),
        ..ResourceAttributes::default()
    })
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
        let spec = decode(body).expect("the review is valid");
        let asked = spec.resource_attributes.expect("it is about a resource");
        let asked = [asked.namespace, asked.verb, asked.resource];
        assert_eq!(
            asked,
            ["team-a", "list", "inflightoperations"].map(|it| Some(it.to_owned()))
        );
        // The last 4 bytes are empty fields of the envelope.
        for end in 0..body.len() - 4 {
            assert!(decode(&body[..end]).is_none(), "{end}");
        }
    }
}
