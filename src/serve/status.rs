//! Errors. Input: the failure. Output: a `v1` `Status` with the key order, reasons and details that
//! clients compare, or the plain text that Kubernetes' servers send in a few places.

mod body;

use self::body::{StatusBody, StatusCause, StatusDetails, StatusMeta, escape_html, go_json};
use super::negotiate::Syntax;
use super::quoted::{Quoted, clip, together};
use super::respond::whole;
use crate::auth::{Attributes, User};
use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

/// Longest message in bytes. It has room for the longest name of an object several times.
const MAX_MESSAGE: usize = 2 << 10;

/// Longest name, group or kind in the details: twice the longest one of any object.
const MAX_DETAIL: usize = 512;

/// An error answer. It has at most 5 KB, or 20 KB if JSON escapes all of it. It is boxed, so that a
/// `Result` with it stays small.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{}", .0.message)]
pub struct ErrorStatus(Box<ErrorParts>);

#[derive(Debug, Clone)]
struct ErrorParts {
    /// HTTP status code, also in the body.
    code: StatusCode,
    message: String,
    details: Option<StatusDetails>,
    /// Token with which a paged list can continue after it has expired.
    resume: Option<String>,
}

/// An error in one of the list options.
#[derive(Debug, Clone)]
pub struct OptionProblem(StatusCause);

impl OptionProblem {
    /// `field` cannot be combined with the other options.
    pub fn forbidden(field: &'static str, why: &str) -> Self {
        Self(StatusCause {
            reason: "FieldValueForbidden",
            message: format!("Forbidden: {why}"),
            field,
        })
    }

    /// `value` is not supported for `field`.
    pub fn unsupported(field: &'static str, value: &str, supported: &str) -> Self {
        Self(StatusCause {
            reason: "FieldValueNotSupported",
            message: format!(
                "Unsupported value: {}: supported values: {supported}",
                go_json(value)
            ),
            field,
        })
    }
}

/// `plural.group`, or the plural in the core group, as messages name a resource.
fn qualified(plural: &str, group: &str) -> String {
    if group.is_empty() {
        plural.to_owned()
    } else {
        format!("{plural}.{group}")
    }
}

/// The machine-readable reason of a code, one of `metav1.StatusReason`. Empty if there is none.
/// Other servers have several reasons for 410 and 504. This server has one for each.
fn reason(code: StatusCode) -> &'static str {
    match code {
        StatusCode::BAD_REQUEST => "BadRequest",
        StatusCode::UNAUTHORIZED => "Unauthorized",
        StatusCode::FORBIDDEN => "Forbidden",
        StatusCode::NOT_FOUND => "NotFound",
        StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
        StatusCode::NOT_ACCEPTABLE => "NotAcceptable",
        StatusCode::GONE => "Expired",
        StatusCode::UNPROCESSABLE_ENTITY => "Invalid",
        StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
        StatusCode::GATEWAY_TIMEOUT => "Timeout",
        _ => "",
    }
}

impl ErrorStatus {
    fn new(code: StatusCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        clip(&mut message, MAX_MESSAGE);
        Self(Box::new(ErrorParts {
            code,
            message,
            details: None,
            resume: None,
        }))
    }

    fn with(mut self, mut details: StatusDetails) -> Self {
        let StatusDetails {
            name, group, kind, ..
        } = &mut details;
        for text in [name, group, kind] {
            clip(text, MAX_DETAIL);
        }
        for cause in &mut details.causes {
            clip(&mut cause.message, MAX_DETAIL);
        }
        self.0.details = Some(details);
        self
    }

