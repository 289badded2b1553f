//! Classifies the failures of requests for custom resources. The class of a failure decides how the
//! leader retries the request, and how the leader reports the failure.
//!
//! A failure appears in the log and in a condition of the `APIService`. A user who can read the
//! condition may have no right to read the custom resource. So a failure never contains the
//! kube-apiserver's own message, which quotes names and values of objects.

use ifo_client::error_text::chain;
use ifo_observe::GapReason;
use kube::core::Status;
use std::collections::BTreeSet;
use std::time::Duration;

/// The time to wait after an answer 429 that names no time. client-go waits for the same time after
/// a network error.
const DEFAULT_RETRY_AFTER: Duration = Duration::from_secs(1);

/// The largest number of fields that a failure names.
const MAX_FIELDS: usize = 5;

/// The reason why a request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreFailure {
    /// The kube-apiserver does not serve the custom resources, because their CRD is missing.
    #[error("the CRD is missing")]
    CrdMissing,
    /// The kube-apiserver does not accept the credentials of this server, or the RBAC permission
    /// for the request is missing. Or an admission plugin refused the request.
    #[error("forbidden: {0}")]
    Forbidden(String),
    /// The stored object was deleted, or does not have the state that the request names.
    #[error("conflict")]
    Conflict,
    /// The kube-apiserver refuses the content of the request. The same request would fail again.
    #[error("refused: {0}")]
    Invalid(String),
    /// The kube-apiserver is overloaded. The duration is the time after which this server may send
    /// the request again.
    #[error("too many requests, retry in {} s", .0.as_secs())]
    Throttled(Duration),
    /// The kube-apiserver sent no complete answer, or answered with an unexpected code, such as
    /// 500. The request may have had an effect.
    #[error("{0}")]
    Unreachable(String),
}

impl StoreFailure {
    /// Returns the value of the metrics label `reason`.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::CrdMissing => "missing",
            Self::Forbidden(_) => "forbidden",
            Self::Conflict => "conflict",
            Self::Invalid(_) => "invalid",
            Self::Throttled(_) => "throttled",
            Self::Unreachable(_) => "unreachable",
        }
    }

    /// Returns true if the failure may concern only this object, so that requests for other objects
    /// can succeed. This is also true for `Forbidden`, because an admission plugin can refuse a
    /// single object.
    pub(super) fn is_of_one_object(&self) -> bool {
        matches!(self, Self::Forbidden(_) | Self::Invalid(_) | Self::Conflict)
    }

    /// Classifies the interruption of a watch.
    pub(super) fn of_gap(reason: &GapReason) -> Self {
        match reason {
            GapReason::Refused { code, .. } => Self::of_status(&Status {
                code: *code,
                ..Status::default()
            }),
            other => Self::Unreachable(other.to_string()),
        }
    }

    /// Classifies an answer with an error code. Logs the beginning of the message only at the level
    /// debug, because the message can quote the object.
    fn of_status(status: &Status) -> Self {
        let message: String = status.message.chars().take(500).collect();
        tracing::debug!(
            code = status.code,
            message,
            "a request of persistence mode failed"
        );
        let details = status.details.as_ref();
        let causes = details.map_or(&[][..], |details| &details.causes);
        // A write names the uid of the object. If the object was deleted, and another object with
        // the same name was created, the kube-apiserver refuses the field `metadata.uid`.
        if causes.iter().any(|cause| cause.field == "metadata.uid") {
            return Self::Conflict;
        }
        let fields: BTreeSet<&str> = causes.iter().filter_map(|it| field(&it.field)).collect();
        let fields: Vec<&str> = fields.into_iter().take(MAX_FIELDS).collect();
        let about = if fields.is_empty() { "" } else { ", about " };
        let code = status.code;
        let why = format!(
            "the kube-apiserver answers {code}{about}{}",
            fields.join(", ")
        );
        match code {
            // While the CRD is being deleted, the kube-apiserver answers creations with 405.
            404 | 405 => Self::CrdMissing,
            401 | 403 => Self::Forbidden(why),
            409 => Self::Conflict,
            429 => {
                let seconds = details.map_or(0, |details| details.retry_after_seconds);
                let after = Duration::from_secs(seconds.into());
                Self::Throttled(after.max(DEFAULT_RETRY_AFTER))
            }
            400 | 413 | 415 | 422 => Self::Invalid(why),
            _ => Self::Unreachable(why),
        }
    }
}

impl From<kube::Error> for StoreFailure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => Self::of_status(&status),
            error => Self::Unreachable(chain(&error)),
        }
    }
}

/// Returns the path of a field of our custom resource. `field` is the value of
/// `details.causes[].field` in an answer.
///
/// The path is cut at the first bracket, because brackets can contain the key of a label, and this
/// key can be confidential. Returns None if the text is not a path, because a webhook can write a
/// sentence into `field`.
fn field(field: &str) -> Option<&str> {
    let path = field.split('[').next().unwrap_or_default();
    let root = path.split('.').next().unwrap_or_default();
    let is_path = path.chars().all(|c| c.is_ascii_alphabetic() || c == '.');
    (is_path && matches!(root, "metadata" | "spec" | "status")).then_some(path)
}
