//! Starts the tasks of the leader at the beginning of each leadership term, and creates the inputs
//! of its pipeline: rule sets, objects, and the operations of earlier leaders.

use super::cluster_scope::{watch_namespaces, watch_nodes};
use super::registration::{API_SERVICE, OwnCaBundle, Registration};
use super::rule_sets;
use super::status_writer::StatusWriter;
use crate::app::Components;
use crate::app::leader_term::{LeaderTerm, PipelineInput};
use crate::baseline_store::BaselineStore;
use crate::config::{Persistence, Serve};
use crate::persist::{self, ClusterStore, Persist, PersistSettings, Store};
use crate::takeover;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_engine::track::{Message, Namespaces};
use ifo_observe::{ClusterFeed, Connection, Discovery, Feed};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// The server delays the write of the state `Settling` to a custom resource. The delay is the
/// debounce period plus this time.
///
/// If no rule detects an operation any more, its state is `Settling`. Usually the operation
/// completes when the debounce period is over, so the server writes only the end of the operation.
/// While the watch of the subject is interrupted, the operation stays `Settling` for longer.
const SETTLING_PERIOD: Duration = Duration::from_secs(30);

/// The values from which this replica starts its tasks when it becomes the leader. The values are
/// the same in every leadership term (the time for which this replica leads).
pub(super) struct LeaderSetup {
    pub(super) serve: Serve,
    pub(super) connection: Connection,
    pub(super) ca_bundle: OwnCaBundle,
}

impl LeaderSetup {
    /// Starts the tasks of the leader that are not part of the pipeline. Returns the inputs of the
    /// pipeline.
    pub(super) fn begin(&self, shared: &Components, term: &mut LeaderTerm) -> PipelineInput {
        let Self {
            serve, connection, ..
        } = self;
        let client = connection.client.clone();
        let registration = Registration::new(
            client.clone(),
            serve.register.then_some(serve),
            self.ca_bundle.clone(),
        );
        term.tasks
            .start("registration", registration.keep(shared.readiness.clone()));
        let namespaces = watch::Sender::new(None);
        let listed = namespaces.subscribe();
        let tracker = term.tracker.clone();
        let watching = watch_namespaces(client.clone(), namespaces, tracker);
        term.tasks.start("namespaces", watching);
        let nodes = watch_nodes(client.clone(), term.tracker.clone());
        term.tasks.start("nodes", nodes);
        let store = BaselineStore::new(
            client.clone(),
            &serve.namespace,
            shared.baselines.clone(),
            term.tracker.downgrade(),
            shared.metrics.clone(),
        );
        let store = store.run(term.ending.clone());
        term.tasks.start_finishing("baselines", store);
        let feed: Arc<dyn Feed> =
            Arc::new(ClusterFeed::new(connection.clone(), shared.common.requeue));
        let store = (serve.persistence == Persistence::Crs).then(|| {
            // This client does not retry requests, because persistence mode retries failed writes.
            // The client has a separate connection, so that many writes do not delay the requests
            // of other tasks.
            let client = self.connection.without_retries();
            Arc::new(ClusterStore::new(client, feed.clone()))
        });
        let is_restored = watch::Sender::new(false);
        if let Some(store) = store.clone() {
            self.persist(shared, term, store, is_restored.subscribe());
        }
        PipelineInput {
            restored: restore_operations(shared, term, store, listed, is_restored),
            resolve: Arc::new(Discovery::new(connection)),
            rule_sets: rule_sets::follow(client.clone(), &*feed),
            status: Arc::new(StatusWriter::new(client)),
            feed,
        }
    }

    /// Starts the tasks that write operations as custom resources, until the leadership term ends.
    fn persist(
        &self,
        shared: &Components,
        term: &mut LeaderTerm,
        store: Arc<ClusterStore>,
        is_restored: watch::Receiver<bool>,
    ) {
        let common = &shared.common;
        let (verdict, verdicts) = watch::channel(None);
        let persist = Persist {
            reader: shared.operations(),
            store,
            settings: PersistSettings {
                resync: common.resync,
                settling: common.debounce + SETTLING_PERIOD,
                requeue: common.requeue,
                retain: common.retain,
            },
            metrics: shared.metrics.clone(),
            unsynced_rule_sets: term.unsynced_rule_sets.subscribe(),
            is_restored,
            stop: term.ending.clone(),
            verdict,
        };
        term.tasks.start_finishing("persistence", persist.run());
        let (client, every) = (self.connection.client.clone(), common.requeue);
        term.tasks.start("persistence condition", async move {
            persist::keep_condition(client, API_SERVICE, verdicts, every).await;
        });
    }
}

/// Returns a future that sends the operations of earlier leaders to the tracker. The tracker turns
/// detections into operations. In persistence mode, `store` has the custom resources. `listed`
/// receives the namespaces that exist. At its end, the future sets `is_restored` to true if all
/// custom resources were restored.
fn restore_operations(
    shared: &Components,
    term: &LeaderTerm,
    store: Option<Arc<ClusterStore>>,
    listed: watch::Receiver<Option<Arc<Namespaces>>>,
    is_restored: watch::Sender<bool>,
) -> BoxFuture<'static, ()> {
    let (reader, cluster_namespace) = (shared.operations(), shared.cluster_namespace());
    let tracker = term.tracker.clone();
    async move {
        let store = store.as_deref().map(|store| store as &dyn Store);
        let takeover = takeover::take_over(store, &reader, cluster_namespace, listed);
        let (state, is_complete) = takeover.await;
        // A send fails only if the term is ending. Then no task needs the messages any more.
        let state = Box::new(state);
        let _ = tracker.send(Message::Resume(state)).await;
        is_restored.send_replace(is_complete);
    }
    .boxed()
}
