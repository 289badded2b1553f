//! Starts the tasks of the leader at the beginning of each leadership term, and creates the inputs of
//! its pipeline: rule sets, objects, and the operations of earlier leaders.

use super::cluster_scope::{watch_namespaces, watch_nodes};
use super::registration::{API_SERVICE, OwnCaBundle, Registration};
use super::rule_sets;
use super::status_writer::StatusWriter;
use crate::app::leader_term::{LeaderTerm, PipelineInput};
use crate::baseline_store::BaselineStore;
use crate::config::{Common, Persistence, Serve};
use crate::persist::{
    self, ClusterStore, ListedNamespaces, Persist, PersistSettings, Store, UnsyncedRuleSets,
};
use crate::takeover;
use crate::telemetry::Metrics;
use aggregated_apiserver::serve::Readiness;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use ifo_api::Text;
use ifo_engine::track::Message;
use ifo_observe::{ClusterFeed, Connection, Discovery, Feed};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// The server writes the state `Settling` to a custom resource only if the operation is in this
/// state for longer than the debounce period plus this time.
///
/// If no rule detects an operation any more, its state is `Settling`. Usually the operation
/// completes when the debounce period is over, so the server writes only its end. While the watch
/// of its subject is interrupted, the operation stays `Settling` for longer.
const SETTLING_PERIOD: Duration = Duration::from_secs(30);

/// The values from which this replica starts its tasks when it becomes the leader. The values are
/// the same in every leadership term (the time for which this replica leads).
pub(super) struct LeaderSetup {
    pub(super) metrics: Arc<Metrics>,
    pub(super) common: Common,
    pub(super) serve: Serve,
    pub(super) connection: Connection,
    pub(super) readiness: Arc<Readiness>,
    pub(super) ca_bundle: OwnCaBundle,
}

impl LeaderSetup {
    /// Starts the tasks of the leader that are not part of the pipeline. Returns the inputs of the
    /// pipeline.
    pub(super) fn begin(&self, term: &mut LeaderTerm) -> PipelineInput {
        let Self {
            common,
            serve,
            connection,
            ..
        } = self;
        let client = connection.client.clone();
        let registration = Registration::new(
            client.clone(),
            API_SERVICE,
            serve.register.then_some(serve),
            self.ca_bundle.clone(),
        );
        term.tasks
            .start("registration", registration.keep(self.readiness.clone()));
        let namespaces = watch::Sender::new(None);
        let listed = namespaces.subscribe();
        let (unlisted_sender, unlisted) = oneshot::channel();
        let tracker = term.tracker.clone();
        let watching = watch_namespaces(client.clone(), namespaces, unlisted, tracker);
        term.tasks.start("namespaces", watching);
        let nodes = watch_nodes(client.clone(), term.tracker.clone());
        term.tasks.start("nodes", nodes);
        let store = BaselineStore::new(
            client.clone(),
            &serve.namespace,
            term.baselines.clone(),
            term.tracker.downgrade(),
            self.metrics.clone(),
        );
        let store = store.run(term.ending.clone());
        term.tasks.start_finishing("baselines", store);
        let unsynced_rule_sets = watch::Sender::new(None);
        let feed: Arc<dyn Feed> = Arc::new(ClusterFeed::new(connection.clone(), common.requeue));
        let store = (serve.persistence == Persistence::Crs).then(|| {
            // This client does not retry requests, because persistence mode retries failed writes.
            // The client has a separate connection, so that many writes do not delay the requests
            // of other tasks.
            let client = self.connection.without_retries();
            Arc::new(ClusterStore::new(client, feed.clone()))
        });
        if let Some(store) = store.clone() {
            self.persist(term, store, listed.clone(), unsynced_rule_sets.subscribe());
        }
        PipelineInput {
            restored: self.restore_operations(term, store, listed, unlisted_sender),
            resolve: Arc::new(Discovery::new(connection)),
            rule_sets: rule_sets::follow(client.clone()),
            status: Arc::new(StatusWriter::new(client)),
            feed,
            unsynced_rule_sets,
        }
    }

    /// Starts the tasks that write operations as custom resources, until the leadership term ends.
    fn persist(
        &self,
        term: &mut LeaderTerm,
        store: Arc<ClusterStore>,
        namespaces: watch::Receiver<Option<ListedNamespaces>>,
        unsynced_rule_sets: watch::Receiver<Option<Arc<UnsyncedRuleSets>>>,
    ) {
        let common = &self.common;
        let (verdict, verdicts) = watch::channel(None);
        let persist = Persist {
            reader: term.operations.clone(),
            store,
            settings: PersistSettings {
                resync: common.resync,
                settling: common.debounce + SETTLING_PERIOD,
                requeue: common.requeue,
                retain: common.retain,
                retain_for: common.retain_for,
                retain_max: common.retain_max,
            },
            metrics: self.metrics.clone(),
            unsynced_rule_sets,
            namespaces,
            stop: term.ending.clone(),
            verdict,
        };
        term.tasks.start_finishing("persistence", persist.run());
        let (client, every) = (self.connection.client.clone(), common.requeue);
        term.tasks.start("persistence condition", async move {
            persist::keep_condition(client, API_SERVICE, verdicts, every).await;
        });
    }

    /// Returns a future that sends the operations of earlier leaders to the tracker. The tracker turns
    /// detections into operations. `store` has the custom resources, in persistence mode. `listed`
    /// receives the namespaces that exist. If the leader restores
    /// the operations without them, the future sends the namespaces of these operations to `unlisted`.
    fn restore_operations(
        &self,
        term: &LeaderTerm,
        store: Option<Arc<ClusterStore>>,
        listed: watch::Receiver<Option<ListedNamespaces>>,
        unlisted: oneshot::Sender<HashSet<Text>>,
    ) -> BoxFuture<'static, ()> {
        let common = &self.common;
        let sources = takeover::TakeoverSources {
            reader: term.operations.clone(),
            retain: common.retain || common.history_max > 0,
            cluster_namespace: common.cluster_operations_namespace.as_str().into(),
        };
        let tracker = term.tracker.clone();
        async move {
            let store = store.as_deref().map(|store| store as &dyn Store);
            let (state, names) = takeover::initial_state(store, sources, listed).await;
            // A send fails only if the term is ending. Then no task needs the messages any more.
            let _ = tracker.send(Message::Resume(Box::new(state))).await;
            let _ = unlisted.send(names);
        }
        .boxed()
    }
}
