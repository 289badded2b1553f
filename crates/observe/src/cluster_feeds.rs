//! The feeds of a cluster. Each feed lists and watches one source: a resource, in all namespaces or
//! in one. All feeds share one [`Connection`], and one permit for large objects.

use super::{
    Connection, Feed, Raw, inline, lines::LargeObjects, list::FIRST_PAGE, requests::resource,
    watch_task::WatchTask,
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use ifo_api::live::SubjectReference;
use ifo_api::{Gvr, Source};
use ifo_client::backoff::Backoff;
use ifo_client::list::escape;
use kube::core::{DynamicObject, Request};
use kube::{Api, Resource as _};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Lists and watches the resources of a cluster.
pub struct ClusterFeed {
    connection: Connection,
    retry_interval: Duration,
    large_objects: LargeObjects,
}

impl ClusterFeed {
    /// Creates a `ClusterFeed` that sends its requests through `connection`. `retry_interval`
    /// (`REQUEUE_INTERVAL`) is the longest delay before a feed retries a refused request.
    pub fn new(connection: Connection, retry_interval: Duration) -> Self {
        Self {
            connection,
            retry_interval,
            large_objects: Arc::new(Semaphore::new(1)),
        }
    }
}

impl Feed for ClusterFeed {
    fn follow(&self, source: Source, selector: Option<&str>) -> BoxStream<'static, Raw> {
        let path = DynamicObject::url_path(&resource(&source.target), source.namespace.as_deref());
        inline(|out| {
            let task = WatchTask {
                client: self.connection.watch_client(),
                source,
                request: Request::new(path),
                selection: selector.map(str::to_owned),
                retry_interval: self.retry_interval,
                large_objects: self.large_objects.clone(),
                out,
                backoff: Backoff::default(),
                is_synced: false,
                version: None,
                page: FIRST_PAGE,
            };
            task.run()
        })
    }

    fn exists<'a>(&'a self, target: &'a Gvr, object: &'a SubjectReference) -> BoxFuture<'a, bool> {
        let (client, resource) = (self.connection.client.clone(), resource(target));
        let api: Api<DynamicObject> = match &object.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &resource),
            None => Api::all_with(client, &resource),
        };
        async move {
            // The name of a role can contain `?` or `#`, and kube does not escape names.
            match api.get_metadata_opt(&escape(&object.name)).await {
                Ok(found) => {
                    found.is_some_and(|it| it.metadata.uid.as_deref() == object.uid.as_deref())
                }
                // After a failure, the server assumes that the object still exists, and that only
                // its labels no longer match. Then its operations do not end at once, but after the
                // debounce period (30 s by default). If a rule detects an operation again in this
                // period, the operation continues.
                Err(_) => true,
            }
        }
        .boxed()
    }
}
