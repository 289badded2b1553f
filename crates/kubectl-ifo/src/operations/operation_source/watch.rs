//! Watches the objects of a resource. After a broken connection or a restart of the server, a watch
//! starts again with a new list.

use crate::cluster::api_client::ApiClient;
use crate::cluster::problem::Problem;
use futures::stream::{self, BoxStream};
use futures::{Stream, StreamExt as _};
use ifo_client::backoff::WatchBackoff;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Resource as _};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{Config, Error, Event, watcher};

/// Largest number of namespaces that are watched one by one. Each namespace needs a watch request
/// that stays open. If there are more namespaces, the command fails.
const MAX_NAMESPACES: usize = 100;

/// A change of the objects of a watch.
#[derive(Debug)]
pub(crate) enum ObjectChange {
    /// All objects, at the start and after an interruption.
    Listed(Vec<DynamicObject>),
    Applied(DynamicObject),
    Deleted(DynamicObject),
    /// The watch failed. It starts again with a list.
    Lost(Problem),
}

/// Returns an error if there are too many namespaces to watch each of them.
pub(crate) fn check_namespaces(count: usize) -> Result<(), Problem> {
    if count <= MAX_NAMESPACES {
        return Ok(());
    }
    Err(Problem::Usage(format!(
        "cannot watch {count} namespaces one by one (at most {MAX_NAMESPACES}); name one with -n"
    )))
}

/// Returns the changes of the objects in a namespace, or in all namespaces. The stream has no end.
/// Objects in files do not change, so they are only listed.
pub(crate) fn changes(
    server: &ApiClient,
    resource: &ApiResource,
    namespace: Option<&str>,
    config: Config,
) -> BoxStream<'static, ObjectChange> {
    let (server, client) = (server.clone(), server.client.clone());
    if server.from_files.is_some() {
        let path = DynamicObject::url_path(resource, namespace);
        let listed = async move {
            let listed = server.all(&path, "").await;
            listed.map_or_else(ObjectChange::Lost, ObjectChange::Listed)
        };
        return stream::once(listed).chain(stream::pending()).boxed();
    }
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client, namespace, resource),
        None => Api::all_with(client, resource),
    };
    let mut listed = Vec::new();
    let changes = with_relist(api, config)
        .backoff(WatchBackoff::default())
        .filter_map(move |event| {
            let change = match event {
                Ok(Event::Init) => {
                    listed.clear();
                    None
                }
                Ok(Event::InitApply(object)) => {
                    listed.push(object);
                    None
                }
                Ok(Event::InitDone) => Some(ObjectChange::Listed(std::mem::take(&mut listed))),
                Ok(Event::Apply(object)) => Some(ObjectChange::Applied(object)),
                Ok(Event::Delete(object)) => Some(ObjectChange::Deleted(object)),
                Err(error) => Some(ObjectChange::Lost(problem(&server, &error))),
            };
            std::future::ready(change)
        });
    changes.boxed()
}

type WatchEvent = Result<Event<DynamicObject>, Error>;

/// Returns a watch that starts again with a list after each error. After most errors, the watch of
/// the kube crate would resume without a list, and return nothing until an object changes. Until
/// then, the caller could not see that the watch works again.
fn with_relist(api: Api<DynamicObject>, config: Config) -> impl Stream<Item = WatchEvent> {
    stream::unfold(None::<BoxStream<'static, WatchEvent>>, move |watch| {
        let mut watch = watch.unwrap_or_else(|| watcher(api.clone(), config.clone()).boxed());
        async move {
            let event = watch.next().await?;
            let is_usable = event.is_ok();
            Some((event, is_usable.then_some(watch)))
        }
    })
}

fn problem(server: &ApiClient, error: &Error) -> Problem {
    match error {
        Error::InitialListFailed(error)
        | Error::WatchStartFailed(error)
        | Error::WatchFailed(error) => server.problem(error),
        error => Problem::Other(format!("the watch ended: {error}")),
    }
}
