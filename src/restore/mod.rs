//! What was there before a restart, read from whoever kept it. Enters: pages of objects
//! from another replica, or from the custom resources of persistence mode. Leaves: the
//! operations in them, told to the tracker before anything else is.
//!
//! Promises: it ends, whoever does not answer; and however much is kept, no more than a
//! page of it is in memory at once. What cannot be had is detected anew. Nobody is shown
//! what was in another namespace of the same name.

mod list;
mod namespaces;
mod patience;
mod records;
mod replica;
#[cfg(test)]
mod tests;

pub use namespaces::{Namespaces, namespaces};
pub use records::Records;
pub use replica::{Replica, Whereabouts};

use crate::index::Rv;
use crate::persist;
use futures::future::BoxFuture;
use ifo_api::live::{InFlightOperation, Phase};
use ifo_engine::track::{MAX_RESTORED, Message};
use patience::Patience;
use std::time::Duration;
use tokio::sync::mpsc;

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
    /// We may not ask. A kube-apiserver that has just started refuses everybody until it
    /// has read who may do what.
    #[error("{0}")]
    Refused(String),
    /// What was asked to go on from is not there any more: it is to be asked from the start.
    #[error("{0}")]
    Expired(String),
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

/// Tells the tracker what `sources` know, one after the other: what the first of them
/// knows counts. Operations are left out where their namespace is not in `namespaces`, or
/// is a new one of the same name; those that are over also if nobody knows the namespaces.
pub async fn restore(
    sources: Vec<Box<dyn Source>>,
    namespaces: Option<&Namespaces>,
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
    namespaces: Option<&Namespaces>,
    tracker: &mpsc::Sender<Message>,
    told: &mut usize,
) -> Result<(), Failure> {
    let mut patience = Patience::new(source.within());
    let mut next: Option<String> = None;
    while *told < MAX_RESTORED {
        let page = match source.page(next.as_deref()).await {
            Ok(page) => page,
            Err(failure) => {
                if matches!(failure, Failure::Expired(_)) {
                    // What is told twice counts once.
                    next = None;
                    *told = 0;
                }
                patience.bear(source.name(), failure).await?;
                continue;
            }
        };
        patience.answered();
        let mut operations = page.operations;
        operations.retain(|operation| may_be_shown(operation, namespaces));
        *told += operations.len();
        let message = Message::Restore {
            operations,
            version: page.version.map(|version| version.0),
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

/// Whether nobody is shown what went with the namespace that it was in. One in flight
/// would end, as its subject is not there any more, and its end be shown.
fn may_be_shown(operation: &InFlightOperation, namespaces: Option<&Namespaces>) -> bool {
    let Some(namespace) = &operation.spec.subject.namespace else {
        return true;
    };
    match namespaces {
        Some(namespaces) => !persist::is_outlived(operation, namespaces.get(namespace)),
        // What goes on is worth more than what is over, and its subject is looked at.
        None => operation.status.phase == Phase::Active,
    }
}
