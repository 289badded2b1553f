//! What was there before a restart, read from whoever kept it. Enters: pages of objects
//! from another replica, or from the custom resources of persistence mode. Leaves: the
//! operations in them, told to the tracker before anything else is.
//!
//! Promises: it ends, whoever does not answer; and however much is kept, no more than a
//! page of it is in memory at once. What cannot be had is detected anew.

mod list;
mod records;
mod replica;
#[cfg(test)]
mod tests;

pub use records::Records;
pub use replica::{Replica, Whereabouts};

use crate::api::live::{InFlightOperation, Phase};
use crate::index::Rv;
use crate::track::{MAX_RESTORED, Message};
use futures::future::BoxFuture;
use jiff::Timestamp;
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Pause before a source is asked again that may answer later.
const AGAIN: Duration = Duration::from_secs(1);

/// A part of what a source has.
#[derive(Debug, Default)]
pub struct Page {
    /// Operations; nothing in them is checked.
    pub operations: Vec<InFlightOperation>,
    /// The version of the list, if the source gives operations versions as we do.
    pub version: Option<Rv>,
    /// What asks for the next part, if there is one.
    pub next: Option<String>,
}

/// Why there is no page.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// It may be there the next time.
    #[error("{0}")]
    Passing(String),
    /// It will not.
    #[error("{0}")]
    Lasting(String),
}

/// Somebody who knows what was there before a restart.
pub trait Source: Send + Sync {
    /// What it is called in the log.
    fn name(&self) -> &str;

    /// How long it may take for all it has.
    fn within(&self) -> Duration;

    /// The first part, or the one after it that `next` asks for.
    fn page<'a>(&'a self, next: Option<&'a str>) -> BoxFuture<'a, Result<Page, Failure>>;
}

/// The namespaces that are there, and since when.
pub type Namespaces = HashMap<String, Timestamp>;

/// Tells the tracker what `sources` know, one after the other: what the first of them
/// knows counts. Operations that are over are left out where their namespace is not in
/// `namespaces`, or is a new one of the same name.
pub async fn restore(
    sources: Vec<Box<dyn Source>>,
    namespaces: &Namespaces,
    tracker: &mpsc::Sender<Message>,
) {
    for source in sources {
        let mut told = 0;
        let reading = read(&*source, namespaces, tracker, &mut told);
        let result = tokio::time::timeout(source.within(), reading).await;
        let late = || Failure::Passing(format!("not all within {:?}", source.within()));
        let result = result.unwrap_or_else(|_| Err(late()));
        let name = source.name();
        match result {
            Ok(()) => tracing::info!(source = name, operations = told, "operations restored"),
            Err(error) => tracing::warn!(source = name, operations = told, %error,
                "the rest of the operations is detected anew"),
        }
    }
}

async fn read(
    source: &dyn Source,
    namespaces: &Namespaces,
    tracker: &mpsc::Sender<Message>,
    told: &mut usize,
) -> Result<(), Failure> {
    let end = Instant::now() + source.within();
    let mut next: Option<String> = None;
    while *told < MAX_RESTORED {
        let page = match source.page(next.as_deref()).await {
            Ok(page) => page,
            Err(Failure::Passing(why)) if Instant::now() + AGAIN < end => {
                tracing::debug!(source = source.name(), why, "asking again");
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        let mut operations = page.operations;
        operations.retain(|operation| may_be_shown(operation, namespaces));
        *told += operations.len();
        let message = Message::Restore {
            operations,
            version: page.version,
        };
        if tracker.send(message).await.is_err() {
            return Ok(()); // The process is stopping.
        }
        match page.next {
            Some(token) if !token.is_empty() && next.as_ref() != Some(&token) => next = Some(token),
            _ => return Ok(()),
        }
    }
    Err(Failure::Lasting(format!(
        "more than {MAX_RESTORED} operations"
    )))
}

/// Whether nobody is shown what went with the namespace that it was in. What is in flight
/// ends if its subject is not there any more.
fn may_be_shown(operation: &InFlightOperation, namespaces: &Namespaces) -> bool {
    if operation.status.phase != Phase::Completed {
        return true;
    }
    let Some(namespace) = &operation.spec.subject.namespace else {
        return true;
    };
    let completed = operation.status.completed.as_ref();
    namespaces
        .get(namespace)
        .is_some_and(|created| completed.is_some_and(|completed| *created <= completed.0))
}