    /// 400: the request is not valid.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// 401: the credentials are not valid.
    pub fn unauthorized() -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "Unauthorized")
    }

    /// 403: `user` is not allowed to do this. `reason` is that of the authorizer, or empty.
    pub fn forbidden(user: &User, asked: &Attributes, reason: &str) -> Self {
        let (mut message, details) = match asked {
            Attributes::NonResource { path, verb } => (
                format!(
                    "forbidden: User {} cannot {verb} path {}",
                    Quoted(&user.name),
                    Quoted(path)
                ),
                StatusDetails::default(),
            ),
            Attributes::Resource {
                verb,
                group,
                resource,
                subresource,
                namespace,
                name,
                ..
            } => {
                let quoted = if name.is_empty() {
                    String::new()
                } else {
                    format!(" {}", Quoted(name))
                };
                let slash = if subresource.is_empty() { "" } else { "/" };
                let place = if namespace.is_empty() {
                    "at the cluster scope".to_owned()
                } else {
                    format!("in the namespace {}", Quoted(namespace))
                };
                (
                    format!(
                        "{}{quoted} is forbidden: User {} cannot {verb} resource \
                         \"{resource}{slash}{subresource}\" in API group {} {place}",
                        qualified(resource, group),
                        Quoted(&user.name),
                        Quoted(group)
                    ),
                    StatusDetails::of(group, resource, name),
                )
            }
        };
        if !reason.is_empty() {
            message.push_str(": ");
            message.push_str(reason);
        }
        Self::new(StatusCode::FORBIDDEN, message).with(details)
    }

    /// 404: the object does not exist.
    pub fn no_object(group: &str, plural: &str, name: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            format!("{} {} not found", qualified(plural, group), Quoted(name)),
        )
        .with(StatusDetails::of(group, plural, name))
    }

    /// 404: the resource, subresource or version does not exist.
    pub fn no_resource() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "the server could not find the requested resource",
        )
        .with(StatusDetails::default())
    }

    /// 405 in the words of a CRD: `verb` is not supported on `plural.group`.
    pub fn not_supported(verb: &str, group: &str, plural: &str) -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            format!(
                "{verb} is not supported on resources of kind \"{}\"",
                qualified(plural, group)
            ),
        )
        .with(StatusDetails::of(group, plural, ""))
    }

    /// 405 for an HTTP method that is not a verb.
    pub fn method_not_allowed() -> Self {
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            "the server does not allow this method on the requested resource",
        )
        .with(StatusDetails::default())
    }

    /// 406: no accepted form is possible.
    pub fn not_acceptable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_ACCEPTABLE, message)
    }

    /// 410 for a list at a version that is no longer known.
    pub fn list_too_old() -> Self {
        Self::new(
            StatusCode::GONE,
            "The resourceVersion for the provided list is too old.",
        )
    }

    /// 410 for a continue token whose version is no longer known. `resume` continues at the newest
    /// version.
    pub fn continue_too_old(resume: String) -> Self {
        let mut failure = Self::new(
            StatusCode::GONE,
            "The provided continue parameter is too old to display a consistent list result. You \
             can start a new list without the continue parameter, or use the continue token in \
             this response to retrieve the remainder of the results. Continuing with the provided \
             token results in an inconsistent list - objects that were created, modified, or \
             deleted between the time the first chunk was returned and now may show up in the \
             list.",
        );
        failure.0.resume = Some(resume);
        failure
    }

    /// 410 in a watch: `asked` is older than the oldest known version.
    pub fn watch_too_old(asked: u64, oldest: u64) -> Self {
        // Upstream reports the last unknown version, one before the oldest known.
        let gone = oldest.saturating_sub(1);
        Self::new(
            StatusCode::GONE,
            format!("too old resource version: {asked} ({gone})"),
        )
    }

    /// 422: the list options, with all errors in them.
    pub fn options(problems: Vec<OptionProblem>) -> Self {
        let causes: Vec<StatusCause> = problems
            .into_iter()
            .map(|OptionProblem(cause)| cause)
            .collect();
        let told: Vec<String> = causes
            .iter()
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect();
        let told = together(&told);
        Self::new(
            StatusCode::UNPROCESSABLE_ENTITY,
            format!("ListOptions.meta.k8s.io \"\" is invalid: {told}"),
        )
        .with(StatusDetails {
            causes,
            ..StatusDetails::of("meta.k8s.io", "ListOptions", "")
        })
    }

    /// 429: no target has been read yet. Retry after a second.
    pub fn initializing() -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "storage is (re)initializing").with(
            StatusDetails {
                retry_after_seconds: 1,
                ..StatusDetails::default()
            },
        )
    }

    /// 421: another replica leads in the term of the request.
    pub fn another_term() -> Self {
        Self::new(
            StatusCode::MISDIRECTED_REQUEST,
            "this replica does not lead in the term that the request names",
        )
    }

    /// 504: version `asked` was not reached in time.
    pub fn too_large(asked: u64, current: u64) -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            format!("Timeout: Too large resource version: {asked}, current: {current}"),
        )
        .with(StatusDetails {
            causes: vec![StatusCause {
                reason: "ResourceVersionTooLarge",
                message: "Too large resource version".to_owned(),
                field: "",
            }],
            retry_after_seconds: 1,
            ..StatusDetails::default()
        })
    }

    /// 504: the time limit of the request is over.
    pub fn timeout() -> Self {
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            "Timeout: request did not complete within the allotted timeout",
        )
        .with(StatusDetails::default())
    }

    /// The `Status` as compact JSON, without an end of line.
    pub fn json(&self) -> Vec<u8> {
        let inner = &*self.0;
        let status = StatusBody {
            kind: "Status",
            api_version: "v1",
            metadata: StatusMeta {
                resume: inner.resume.as_deref(),
            },
            outcome: "Failure",
            message: &inner.message,
            reason: reason(inner.code),
            details: inner.details.as_ref(),
            code: inner.code.as_u16(),
        };
        let json = serde_json::to_vec(&status).expect("a Status has only string keys");
        escape_html(&json)
    }
}

impl IntoResponse for ErrorStatus {
    fn into_response(self) -> Response {
        self.response(Syntax::Compact)
    }
}

impl ErrorStatus {
    /// The answer in this syntax.
    pub fn response(self, syntax: Syntax) -> Response {
        let mut json = self.json();
        json.push(b'\n');
        let mut response = whole(json, syntax);
        *response.status_mut() = self.0.code;
        let headers = response.headers_mut();
        if self.0.code == StatusCode::FORBIDDEN {
            headers.insert(
                header::X_CONTENT_TYPE_OPTIONS,
                HeaderValue::from_static("nosniff"),
            );
        }
        let retry = self
            .0
            .details
            .map_or(0, |details| details.retry_after_seconds);
        if retry > 0 {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(retry));
        }
        response
    }
}
