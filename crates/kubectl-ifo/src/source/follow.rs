//! Operations as they change. Enters: events of kube's watches, one for each namespace
//! that is asked. Leaves: changes, over broken connections and restarts of the server.

use super::Source;
use crate::filter::Filters;
use crate::operation::Operation;
use crate::problem::Problem;
use crate::server::Server;
use futures::stream::{BoxStream, SelectAll};
use futures::{Stream, StreamExt as _};
use ifo_api::{VERSION, live};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, core::GroupVersionKind};
use std::collections::{BTreeMap, VecDeque};

/// Namespaces that are watched one by one; each has a request of its own at the server.
const MOST_WATCHED: usize = 100;

/// What changed.
#[derive(Debug)]
pub(crate) enum Change {
    /// An operation is new, or other than before.
    Applied(Box<Operation>),
    /// An operation is gone, or no longer meant.
    Deleted(Box<Operation>),
    /// All that there is has been told.
    Synced,
    /// The watch is broken; it goes on by itself, and says `Synced` when it is whole again.
    Lost(Problem),
}

impl Source {
    /// Follows the operations that are meant, in any phase: one that ends is told with
    /// its end, whatever `--all-phases` says.
    pub(crate) fn follow(&self) -> Result<Follower, Problem> {
        let places: Vec<Option<&str>> = match &self.namespaces {
            Some(namespaces) if namespaces.len() > MOST_WATCHED => {
                return Err(Problem::Usage(format!(
                    "{} namespaces are too many to watch one by one; name one with -n",
                    namespaces.len()
                )));
            }
            Some(namespaces) => namespaces.iter().map(|it| Some(it.as_str())).collect(),
            None => vec![self.place()],
        };
        let kind = GroupVersionKind::gvk(self.served.group(), VERSION, live::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, live::PLURAL);
        let mut config = watcher::Config::default();
        if let Some(selector) = &self.filters.selector {
            config = config.labels(selector);
        }
        let streams = places.iter().enumerate().map(|(number, namespace)| {
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
        Ok(Follower {
            streams: streams.collect(),
            places: places.iter().map(|_| Place::default()).collect(),
            pending: VecDeque::new(),
            server: self.server.clone(),
            resource: self.served.resource(),
            filters: self.filters.clone(),
            keep_raw: self.keep_raw,
        })
    }
}

type Event = Result<watcher::Event<DynamicObject>, watcher::Error>;

/// A watch that lists anew after each error. kube's own goes on where it was, and says
/// nothing until something changes: in a quiet cluster nobody could tell that it is whole
/// again.
fn watched(api: Api<DynamicObject>, config: watcher::Config) -> impl Stream<Item = Event> {
    futures::stream::unfold(None::<BoxStream<'static, Event>>, move |watch| {
        let mut watch = watch.unwrap_or_else(|| watcher(api.clone(), config.clone()).boxed());
        async move {
            let event = watch.next().await?;
            let whole = event.is_ok();
            Some((event, whole.then_some(watch)))
        }
    })
}

/// Operations as they change, over broken connections and restarts of the server.
pub(crate) struct Follower {
    streams: SelectAll<BoxStream<'static, (usize, Event)>>,
    places: Vec<Place>,
    pending: VecDeque<Change>,
    server: Server,
    resource: &'static str,
    filters: Filters,
    keep_raw: bool,
}

/// What is known of one namespace, or of all at once.
#[derive(Default)]
struct Place {
    known: BTreeMap<(Option<String>, String), Operation>,
    /// The state that is being told anew.
    relist: Option<BTreeMap<(Option<String>, String), Operation>>,
    whole: bool,
}

impl Follower {
    /// The next change. A watch goes on for ever.
    pub(crate) async fn next(&mut self) -> Change {
        loop {
            if let Some(change) = self.pending.pop_front() {
                return change;
            }
            let Some((place, event)) = self.streams.next().await else {
                std::future::pending::<()>().await;
                continue;
            };
            self.take(place, event);
        }
    }

    fn take(&mut self, number: usize, event: Event) {
        let place = &mut self.places[number];
        match event {
            Ok(watcher::Event::Init) => place.relist = Some(BTreeMap::new()),
            Ok(watcher::Event::InitApply(object)) => {
                if let Some(operation) = read(&object, self.keep_raw, &self.filters)
                    && let Some(relist) = &mut place.relist
                {
                    relist.insert(operation.key(), operation);
                }
            }
            Ok(watcher::Event::InitDone) => {
                let fresh = place.relist.take().unwrap_or_default();
                let before = std::mem::take(&mut place.known);
                for (key, operation) in before {
                    if !fresh.contains_key(&key) {
                        self.pending.push_back(Change::Deleted(Box::new(operation)));
                    } else if fresh[&key].version == operation.version {
                        place.known.insert(key, operation);
                    }
                }
                for (key, operation) in fresh {
                    if place.known.insert(key, operation.clone()).is_none() {
                        self.pending.push_back(Change::Applied(Box::new(operation)));
                    }
                }
                place.whole = true;
                if self.places.iter().all(|place| place.whole) {
                    self.pending.push_back(Change::Synced);
                }
            }
            Ok(watcher::Event::Apply(object)) => {
                if let Some(operation) = read(&object, self.keep_raw, &self.filters) {
                    place.known.insert(operation.key(), operation.clone());
                    self.pending.push_back(Change::Applied(Box::new(operation)));
                }
            }
            Ok(watcher::Event::Delete(object)) => {
                if let Some(operation) = read(&object, self.keep_raw, &self.filters) {
                    place.known.remove(&operation.key());
                    self.pending.push_back(Change::Deleted(Box::new(operation)));
                }
            }
            Err(error) => {
                place.whole = false;
                let problem = self.problem(&error);
                self.pending.push_back(Change::Lost(problem));
            }
        }
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

/// The operation in an object, if it is meant. One that cannot be read is none.
fn read(object: &DynamicObject, keep_raw: bool, filters: &Filters) -> Option<Operation> {
    let json = serde_json::to_string(object).ok()?;
    let operation = Operation::read(&json, keep_raw).ok()?;
    filters.matches(&operation).then_some(operation)
}

#[cfg(test)]
mod tests;
