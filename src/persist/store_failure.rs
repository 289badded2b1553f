//! Classifies the failures of requests for custom resources. The class of a failure decides how the
//! leader retries the request, and how the leader reports the failure.

use super::client::read;
use super::redacted_failure::RedactedFailure;
use http::{Response, StatusCode, header};
use kube::client::Body;
use kube::core::Status;
use std::time::Duration;

/// The time to wait after an answer 429, if its header `Retry-After` is missing or is not a number
/// of seconds. client-go waits for the same time after a network error.
pub(super) const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFailure {
    /// The kube-apiserver does not serve the custom resources, because their CRD is missing.
    #[error("the CRD is missing")]
    CrdMissing,
    /// This server lacks the RBAC permission for the request, or an admission plugin refused the
    /// request.
    #[error("forbidden: {0}")]
    Forbidden(RedactedFailure),
    /// The object was deleted. Another client may have created a new object with the same name.
    #[error("conflict: the object was deleted")]
    ObjectDeleted,
    /// The object does not have the state that the request requires, or the continue token of a
    /// list has expired.
    #[error("conflict: {0}")]
    Conflict(RedactedFailure),
    /// The kube-apiserver refuses the content of the request, and would refuse the same request
    /// again. This variant is also used for other failures that a retry does not mend, such as an
    /// answer that cannot be decoded.
    #[error("refused: {0}")]
    Invalid(RedactedFailure),
    /// The kube-apiserver is overloaded and has not processed the request. The duration is the time
    /// after which this server may send the request again.
    #[error("too many requests, retry in {} s", .0.as_secs())]
    Throttled(Duration),
    /// The kube-apiserver sent no complete answer, or answered with an unexpected code, such as
    /// 500. The request may have had an effect. The duration is the value of the header
    /// `Retry-After`. None if there is no answer, or if the answer lacks this header.
    #[error("{0}")]
    Unreachable(RedactedFailure, Option<Duration>),
}

impl StoreFailure {
    /// Returns the value of the metrics label `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::CrdMissing => "missing",
            Self::Forbidden(_) => "forbidden",
            Self::ObjectDeleted | Self::Conflict(_) => "conflict",
            Self::Invalid(_) => "invalid",
            Self::Throttled(_) => "throttled",
            Self::Unreachable(..) => "unreachable",
        }
    }

    /// Returns true if the kube-apiserver works, but refuses this request.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Forbidden(_) | Self::Invalid(_))
    }

    /// Returns the failure of a request without a complete answer.
    pub(super) fn unanswered(error: &dyn std::error::Error) -> Self {
        Self::Unreachable(RedactedFailure::of_connection(error), None)
    }

    /// Classifies an answer with an error code. Logs the first 500 characters of the answer's
    /// message. The log level is only debug, because the message can quote the object.
    pub(super) async fn of_answer(answer: Response<Body>) -> Self {
        let code = answer.status();
        // This code reads only a number of seconds. HTTP also allows a date, which a
        // kube-apiserver never sends.
        let retry_after = answer.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        let body = match read(answer).await {
            Ok(body) => body,
            Err(failure) => return failure,
        };
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let message: String = status.message.chars().take(500).collect();
        tracing::debug!(%code, message, "the kube-apiserver answered a request of persistence mode with an error");
        // A 404 has two meanings. If the answer names an object, this object does not exist. If the
        // answer names no object, the CRD does not exist.
        let names_object = status
            .details
            .as_ref()
            .is_some_and(|it| !it.name.is_empty());
        let causes = status
            .details
            .map(|details| details.causes)
            .unwrap_or_default();
        // A patch contains the uid of the object. If a new object now has the name of the deleted
        // object, the uids differ, and the kube-apiserver refuses the field `metadata.uid`.
        let is_other_object = causes.iter().any(|cause| cause.field == "metadata.uid");
        let why = RedactedFailure::of_answer(code, causes.iter().map(|cause| &*cause.field));
        match code {
            StatusCode::NOT_FOUND if names_object => Self::ObjectDeleted,
            StatusCode::UNPROCESSABLE_ENTITY if is_other_object => Self::ObjectDeleted,
            // While the CRD is being deleted, the kube-apiserver answers creations with 405.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Self::CrdMissing,
            StatusCode::FORBIDDEN => Self::Forbidden(why),
            // The kube-apiserver answers 410 if the continue token has expired.
            StatusCode::CONFLICT | StatusCode::GONE => Self::Conflict(why),
            StatusCode::TOO_MANY_REQUESTS => {
                Self::Throttled(retry_after.unwrap_or(DEFAULT_RETRY_AFTER))
            }
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => Self::Invalid(why),
            _ => Self::Unreachable(why, retry_after),
        }
    }
}
