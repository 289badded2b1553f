//! The feed of a cluster: one list and watch for each source, through one connection.

use super::{Connection, Feed, Raw, follow::Follower, inline};
use crate::api::Source;
use crate::telemetry::Metrics;
use futures::stream::BoxStream;
use std::{sync::Arc, time::Duration};

/// Follows resources of a cluster.
#[derive(Debug)]
pub struct Cluster {
    connection: Connection,
    retry_interval: Duration,
    metrics: Arc<Metrics>,
}

impl Cluster {
    /// A feed through `connection`, which tries again what was refused at least every
    /// `retry_interval` (`REQUEUE_INTERVAL`).
    pub fn new(connection: Connection, retry_interval: Duration, metrics: Arc<Metrics>) -> Self {
        Self {
            connection,
            retry_interval,
            metrics,
        }
    }
}

impl Feed for Cluster {
    fn follow(&self, source: Source) -> BoxStream<'static, Raw> {
        let (connection, metrics) = (self.connection.clone(), Arc::clone(&self.metrics));
        let retry_interval = self.retry_interval;
        inline(move |out| Follower::new(connection, source, retry_interval, metrics, out).run())
    }
}

#[cfg(test)]
#[path = "cluster_tests.rs"]
mod tests;
