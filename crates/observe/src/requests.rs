//! Sends the requests of feeds and of discovery, and interprets answers other than 200. A feed
//! watches one [`Source`]: a resource, in all namespaces or in one namespace.

use super::{GapReason, ObjectNames, watch_event::is_expired};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use ifo_api::{Gvr, Source};
use ifo_client::error_text::chain;
use kube::client::Body;
use kube::core::{PartialObjectMeta, Status};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use std::time::Duration;

/// The characters that are escaped in a path segment or query value. The unreserved characters of
/// RFC 3986 are not escaped.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Maximum size in bytes of the body of an error. A larger body counts as empty. A `Status` object
/// is far smaller.
const MAX_ERROR: usize = 64 << 10;

/// Maximum size in bytes of an answer that [`read`] reads. Aggregated discovery has about 2 KiB for
/// each resource.
const MAX_ANSWER: usize = 8 << 20;

/// Maximum number of characters of an error message in conditions and logs. A longer message is
/// cut off.
const MAX_MESSAGE: usize = 512;

/// Maximum delay after an answer with `Retry-After`. A longer `Retry-After` counts as this delay.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

pub(super) const JSON: &str = "application/json";
/// Aggregated discovery, which contains all resources of the cluster.
pub(super) const AGGREGATED_DISCOVERY: &str =
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// The reason why a request has not returned the requested data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// 410: the resourceVersion or continue token is too old.
    Expired,
    /// 400 or 422: the kube-apiserver does not understand the request. The value is the standard
    /// text of the code.
    Invalid(String),
    /// Any other failure, with the delay that the kube-apiserver requests (`Retry-After`). The
    /// delay is `None` if the kube-apiserver requests no delay.
    Lost(GapReason, Option<Duration>),
}

impl Refusal {
    pub(super) fn unreachable(why: impl Into<String>) -> Self {
        Self::Lost(GapReason::Unreachable(why.into()), None)
    }
}

/// Returns the path of a group-version: `/apis/group/version`, or `/api/version` for the core
/// group. Fails with a message if the group or the version cannot be part of a path.
fn group_version_path(gvr: &Gvr) -> Result<String, String> {
    let version = segment(&gvr.version)?;
    Ok(if gvr.group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{}/{version}", segment(&gvr.group)?)
    })
}

fn segment(text: &str) -> Result<String, String> {
    // An HTTP server resolves the segments `.` and `..`, so the path would name another resource.
    if text.is_empty() || text == "." || text == ".." {
        return Err(format!("{text:?} cannot be part of a resource's path"));
    }
    Ok(escaped(text))
}

/// Escapes a text for a path segment or a query value.
pub(super) fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}

/// Returns the path of a resource.
fn path(target: &Gvr, namespace: Option<&str>) -> Result<String, String> {
    let mut path = group_version_path(target)?;
    if let Some(namespace) = namespace {
        path.push_str("/namespaces/");
        path.push_str(&segment(namespace)?);
    }
    Ok(format!("{path}/{}", segment(&target.resource)?))
}

/// Requests the objects of `source`. `query` selects a list or a watch. `selection` is a label
/// selector. If `selection` is `None`, the request is for all objects.
pub(super) async fn objects(
    client: &kube::Client,
    source: &Source,
    selection: Option<&str>,
    query: &str,
) -> Result<Body, Refusal> {
    let path = path(&source.target, source.namespace.as_deref())
        .map_err(|message| Refusal::Lost(GapReason::Refused { code: 404, message }, None))?;
    let selection = selection.map(|selection| format!("&labelSelector={}", escaped(selection)));
    let uri = format!("{path}?{query}{}", selection.unwrap_or_default());
    Ok(send(client, &uri, JSON).await?.into_body())
}

/// Requests the metadata of the object that currently has the name of `object`. Returns its UID, or
/// `None` if the metadata contains no UID.
pub(super) async fn uid(
    client: &kube::Client,
    target: &Gvr,
    object: ObjectNames<'_>,
) -> Result<Option<String>, Refusal> {
    let path = path(target, object.namespace).and_then(|path| {
        let name = segment(object.name)?;
        Ok(format!("{path}/{name}"))
    });
    let path = path.map_err(Refusal::unreachable)?;
    let answer = send(client, &path, METADATA).await?;
    let object: PartialObjectMeta = serde_json::from_slice(&whole(answer).await?)
        .map_err(|error| Refusal::unreachable(error.to_string()))?;
    Ok(object.metadata.uid)
}

/// Requests an answer of the media type `accept` and of at most [`MAX_ANSWER`] bytes.
pub(super) async fn read(
    client: &kube::Client,
    path: &str,
    accept: &str,
) -> Result<Bytes, Refusal> {
    whole(send(client, path, accept).await?).await
}

