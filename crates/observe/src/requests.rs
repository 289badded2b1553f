//! Describes the requests of feeds, and interprets failed requests.

use super::{GapReason, InvalidData};
use http::StatusCode;
use ifo_api::Gvr;
use ifo_client::error_text::chain;
use kube::core::{ApiResource, GroupVersionKind, Status};

/// Maximum number of characters of an error message in conditions and logs. A longer message is
/// cut off.
const MAX_MESSAGE: usize = 512;

/// The reason why a request, a watch or a list has failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The feed must read all objects again, for one of these reasons:
    ///
    /// - The kube-apiserver no longer has the changes since the requested resourceVersion.
    /// - The continue token is too old.
    /// - The feed may have missed changes.
    Expired,
    /// Any other failure.
    Lost(GapReason),
}

impl From<InvalidData> for Failure {
    fn from(why: InvalidData) -> Self {
        Self::Lost(GapReason::Garbled(why))
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        if status.code == 410 || matches!(&*status.reason, "Expired" | "Gone") {
            return Self::Expired;
        }
        Self::Lost(refusal(&status))
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => (*status).into(),
            // The text of a connection error is used without kube's prefix `ServiceError`.
            kube::Error::Service(error) => unreachable(chain(error.as_ref())),
            error => unreachable(chain(&error)),
        }
    }
}

/// Interprets the Status in an answer or in an ERROR event.
///
/// A message may quote an object. Examples are the message of a conversion webhook, and the message
/// about a value in etcd that cannot be decrypted. Users who may not read the object can see the
/// result. So the text of the result depends on the HTTP status code:
///
/// - 401, 403, 404, 429, 503 and 504: the message. The kube-apiserver answers with these codes
///   before it reads an object.
/// - All other codes, and any code without a message: the standard text of the code. The message is
///   only logged, at the debug level.
fn refusal(status: &Status) -> GapReason {
    let Status { code, reason, .. } = status;
    let said: String = status.message.chars().take(MAX_MESSAGE).collect();
    let message = if matches!(code, 401 | 403 | 404 | 429 | 503 | 504) && !said.is_empty() {
        said
    } else {
        tracing::debug!(code, reason, said, "the kube-apiserver refused a request");
        let standard = StatusCode::from_u16(*code).ok();
        let standard = standard.and_then(|code| code.canonical_reason());
        standard.unwrap_or("no reason given").to_owned()
    };
    let code = *code;
    GapReason::Refused { code, message }
}

/// Returns the failure of a request without an answer, or with an incomplete answer.
pub(super) fn unreachable(why: impl Into<String>) -> Failure {
    Failure::Lost(GapReason::Unreachable(why.into()))
}

/// Returns kube's description of a target.
pub(super) fn resource(target: &Gvr) -> ApiResource {
    // The kind stays empty, because the path of a request does not contain it.
    let kind = GroupVersionKind::gvk(&target.group, &target.version, "");
    ApiResource::from_gvk_with_plural(&kind, &target.resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_message_that_may_quote_an_object_is_dropped() {
        for (code, reason, want) in [
            (400, "Invalid", "refused with 400: Bad Request"),
            (500, "zqx", "refused with 500: Internal Server Error"),
            (507, "", "refused with 507: Insufficient Storage"),
        ] {
            let message = "conversion webhook failed: invalid value: zqx";
            let status = Status::failure(message, reason).with_code(code);
            let Failure::Lost(lost) = Failure::from(status) else {
                panic!("{code} is a gap");
            };
            assert_eq!(lost.to_string(), want);
        }
    }
}
