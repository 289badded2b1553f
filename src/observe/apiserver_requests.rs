//! Builds the requests of feeds and of discovery, and interprets answers other than 200. A feed
//! watches one [`Source`]: a resource, in all namespaces or in one namespace.

use super::{GapReason, ObjectNames, watch_event::ApiStatus};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use ifo_api::{Gvr, Source};
use ifo_client::error_text::chain;
use kube::client::Body;
use kube::core::PartialObjectMeta;
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

/// Maximum size in bytes of an object's metadata. If the metadata is larger, [`uid`] fails.
/// Annotations may have 256 KiB.
const MAX_METADATA: usize = 1 << 20;

/// Maximum number of characters of an error message in conditions and logs. A longer message is
/// cut off.
const MAX_MESSAGE: usize = 512;

/// Maximum delay after an answer with `Retry-After`. A longer `Retry-After` counts as this delay.
const MAX_RETRY_AFTER: Duration = Duration::from_mins(1);

/// A request for the objects of a source.
#[derive(Clone, Copy, Debug)]
pub(super) enum WatchOrPage<'a> {
    /// A watch that begins with all existing objects. A bookmark follows the last existing object.
    /// The kube-apiserver ends the watch after `seconds`.
    WatchList { seconds: u64 },
    /// One page of a list, with at most `limit` objects. `token` is the continue token in the
    /// previous page. `None` for the first page.
    Page { limit: u32, token: Option<&'a str> },
    /// A watch of the changes after the resourceVersion `version`. The kube-apiserver ends the
    /// watch after `seconds`.
    Watch { version: &'a str, seconds: u64 },
}

/// The reason why a request has not returned the requested data.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// 410: the resourceVersion or continue token is too old.
    Expired,
    /// 400 or 422: the kube-apiserver does not understand the request. The value is the reason in
    /// the Status. Without a known reason, the value is the standard text of the code.
    Invalid(String),
    /// Any other failure, with the delay that the kube-apiserver requests (`Retry-After`). The
    /// delay is `None` if the kube-apiserver requests no delay.
    Lost(GapReason, Option<Duration>),
}

/// Returns the path of a group-version: `/apis/group/version`, or `/api/version` for the core
/// group. Fails with a message if the group or the version cannot be part of a path.
pub(super) fn group_version_path(gvr: &Gvr) -> Result<String, String> {
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
    Ok(utf8_percent_encode(text, ESCAPED).to_string())
}

/// Builds the request `ask` for `source`. `selection` is a label selector. If `selection` is
/// `None`, the request is for all objects.
pub(super) fn build(
    source: &Source,
    selection: Option<&str>,
    ask: WatchOrPage<'_>,
) -> Result<Request<Body>, Refusal> {
    let path =
        path(source).map_err(|message| Refusal::Lost(GapReason::NotFound { message }, None))?;
    let query = match ask {
        WatchOrPage::WatchList { seconds } => format!(
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds={seconds}"
        ),
        WatchOrPage::Page { limit, token: None } => format!("limit={limit}"),
        WatchOrPage::Page {
            limit,
            token: Some(token),
        } => {
            format!(
                "limit={limit}&continue={}",
                utf8_percent_encode(token, ESCAPED)
            )
        }
        WatchOrPage::Watch { version, seconds } => format!(
            "watch=1&resourceVersion={}&allowWatchBookmarks=true&timeoutSeconds={seconds}",
            utf8_percent_encode(version, ESCAPED)
        ),
    };
    let selection = selection.map_or_else(String::new, |selection| {
        format!("&labelSelector={}", utf8_percent_encode(selection, ESCAPED))
    });
    get(&format!("{path}?{query}{selection}"))
        .map_err(|message| Refusal::Lost(GapReason::NotFound { message }, None))
}

