//! Follows operations: starts watches, and returns the changes of operations. If namespaces are
//! requested one by one, each namespace has its own watch.
//!
//! After a broken connection or a restart of the server, a watch starts again with a new list. The
//! follower returns the differences between the new list and the known operations as changes.

use super::{Objects, OperationSource, decode};
use crate::api_client::ApiClient;
use crate::filter::Filters;
use crate::operation::{InFlightOperation, OperationFacts as _, OperationKey};
use crate::problem::Problem;
use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt as _};
use ifo_api::{VERSION, live};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, core::GroupVersionKind};
use std::collections::{BTreeMap, VecDeque};

/// Largest number of namespaces that are watched one by one. Each namespace needs a request that
/// stays open. With more namespaces, [`OperationSource::follow`] returns an error.
const MAX_WATCHED_NAMESPACES: usize = 100;

/// A change of an operation or of the watches.
#[derive(Debug)]
pub(crate) enum OperationChange {
    /// An operation was added or has changed.
    Applied(Box<InFlightOperation>),
    /// An operation was deleted.
    Deleted {
        /// The operation in its last known state.
        operation: Box<InFlightOperation>,
        /// True if the operation was active in the state that was known before the deletion.
        was_active: bool,
    },
    /// All watches work. For each watch, the follower has returned the changes from its newest
    /// list.
    Synced,
    /// A watch failed, and the follower retries the watch. When all watches work again, the
    /// follower returns [`Self::Synced`].
    Lost(Problem),
}

impl OperationSource {
    /// Watches the operations that match the filters. The watch includes all phases and states. So
    /// the follower returns the completion of an operation even without `--all-phases`, and the
    /// caller applies `--state`.
    ///
    /// A watch begins with a list. `listed` are the operations that the caller already knows. The
    /// follower returns them only when they change. From the first list, it also returns the operations
    /// that are not in `listed`. Without `--all-phases`, it leaves out the completed operations that are
    /// not in `listed`.
    ///
    /// Operations in files do not change.
    pub(crate) fn follow(
        &self,
        listed: Vec<InFlightOperation>,
    ) -> Result<OperationFollower, Problem> {
        let namespaces = self.requested_namespaces();
        if namespaces.len() > MAX_WATCHED_NAMESPACES {
            return Err(Problem::Usage(format!(
                "cannot watch {} namespaces one by one (at most {MAX_WATCHED_NAMESPACES}); name one with -n",
                namespaces.len()
            )));
        }
        let mut namespace_states: Vec<FollowedNamespace> = namespaces
            .iter()
            .map(|_| FollowedNamespace {
                skips_completed: !self.filters.all_phases,
                ..FollowedNamespace::default()
            })
            .collect();
        for operation in listed {
            let mut own = namespaces.iter();
            let index = own.position(|it| *it == Some(&operation.metadata.namespace));
            let known = &mut namespace_states[index.unwrap_or_default()].known;
            known.insert(operation.key(), operation);
        }
        let mut follower = OperationFollower {
            streams: SelectAll::new(),
            namespace_states,
            pending: VecDeque::new(),
            server: self.server.clone(),
            filters: self.filters.clone(),
            objects: self.objects.clone(),
            deleted: Vec::new(),
        };
        if self.server.from_files.is_some() {
            follower.pending.push_back(OperationChange::Synced);
            return Ok(follower);
        }
        let kind = GroupVersionKind::gvk(self.served.group(), VERSION, live::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, live::PLURAL);
        let mut config = watcher::Config::default();
        if let Some(selector) = &self.filters.selector {
            config = config.labels(selector);
        }
        let fields = self.watch_selector();
        if !fields.is_empty() {
            config = config.fields(&fields);
        }
        follower
            .streams
            .extend(namespaces.iter().enumerate().map(|(number, namespace)| {
                let client = self.server.client.clone();
                let api: Api<DynamicObject> = match namespace {
                    Some(namespace) => Api::namespaced_with(client, namespace, &resource),
                    None => Api::all_with(client, &resource),
                };
                watch_with_relist(api, config.clone())
                    .default_backoff()
                    .map(move |event| (number, event))
                    .boxed()
            }));
        Ok(follower)
    }
}

type WatchEvent = Result<watcher::Event<DynamicObject>, watcher::Error>;

/// Returns a watch that starts again with a list after each error. After most errors, the watch of
/// the kube crate would resume without a list, and return nothing until an object changes. Until
/// then, the caller could not see that the watch works again.
fn watch_with_relist(
    api: Api<DynamicObject>,
    config: watcher::Config,
) -> impl Stream<Item = WatchEvent> {
    futures::stream::unfold(None::<BoxStream<'static, WatchEvent>>, move |watch| {
        let mut watch = watch.unwrap_or_else(|| watcher(api.clone(), config.clone()).boxed());
        async move {
            let event = watch.next().await?;
            let is_usable = event.is_ok();
            Some((event, is_usable.then_some(watch)))
        }
    })
}

/// Returns the changes of operations, also after broken connections and restarts of the server.
pub(crate) struct OperationFollower {
    streams: SelectAll<BoxStream<'static, (usize, WatchEvent)>>,
    namespace_states: Vec<FollowedNamespace>,
    pending: VecDeque<OperationChange>,
    server: ApiClient,
    filters: Filters,
    objects: Objects,
    /// The operations in the last deletions. Their objects are kept until the caller asks for the
    /// next change.
    deleted: Vec<InFlightOperation>,
}

