//! The feeds of a cluster. Each feed lists and watches one source: a resource, in all namespaces or
//! in one. All feeds share one [`Connection`], and one [`ReadBudget`], which limits large objects in
//! memory.

use super::requests::{self, Refusal};
use super::{
    Connection, Feed, GapReason, ObjectNames, Raw, inline,
    read_budget::ReadBudget,
    watch_task::{WatchProgress, WatchTask},
};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use ifo_api::{Gvr, Source};
use std::time::Duration;

/// Lists and watches the resources of a cluster.
#[derive(Debug)]
pub struct ClusterFeed {
    connection: Connection,
    retry_interval: Duration,
    budget: ReadBudget,
}

impl ClusterFeed {
    /// Creates a `ClusterFeed` that sends its requests through `connection`. `retry_interval`
    /// (`REQUEUE_INTERVAL`) is the longest delay before a feed retries a refused request. If the
    /// kube-apiserver requests a longer delay (`Retry-After`), the feed waits for this delay, but
    /// at most one minute.
    pub fn new(connection: Connection, retry_interval: Duration) -> Self {
        Self {
            connection,
            retry_interval,
            budget: ReadBudget::default(),
        }
    }
}

impl Feed for ClusterFeed {
    fn follow(&self, source: Source, selector: Option<&str>) -> BoxStream<'static, Raw> {
        let connection = self.connection.clone();
        let (retry_interval, budget) = (self.retry_interval, self.budget.clone());
        let selection = selector.map(str::to_owned);
        inline(move |out| {
            let task = WatchTask {
                connection,
                source,
                selection,
                retry_interval,
                budget,
                out,
                state: WatchProgress::default(),
            };
            task.run()
        })
    }

    fn exists<'a>(&'a self, target: &'a Gvr, object: ObjectNames<'a>) -> BoxFuture<'a, bool> {
        async move {
            match requests::uid(&self.connection.client, target, object).await {
                Ok(uid) => uid.as_deref() == object.uid,
                Err(Refusal::Lost(GapReason::Refused { code: 404, .. }, _)) => false,
                // A watch with a label selector also reports a deletion when the labels of an
                // object no longer match. After any other failure, the server assumes this case:
                // the object still exists. So its operations end after the debounce period (30 s by
                // default). If a rule detects an operation again in this time, the operation
                // continues.
                Err(_) => true,
            }
        }
        .boxed()
    }
}