/// Requests the metadata of the object that currently has the name of `object`. Returns its UID, or
/// `None` if the metadata contains no UID.
pub(super) async fn uid(
    client: &kube::Client,
    target: &Gvr,
    object: ObjectNames<'_>,
) -> Result<Option<String>, Refusal> {
    let path = (|| {
        let mut path = group_version_path(target)?;
        if let Some(namespace) = object.namespace {
            path.push_str("/namespaces/");
            path.push_str(&segment(namespace)?);
        }
        let name = segment(object.name)?;
        Ok::<_, String>(format!("{path}/{}/{name}", segment(&target.resource)?))
    })();
    let unreachable = |error: String| Refusal::Lost(GapReason::Unreachable(error), None);
    let request = Request::get(path.map_err(unreachable)?)
        .header(
            header::ACCEPT,
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1",
        )
        .body(Body::empty())
        .map_err(|error| unreachable(error.to_string()))?;
    let body = send(client, request).await?.into_body();
    let body = read(body, MAX_METADATA)
        .await
        .map_err(|_| unreachable("the metadata cannot be read".to_owned()))?;
    let object: PartialObjectMeta =
        serde_json::from_slice(&body).map_err(|error| unreachable(error.to_string()))?;
    Ok(object.metadata.uid)
}

fn path(source: &Source) -> Result<String, String> {
    let mut path = group_version_path(&source.target)?;
    if let Some(namespace) = &source.namespace {
        path.push_str("/namespaces/");
        path.push_str(&segment(namespace)?);
    }
    path.push('/');
    path.push_str(&segment(&source.target.resource)?);
    Ok(path)
}

/// Builds a GET request for uncompressed JSON.
pub(super) fn get(uri: &str) -> Result<Request<Body>, String> {
    Request::get(uri)
        .header(header::ACCEPT, "application/json")
        .header(header::ACCEPT_ENCODING, "identity")
        .body(Body::empty())
        .map_err(|e| e.to_string())
}