/// The state of one watch, which covers one namespace or all namespaces.
#[derive(Default)]
struct FollowedNamespace {
    /// The operations in their last known state.
    known: BTreeMap<OperationKey, InFlightOperation>,
    /// The operations of a new list that is not complete yet. None if no list is running.
    relist: Option<BTreeMap<OperationKey, InFlightOperation>>,
    /// True if `known` is complete and the watch works.
    is_synced: bool,
    /// True if the follower leaves out operations that are completed in the first list and are not
    /// in `known`. False after the first list.
    skips_completed: bool,
}

impl FollowedNamespace {
    /// Processes an event, and returns the resulting changes.
    fn take(&mut self, event: watcher::Event<InFlightOperation>) -> Vec<OperationChange> {
        match event {
            watcher::Event::Init => self.relist = Some(BTreeMap::new()),
            watcher::Event::InitApply(operation) => {
                let relist = self.relist.get_or_insert_default();
                relist.insert(operation.key(), operation);
            }
            watcher::Event::InitDone => {
                self.is_synced = true;
                return self.finish_relist();
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

    /// Replaces the known operations with the new list, and returns the differences as changes.
    fn finish_relist(&mut self) -> Vec<OperationChange> {
        let fresh = self.relist.take().unwrap_or_default();
        let before = std::mem::replace(&mut self.known, fresh);
        let skips_completed = std::mem::take(&mut self.skips_completed);
        let gone = before.iter().filter(|it| !self.known.contains_key(it.0));
        let gone = gone.map(|(_, it)| deleted(it.clone(), it));
        let changed = self
            .known
            .iter()
            .filter(|(key, operation)| match before.get(*key) {
                Some(before) => {
                    before.metadata.resource_version != operation.metadata.resource_version
                }
                None => operation.is_active() || !skips_completed,
            });
        let changed = changed.map(|(_, it)| OperationChange::Applied(Box::new(it.clone())));
        gone.chain(changed).collect()
    }
}

fn deleted(operation: InFlightOperation, before: &InFlightOperation) -> OperationChange {
    OperationChange::Deleted {
        operation: Box::new(operation),
        was_active: before.is_active(),
    }
}

impl OperationFollower {
    /// Waits for the next change. Returns the problems `Forbidden` and `Unauthorized` as errors.
    /// After any other problem, returns [`OperationChange::Lost`] and retries the watch.
    pub(crate) async fn next(&mut self) -> Result<OperationChange, Problem> {
        for operation in self.deleted.drain(..) {
            self.objects.remove(&operation);
        }
        loop {
            match self.pending.pop_front() {
                // These errors remain until an administrator or the user changes something, so the
                // watch is not retried.
                Some(OperationChange::Lost(
                    problem @ (Problem::Forbidden { .. } | Problem::Unauthorized),
                )) => {
                    return Err(problem);
                }
                Some(change) => {
                    if let OperationChange::Deleted { operation, .. } = &change {
                        self.deleted.push((**operation).clone());
                    }
                    return Ok(change);
                }
                None => {}
            }
            let Some((number, event)) = self.streams.next().await else {
                std::future::pending::<()>().await;
                continue;
            };
            self.take(number, event);
        }
    }

    fn take(&mut self, number: usize, event: WatchEvent) {
        match event {
            Ok(event) => {
                let synced = matches!(event, watcher::Event::InitDone);
                if let Some(event) = self.decoded(&event) {
                    self.pending
                        .extend(self.namespace_states[number].take(event));
                }
                if synced
                    && self
                        .namespace_states
                        .iter()
                        .all(|namespace| namespace.is_synced)
                {
                    self.pending.push_back(OperationChange::Synced);
                }
            }
            Err(error) => {
                self.namespace_states[number].is_synced = false;
                let problem = self.problem(&error);
                self.pending.push_back(OperationChange::Lost(problem));
            }
        }
    }

    /// Decodes the operation of an event, if the event has one. Returns None if the operation
    /// cannot be decoded, or if it is in a new list and the filters exclude it.
    ///
    /// If the filters exclude an operation that has changed, the method returns a deletion. Before
    /// the change, the filters may have included the operation. For example, an operation can leave
    /// the node of `--node`. If the operation was not known, the deletion has no effect.
    fn decoded(
        &mut self,
        event: &watcher::Event<DynamicObject>,
    ) -> Option<watcher::Event<InFlightOperation>> {
        let object = match event {
            watcher::Event::Init => return Some(watcher::Event::Init),
            watcher::Event::InitDone => return Some(watcher::Event::InitDone),
            watcher::Event::InitApply(object)
            | watcher::Event::Apply(object)
            | watcher::Event::Delete(object) => object,
        };
        let json = serde_json::to_string(object).ok()?;
        let operation = decode(&json).ok()?;
        let is_selected = self.filters.matches(&operation);
        if !is_selected && matches!(event, watcher::Event::InitApply(_)) {
            return None;
        }
        self.objects.keep(&operation, &json);
        Some(match event {
            watcher::Event::InitApply(_) => watcher::Event::InitApply(operation),
            watcher::Event::Apply(_) if is_selected => watcher::Event::Apply(operation),
            _ => {
                self.deleted.push(operation.clone());
                watcher::Event::Delete(operation)
            }
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
                return Problem::Other(
                    "the list from the server has no resourceVersion".to_owned(),
                );
            }
        };
        self.server.problem(inner)
    }
}

#[cfg(test)]
mod tests;