async fn whole(answer: Response<Body>) -> Result<Bytes, Refusal> {
    let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
    body.map(http_body_util::Collected::to_bytes)
        .map_err(|error| {
            Refusal::unreachable(if error.is::<LengthLimitError>() {
                format!("an answer of more than {MAX_ANSWER} bytes")
            } else {
                chain(error.as_ref())
            })
        })
}

/// Sends a GET request for an uncompressed answer. Any answer other than 200 is an error.
async fn send(client: &kube::Client, uri: &str, accept: &str) -> Result<Response<Body>, Refusal> {
    let request = Request::get(uri)
        .header(header::ACCEPT, accept)
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Body::empty())
        .map_err(|error| Refusal::unreachable(error.to_string()))?;
    let response = client.send(request).await.map_err(|error| {
        Refusal::unreachable(match error {
            // The text of a connection error is used without kube's prefix `ServiceError`.
            kube::Error::Service(error) => chain(error.as_ref()),
            error => chain(&error),
        })
    })?;
    if response.status() == StatusCode::OK {
        return Ok(response);
    }
    let code = response.status();
    let retry_after = response
        .headers()
        .get(header::RETRY_AFTER)
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .map(|seconds| Duration::from_secs(seconds).min(MAX_RETRY_AFTER));
    let body = Limited::new(response.into_body(), MAX_ERROR)
        .collect()
        .await;
    let body = body
        .map(http_body_util::Collected::to_bytes)
        .unwrap_or_default();
    let status = serde_json::from_slice::<Status>(&body).unwrap_or_else(|_| Status {
        message: String::from_utf8_lossy(&body).trim().to_owned(),
        ..Status::default()
    });
    Err(refusal(code.as_u16(), &status, retry_after))
}

/// Interprets an HTTP status code, or the Status in an ERROR event.
///
/// A message may quote an object. Examples are the message of a conversion webhook, and the message
/// about a value in etcd that cannot be decrypted. Users who may not read the object can see the
/// result. So the text of the result depends on the HTTP status code:
///
/// - 401, 403, 404, 429, 503 and 504: the message. The kube-apiserver answers with these codes
///   before it reads an object.
/// - All other codes, and any code without a message: the standard text of the code. The message is
///   only logged, at the debug level.
pub(super) fn refusal(code: u16, status: &Status, retry_after: Option<Duration>) -> Refusal {
    if code == 410 || is_expired(status) {
        return Refusal::Expired;
    }
    let said: String = status.message.chars().take(MAX_MESSAGE).collect();
    let message = if matches!(code, 401 | 403 | 404 | 429 | 503 | 504) && !said.is_empty() {
        said
    } else {
        let reason = &status.reason;
        tracing::debug!(code, reason, said, "the kube-apiserver refused a request");
        let code = StatusCode::from_u16(code).ok();
        let standard = code.and_then(|code| code.canonical_reason());
        standard.unwrap_or("no reason given").to_owned()
    };
    if matches!(code, 400 | 422) {
        return Refusal::Invalid(message);
    }
    Refusal::Lost(GapReason::Refused { code, message }, retry_after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_cannot_change_the_path() {
        for (group, namespace, expected) in [
            ("", None, Some("/api/v1/things")),
            ("a.b", Some("ns"), Some("/apis/a.b/v1/namespaces/ns/things")),
            (
                "a/../b?x#y",
                None,
                Some("/apis/a%2F..%2Fb%3Fx%23y/v1/things"),
            ),
            ("a", Some(""), None),
            ("a", Some("."), None),
            ("..", None, None),
        ] {
            let target = Gvr {
                group: group.into(),
                version: "v1".into(),
                resource: "things".into(),
            };
            let found = path(&target, namespace);
            assert_eq!(found.ok().as_deref(), expected, "{group} {namespace:?}");
        }
    }

    #[test]
    fn an_error_message_that_may_quote_an_object_is_dropped() {
        let status = |reason: &str| Status {
            reason: reason.into(),
            message: "conversion webhook failed: invalid value: zqx".into(),
            ..Status::default()
        };
        for (code, reason, want) in [
            (500, "zqx", "refused with 500: Internal Server Error"),
            (507, "", "refused with 507: Insufficient Storage"),
        ] {
            let Refusal::Lost(lost, _) = refusal(code, &status(reason), None) else {
                panic!("{code} is a gap");
            };
            assert_eq!(lost.to_string(), want);
        }
        for code in [400, 422] {
            let refused = format!("{:?}", refusal(code, &status("Invalid"), None));
            assert!(!refused.contains("zqx"), "{refused}");
        }
    }
}
