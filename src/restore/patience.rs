//! How long somebody who does not answer is asked again. Enters: each failure. Leaves: a
//! pause, or the failure, once it is no use to go on.

use super::Failure;
use std::time::Duration;
use tokio::time::Instant;

/// Pause before a source is asked again that may answer later.
const AGAIN: Duration = Duration::from_secs(1);

/// How long refusals in a row are taken for those of a kube-apiserver that has just
/// started: as long as persistence's queue believes that.
const REFUSED: Duration = Duration::from_secs(10);

/// See above.
#[derive(Debug)]
pub(super) struct Patience {
    end: Instant,
    /// Since when there were only refusals.
    refused: Option<Instant>,
}

impl Patience {
    /// It ends after this time.
    pub(super) fn new(within: Duration) -> Self {
        Self {
            end: Instant::now() + within,
            refused: None,
        }
    }

    /// The source has answered.
    pub(super) fn answered(&mut self) {
        self.refused = None;
    }

    /// Waits, if asking again may help.
    pub(super) async fn bear(&mut self, name: &str, failure: Failure) -> Result<(), Failure> {
        let again = Instant::now() + AGAIN;
        let until = match &failure {
            Failure::Passing(_) | Failure::Expired(_) => {
                self.refused = None;
                self.end
            }
            Failure::Refused(_) => {
                let since = *self.refused.get_or_insert_with(Instant::now);
                self.end.min(since + REFUSED)
            }
            Failure::Lasting(_) => return Err(failure),
        };
        if again >= until {
            return Err(failure);
        }
        tracing::debug!(source = name, why = %failure, "asking again");
        tokio::time::sleep_until(again).await;
        Ok(())
    }
}
