//! Follows operations as they change.
//!
//! Input: events of kube's watches, one watch for each namespace. Output: changes. They continue
//! after broken connections and restarts of the server.

use super::OperationSource;
use crate::api_client::ApiClient;
use crate::filter::Filters;
use crate::operation::{ListedOperation, OperationKey};
use crate::problem::Problem;
use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt as _};
use ifo_api::{VERSION, live};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, core::GroupVersionKind};
use std::collections::{BTreeMap, VecDeque};

/// Largest number of namespaces that are watched separately, because each is a request.
const MAX_WATCHED_NAMESPACES: usize = 100;

/// A change.
#[derive(Debug)]
pub(crate) enum OperationChange {
    /// An operation was added or has changed.
    Applied(Box<ListedOperation>),
    /// An operation was deleted.
    Deleted {
        /// Its last known state.
        operation: Box<ListedOperation>,
        /// True if it was active in the last change that was returned.
        was_active: bool,
    },
    /// The whole state has been returned.
    Synced,
    /// The watch failed. It is retried, and `Synced` follows when it works again.
    Lost(Problem),
}

impl OperationSource {
    /// Watches the operations that match the filters, in any phase: the end of an operation is
    /// returned also without `--all-phases`. An operation in `listed` is returned when it
    /// changes. A completed operation that is not in `listed` is not returned. If `listed` is
    /// None, all operations are returned.
    pub(crate) fn follow(
        &self,
        listed: Option<Vec<ListedOperation>>,
    ) -> Result<OperationFollower, Problem> {
        let namespaces = self.places();
        if namespaces.len() > MAX_WATCHED_NAMESPACES {
            return Err(Problem::Usage(format!(
                "{} namespaces are too many to watch one by one; name one with -n",
                namespaces.len()
            )));
        }
        let mut places: Vec<FollowedNamespace> = namespaces
            .iter()
            .map(|_| FollowedNamespace {
                skips_ended: listed.is_some() && !self.filters.all_phases,
                ..FollowedNamespace::default()
            })
            .collect();
        for operation in listed.into_iter().flatten() {
            let mut own = namespaces.iter();
            let place = own.position(|it| *it == operation.namespace.as_deref());
            let known = &mut places[place.unwrap_or_default()].known;
            known.insert(operation.key(), operation);
        }
        let kind = GroupVersionKind::gvk(self.served.group(), VERSION, live::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, live::PLURAL);
        let mut config = watcher::Config::default();
        if let Some(selector) = &self.filters.selector {
            config = config.labels(selector);
        }
        let streams = namespaces.iter().enumerate().map(|(number, namespace)| {
            let client = self.server.client.clone();
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(client, namespace, &resource),
                None => Api::all_with(client, &resource),
            };
            watched(api, config.clone())
                .default_backoff()
                .map(move |event| (number, event))
                .boxed()
        });
        Ok(OperationFollower {
            streams: streams.collect(),
            places,
            pending: VecDeque::new(),
            server: self.server.clone(),
            resource: self.served.resource(),
            filters: self.filters.clone(),
            keep_raw: self.keep_raw,
        })
    }
}

type WatchEvent = Result<watcher::Event<DynamicObject>, watcher::Error>;

/// A watch that lists again after each error. kube's own watch resumes and reports nothing until an
/// object changes. In a quiet cluster, the caller could not see that the watch works again.
fn watched(api: Api<DynamicObject>, config: watcher::Config) -> impl Stream<Item = WatchEvent> {
    futures::stream::unfold(None::<BoxStream<'static, WatchEvent>>, move |watch| {
        let mut watch = watch.unwrap_or_else(|| watcher(api.clone(), config.clone()).boxed());
        async move {
            let event = watch.next().await?;
            let whole = event.is_ok();
            Some((event, whole.then_some(watch)))
        }
    })
}

/// Follows operations over broken connections and restarts of the server.
pub(crate) struct OperationFollower {
    streams: SelectAll<BoxStream<'static, (usize, WatchEvent)>>,
    places: Vec<FollowedNamespace>,
    pending: VecDeque<OperationChange>,
    server: ApiClient,
    resource: &'static str,
    filters: Filters,
    keep_raw: bool,
}

/// The known operations of one namespace, or of all namespaces.
#[derive(Default)]
struct FollowedNamespace {
    known: BTreeMap<OperationKey, ListedOperation>,
    /// The operations of a list that is being received.
    relist: Option<BTreeMap<OperationKey, ListedOperation>>,
    whole: bool,
    /// True if an unknown completed operation must have been completed before the first list.
    skips_ended: bool,
}