/// Sends a request. Any answer other than 200 is an error.
pub(super) async fn send(
    client: &kube::Client,
    request: Request<Body>,
) -> Result<Response<Body>, Refusal> {
    let response = client.send(request).await.map_err(|error| {
        let why = match error {
            // The text of a connection error is used without kube's prefix `ServiceError`.
            kube::Error::Service(error) => chain(error.as_ref()),
            error => chain(&error),
        };
        Refusal::Lost(GapReason::Unreachable(why), None)
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
    let body = read(response.into_body(), MAX_ERROR)
        .await
        .unwrap_or_default();
    let status = serde_json::from_slice::<ApiStatus>(&body).unwrap_or_else(|_| ApiStatus {
        message: String::from_utf8_lossy(&body).trim().to_owned(),
        ..ApiStatus::default()
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
/// - All other codes, and any code without a message: the reason in the Status, or the standard
///   text of the code. The message is only logged, at the debug level.
pub(super) fn refusal(code: u16, status: &ApiStatus, retry_after: Option<Duration>) -> Refusal {
    let canonical = || {
        let code = StatusCode::from_u16(code).ok();
        code.and_then(|code| code.canonical_reason())
            .unwrap_or("no reason given")
    };
    if code == 410 || status.is_expired() {
        return Refusal::Expired;
    }
    let said: String = status.message.chars().take(MAX_MESSAGE).collect();
    let message = if matches!(code, 401 | 403 | 404 | 429 | 503 | 504) && !said.is_empty() {
        said
    } else {
        tracing::debug!(
            code,
            reason = status.reason,
            said,
            "the kube-apiserver refused a request"
        );
        let reason = Some(&*status.reason).filter(|reason| is_reason(reason));
        reason.unwrap_or_else(canonical).to_owned()
    };
    let lost = match code {
        400 | 422 => return Refusal::Invalid(message),
        401 => GapReason::Unauthorized { message },
        403 => GapReason::Forbidden { message },
        404 => GapReason::NotFound { message },
        code => GapReason::Refused { code, message },
    };
    Refusal::Lost(lost, retry_after)
}

/// Returns true if `reason` is one of these reasons of Kubernetes (`metav1.StatusReason`). Any
/// other text may quote an object.
fn is_reason(reason: &str) -> bool {
    [
        "BadRequest",
        "Conflict",
        "InternalError",
        "Invalid",
        "MethodNotAllowed",
        "NotAcceptable",
        "RequestEntityTooLarge",
        "ServerTimeout",
        "ServiceUnavailable",
        "StorageReadError",
        "StoreReadError",
        "Timeout",
        "TooManyRequests",
        "UnsupportedMediaType",
    ]
    .contains(&reason)
}

/// Reads a whole body. If the body has more than `max` bytes, returns [`ReadError::TooLarge`].
pub(super) async fn read(body: Body, max: usize) -> Result<Bytes, ReadError> {
    match Limited::new(body, max).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(ReadError::TooLarge),
        Err(error) => Err(ReadError::Broken(chain(error.as_ref()))),
    }
}

/// The reason why a body cannot be read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ReadError {
    /// The body is too long.
    TooLarge,
    /// The connection broke.
    Broken(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(group: &str, namespace: Option<&str>) -> Source {
        Source {
            target: std::sync::Arc::new(Gvr {
                group: group.into(),
                version: "v1".into(),
                resource: "things".into(),
            }),
            namespace: namespace.map(Into::into),
        }
    }

    #[test]
    fn paths_name_group_namespace_and_resource() {
        assert_eq!(path(&source("", None)).unwrap(), "/api/v1/things");
        assert_eq!(
            path(&source("a.b", Some("ns"))).unwrap(),
            "/apis/a.b/v1/namespaces/ns/things"
        );
    }

    #[test]
    fn a_selection_is_part_of_every_request() {
        for ask in [
            WatchOrPage::WatchList { seconds: 1 },
            WatchOrPage::Page {
                limit: 1,
                token: None,
            },
            WatchOrPage::Watch {
                version: "1",
                seconds: 1,
            },
        ] {
            let request = build(&source("", None), Some("tier in (a,b),!old"), ask).unwrap();
            let query = request.uri().query().unwrap();
            assert!(
                query.ends_with("&labelSelector=tier%20in%20%28a%2Cb%29%2C%21old"),
                "{query}"
            );
        }
    }

    #[test]
    fn a_hostile_name_cannot_change_the_path() {
        assert_eq!(
            path(&source("a/../b?x#y", None)).unwrap(),
            "/apis/a%2F..%2Fb%3Fx%23y/v1/things"
        );
        for name in ["", ".", ".."] {
            assert!(path(&source("a", Some(name))).is_err(), "{name}");
            assert!(
                build(
                    &source("a", Some(name)),
                    None,
                    WatchOrPage::Page {
                        limit: 1,
                        token: None
                    }
                )
                .is_err()
            );
        }
    }

    #[test]
    fn an_error_message_that_may_quote_an_object_is_dropped() {
        let status = |reason: &str| ApiStatus {
            reason: reason.into(),
            message: "conversion webhook failed: invalid value: zqx".into(),
            code: 0,
        };
        for (code, reason, want) in [
            (500, "InternalError", "refused with 500: InternalError"),
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

    #[test]
    fn status_codes_are_mapped_as_in_kubernetes() {
        let status = |reason: &str| ApiStatus {
            reason: reason.into(),
            message: "why".into(),
            code: 0,
        };
        assert_eq!(refusal(410, &status(""), None), Refusal::Expired);
        assert_eq!(refusal(500, &status("Expired"), None), Refusal::Expired);
        assert_eq!(
            refusal(422, &status("Invalid"), None),
            Refusal::Invalid("Invalid".into())
        );
        assert_eq!(
            refusal(403, &status(""), None),
            Refusal::Lost(
                GapReason::Forbidden {
                    message: "why".into()
                },
                None
            )
        );
        let refused = GapReason::Refused {
            code: 503,
            message: "Service Unavailable".into(),
        };
        assert_eq!(
            refusal(503, &ApiStatus::default(), None),
            Refusal::Lost(refused, None)
        );
    }
}
