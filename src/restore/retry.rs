//! How long a list that fails is retried. Enters: each failure. Leaves: a pause, or the
//! failure if another attempt is of no use.

use http::StatusCode;
use std::time::Duration;
use tokio::time::Instant;

/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// How long refusals in a row are retried: a kube-apiserver that has just started refuses
/// every client until it has read the RBAC objects. Persistence waits as long.
const REFUSED: Duration = Duration::from_secs(10);

/// Why a list was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ListFailure {
    /// The next attempt may succeed.
    #[error("{0}")]
    Temporary(String),
    /// The client has no right to list.
    #[error("{0}")]
    Refused(String),
    /// The continue token has expired: the list is to be read from its start.
    #[error("{0}")]
    Expired(String),
    /// No attempt will succeed.
    #[error("{0}")]
    Permanent(String),
}

impl ListFailure {
    /// What a status other than 2xx means.
    pub(super) fn of_status(status: StatusCode) -> Self {
        let why = format!("answered {status}");
        match status {
            StatusCode::TOO_MANY_REQUESTS => Self::Temporary(why),
            status if status.is_server_error() => Self::Temporary(why),
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Self::Refused(why),
            StatusCode::GONE => Self::Expired(why),
            _ => Self::Permanent(why),
        }
    }
}

/// The retries of one list.
#[derive(Debug, Default)]
pub(super) struct Retry {
    /// Since when all answers were refusals.
    refused: Option<Instant>,
}

impl Retry {
    /// Records an answer.
    pub(super) fn answered(&mut self) {
        self.refused = None;
    }

    /// Waits until the next attempt. Returns the failure if there is to be none.
    pub(super) async fn wait(&mut self, failure: ListFailure) -> Result<(), ListFailure> {
        match &failure {
            ListFailure::Temporary(_) | ListFailure::Expired(_) => self.refused = None,
            ListFailure::Refused(_) => {
                let since = *self.refused.get_or_insert_with(Instant::now);
                if since.elapsed() >= REFUSED {
                    return Err(failure);
                }
            }
            ListFailure::Permanent(_) => return Err(failure),
        }
        tracing::debug!(%failure, "the list is read again");
        tokio::time::sleep(PAUSE).await;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_that_may_pass_are_retried() {
        let of_code = |code| ListFailure::of_status(StatusCode::from_u16(code).unwrap());
        for code in [429, 500, 503] {
            let failure = of_code(code);
            assert!(matches!(failure, ListFailure::Temporary(_)), "{failure:?}");
        }
        for code in [401, 403] {
            let failure = of_code(code);
            assert!(matches!(failure, ListFailure::Refused(_)), "{failure:?}");
        }
        assert!(matches!(of_code(410), ListFailure::Expired(_)));
        for code in [400, 404] {
            let failure = of_code(code);
            assert!(matches!(failure, ListFailure::Permanent(_)), "{failure:?}");
        }
    }
}
