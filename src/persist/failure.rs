//! Classifies the failures of requests for custom resources.
//!
//! Input: an answer, or its absence. Output: a [`StoreFailure`], which decides the next step.

use super::failure_text::FailureText;
use super::store::read;
use http::{Response, StatusCode, header};
use kube::client::Body;
use kube::core::Status;
use std::time::Duration;

/// Pause after a 429 without the header `Retry-After`, as in client-go.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFailure {
    /// The resource is not served.
    #[error("the CRD is missing")]
    Missing,
    /// The server lacks the right, or an admission plugin refused the request.
    #[error("forbidden: {0}")]
    Forbidden(FailureText),
    /// The object does not exist, or another object has its name now.
    #[error("conflict: the object was deleted")]
    Gone,
    /// The object or the list is not in the state that the request is conditional on.
    #[error("conflict: {0}")]
    Conflict(FailureText),
    /// The kube-apiserver refuses this request, and will refuse it again.
    #[error("refused: {0}")]
    Invalid(FailureText),
    /// There are too many requests. The request had no effect.
    #[error("too many requests, retry in {} s", .0.as_secs())]
    Throttled(Duration),
    /// There is no answer, or an answer of the class 5xx. The request may have had an effect.
    #[error("{0}")]
    Unreachable(FailureText, Option<Duration>),
}

impl StoreFailure {
    /// Returns the value of the metrics label `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Forbidden(_) => "forbidden",
            Self::Gone | Self::Conflict(_) => "conflict",
            Self::Invalid(_) => "invalid",
            Self::Throttled(_) => "throttled",
            Self::Unreachable(..) => "unreachable",
        }
    }

    /// Returns true if the kube-apiserver is reachable and does not allow this request.
    pub(super) fn is_refusal(&self) -> bool {
        matches!(self, Self::Forbidden(_) | Self::Invalid(_))
    }

    /// There is no answer.
    pub(super) fn lost(error: &dyn std::error::Error) -> Self {
        Self::Unreachable(FailureText::of_connection(error), None)
    }

    /// Classifies an answer that is not a success. Its message quotes the object, so the
    /// message is logged at the debug level only.
    pub(super) async fn of(answer: Response<Body>) -> Self {
        let code = answer.status();
        // In seconds: Kubernetes does not use the other form of this header, a date.
        let retry_after = answer.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let retry_after = retry_after.map(Duration::from_secs);
        let body = match read(answer).await {
            Ok(body) => body,
            Err(lost) => return lost,
        };
        let status: Status = serde_json::from_slice(&body).unwrap_or_default();
        let message: String = status.message.chars().take(500).collect();
        tracing::debug!(%code, message, "an answer to persistence");
        // If the CRD is missing, the answer 404 names no object.
        let names_object = status
            .details
            .as_ref()
            .is_some_and(|it| !it.name.is_empty());
        let causes = status
            .details
            .map(|details| details.causes)
            .unwrap_or_default();
        let is_other = causes.iter().any(|cause| cause.field == "metadata.uid");
        let why = FailureText::of_answer(code, causes.iter().map(|cause| &*cause.field));
        match code {
            StatusCode::NOT_FOUND if names_object => Self::Gone,
            StatusCode::UNPROCESSABLE_ENTITY if is_other => Self::Gone,
            // While a CRD is being deleted, creations are answered with 405.
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Self::Missing,
            StatusCode::FORBIDDEN => Self::Forbidden(why),
            // 410 means that the continue token has expired.
            StatusCode::CONFLICT | StatusCode::GONE => Self::Conflict(why),
            StatusCode::TOO_MANY_REQUESTS => Self::Throttled(retry_after.unwrap_or(RETRY_AFTER)),
            StatusCode::BAD_REQUEST
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY => Self::Invalid(why),
            _ => Self::Unreachable(why, retry_after),
        }
    }
}