impl FollowedNamespace {
    fn take(&mut self, event: watcher::Event<ListedOperation>) -> Vec<OperationChange> {
        match event {
            watcher::Event::Init => self.relist = Some(BTreeMap::new()),
            watcher::Event::InitApply(operation) => {
                let relist = self.relist.get_or_insert_default();
                relist.insert(operation.key(), operation);
            }
            watcher::Event::InitDone => {
                self.whole = true;
                return self.relisted();
            }
            watcher::Event::Apply(operation) => {
                self.known.insert(operation.key(), operation.clone());
                return vec![OperationChange::Applied(Box::new(operation))];
            }
            watcher::Event::Delete(operation) => {
                let before = self.known.remove(&operation.key());
                let deleted = before.map(|before| deleted(operation, &before));
                return deleted.into_iter().collect();
            }
        }
        Vec::new()
    }

    /// Returns the differences between the new list and the known operations.
    fn relisted(&mut self) -> Vec<OperationChange> {
        let fresh = self.relist.take().unwrap_or_default();
        let before = std::mem::replace(&mut self.known, fresh);
        let skips_ended = std::mem::take(&mut self.skips_ended);
        let gone = before.iter().filter(|it| !self.known.contains_key(it.0));
        let gone = gone.map(|(_, it)| deleted(it.clone(), it));
        let news = self
            .known
            .iter()
            .filter(|(key, operation)| match before.get(*key) {
                Some(before) => before.version != operation.version,
                None => operation.active || !skips_ended,
            });
        let news = news.map(|(_, it)| OperationChange::Applied(Box::new(it.clone())));
        gone.chain(news).collect()
    }
}

fn deleted(operation: ListedOperation, before: &ListedOperation) -> OperationChange {
    OperationChange::Deleted {
        operation: Box::new(operation),
        was_active: before.active,
    }
}

impl OperationFollower {
    /// Waits for the next change. The watch is retried after all errors except `Forbidden` and
    /// `Unauthorized`, which are returned.
    pub(crate) async fn next(&mut self) -> Result<OperationChange, Problem> {
        loop {
            match self.pending.pop_front() {
                // Retrying does not help against these errors.
                Some(OperationChange::Lost(
                    problem @ (Problem::Forbidden { .. } | Problem::Unauthorized),
                )) => {
                    return Err(problem);
                }
                Some(change) => return Ok(change),
                None => {}
            }
            let Some((place, event)) = self.streams.next().await else {
                std::future::pending::<()>().await;
                continue;
            };
            self.take(place, event);
        }
    }

    fn take(&mut self, number: usize, event: WatchEvent) {
        match event {
            Ok(event) => {
                let synced = matches!(event, watcher::Event::InitDone);
                if let Some(event) = self.meant(event) {
                    self.pending.extend(self.places[number].take(event));
                }
                if synced && self.places.iter().all(|place| place.whole) {
                    self.pending.push_back(OperationChange::Synced);
                }
            }
            Err(error) => {
                self.places[number].whole = false;
                let problem = self.problem(&error);
                self.pending.push_back(OperationChange::Lost(problem));
            }
        }
    }

    /// Returns the event with its operation. None if the filters exclude it, or it cannot be
    /// decoded.
    fn meant(
        &self,
        event: watcher::Event<DynamicObject>,
    ) -> Option<watcher::Event<ListedOperation>> {
        let read = |object: &DynamicObject| {
            let json = serde_json::to_string(object).ok()?;
            let operation = ListedOperation::read(&json, self.keep_raw).ok()?;
            Some(operation).filter(|it| self.filters.matches(it))
        };
        Some(match event {
            watcher::Event::Init => watcher::Event::Init,
            watcher::Event::InitApply(object) => watcher::Event::InitApply(read(&object)?),
            watcher::Event::InitDone => watcher::Event::InitDone,
            watcher::Event::Apply(object) => watcher::Event::Apply(read(&object)?),
            watcher::Event::Delete(object) => watcher::Event::Delete(read(&object)?),
        })
    }

    fn problem(&self, error: &watcher::Error) -> Problem {
        let inner = match error {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => error,
            watcher::Error::WatchError(status) => {
                return Problem::Other(format!("the watch ended: {}", status.message));
            }
            watcher::Error::NoResourceVersion => {
                return Problem::Other("the server sends no resourceVersion".to_owned());
            }
        };
        self.server.problem(inner, "watch", self.resource, None)
    }
}

#[cfg(test)]
mod tests;
