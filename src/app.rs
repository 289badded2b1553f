//! Runs the server: creates its components from the configuration, connects them, and stops them at
//! the end.

mod cluster;
mod demo;
mod leader_term;
mod listener;
mod server_pipeline;
mod signals;
mod start_detection;
mod tasks;

pub use signals::{Signal, Signals};

use crate::clock;
use crate::config::{Common, Config, Mode};
use crate::index::{self, Bounds, IndexReader, Resource, Rv, Writer};
use crate::replicate::peer_requests;
use crate::replicate::{Leadership, Mirror, ReplicaRole, ReplicaStatus, ReplicaTask};
use crate::resources::{self, OperationHooks, SharedShortNames, SubjectVisibility, gate_webhook};
use crate::rules::Report;
use crate::telemetry::{IndexSample, Metrics};
use crate::tracker_task::ReadGaps;
use aggregated_apiserver::serve::{self, AnyResource, Connections, Readiness, ServerParameters};
use anyhow::bail;
use axum::Router;
use ifo_api::Text;
use ifo_engine::track::SharedBaselines;
use server_pipeline::{BeginTerm, PipelineThread, ServerPipeline};
use std::sync::Arc;
use std::time::Duration;
use tasks::Tasks;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Limits of the ring: the buffer of past changes from which clients resume their watches. When a
/// limit is reached, the oldest changes are dropped. While all changes are younger than ten
/// seconds, the limit is 48 MiB instead of 8 MiB (see [`Bounds::peak_bytes`]).
///
/// 8 MiB hold about 3,500 changes. Five minutes are much longer than a restart of the
/// kube-apiserver. So a client whose watch breaks during such a restart can resume the watch.
const RING_BOUNDS: Bounds = Bounds {
    bytes: 8 << 20,
    age: Duration::from_mins(5),
};

/// After SIGTERM, the server is unready for this time, but still accepts connections. The
/// aggregator and kube-proxy need some seconds until they send no more requests to this replica.
const UNREADY_PERIOD: Duration = Duration::from_secs(5);

/// The error after a second signal.
const STOPPED_AT_ONCE: &str = "stopped at once by a second signal";

/// Runs the server until a signal stops it. A signal also stops the server while it starts. Returns
/// an error in these cases:
///
/// - The start fails.
/// - A task ends before the shutdown.
/// - A second signal arrives before the server has stopped.
pub async fn run(config: Config, mut signals: Signals) -> anyhow::Result<()> {
    match config.mode {
        Mode::Serve(serve) => {
            let starting = cluster::start(config.common, *serve);
            match signals.unless_stopped(starting).await? {
                Some(app) => app.until_stopped(signals).await,
                None => Ok(()),
            }
        }
        Mode::Demo(demo) => demo::run(config.common, demo, signals).await,
    }
}

/// The settings and the state that the tasks of the server share, whether this replica leads or
/// follows.
#[derive(Clone)]
struct Components {
    common: Common,
    metrics: Arc<Metrics>,
    readiness: Arc<Readiness>,
    /// The role of this replica, and the reader of its index.
    replica_status: ReplicaStatus,
    /// Sends the newest report. The report says which rule sets work.
    report: watch::Sender<Arc<Report>>,
    /// The durations of earlier runs of operations. Empty while this replica does not lead.
    baselines: SharedBaselines,
}

impl Components {
    /// Returns the reader of the index.
    fn operations(&self) -> IndexReader {
        self.replica_status.reader().clone()
    }

    /// Returns the namespace in which the server shows operations on cluster-scoped objects.
    fn cluster_namespace(&self) -> Text {
        self.common.cluster_operations_namespace.as_str().into()
    }

    /// Returns the metrics as text, with the current state of the index.
    fn render_metrics(&self) -> String {
        let operations = self.operations();
        let list = |scope| {
            let listed = operations.list(&scope, index::ReadVersion::Latest);
            listed.map(|(_, entries)| entries).unwrap_or_default()
        };
        let (activities, all) = (list(index::ACTIVITIES), list(index::OPERATIONS));
        let activities = activities.iter().filter_map(|it| it.object().activity());
        let all = all.iter().filter_map(|it| it.object().operation());
        self.metrics.show(IndexSample {
            activities: activities.cloned().collect(),
            operations: all.cloned().collect(),
            is_stale: self.replica_status.is_stale(),
            ring_bytes: operations.ring_bytes(),
            ring_age: operations.ring_age(),
            lag: self.replica_status.lag(),
            records: list(index::RECORDS).len(),
            rule_sets: self.report.borrow().states(),
            baselines: self.baselines.of_all_namespaces(),
        });
        self.metrics.render()
    }

    /// Returns a function that reads which rule sets may miss operations.
    fn read_gaps(&self) -> ReadGaps {
        let report = self.report.subscribe();
        Arc::new(move || report.borrow().gaps())
    }
}

/// The components of the server that cluster mode and demo mode share.
struct App {
    /// Tasks that must not end before the shutdown. During the shutdown, some tasks finish their
    /// work. A further signal aborts these tasks.
    tasks: Tasks,
    shutdown: CancellationToken,
    /// True if a Service may route clients to this server.
    behind_service: bool,
    connections: Arc<Connections>,
    shared: Components,
    /// The thread that fills the index: the operations in memory, and the records of completed
    /// operations. While this replica leads, the thread detects operations. While this replica
    /// follows another replica, the thread copies the index of the leader.
    pipeline: PipelineThread,
    /// Cancelled when this replica must give up the leadership. The shutdown also cancels this
    /// token. A server without an election ignores the token, and leads until the shutdown.
    retire: CancellationToken,
    /// The short names of kinds, for tables.
    short_names_of_kinds: SharedShortNames,
}

impl App {
    /// Creates the components, and the writer of the empty index.
    fn start(common: &Common, behind_service: bool) -> anyhow::Result<(Self, Writer)> {
        // A new index has the resourceVersion 0, which no leader issues. A follower resumes a watch
        // of its leader only from a resourceVersion above 0. So a follower with a new index first
        // lists the leader's operations.
        let (writer, operations) = index::index_from(RING_BOUNDS, Rv(0));
        let shutdown = CancellationToken::new();
        let app = Self {
            shared: Components {
                common: common.clone(),
                metrics: Arc::new(Metrics::of_version(&common.version)),
                readiness: Arc::new(Readiness::new()),
                replica_status: ReplicaStatus::new(operations),
                report: watch::Sender::default(),
                baselines: SharedBaselines::default(),
            },
            tasks: Tasks::default(),
            retire: shutdown.child_token(),
            shutdown,
            behind_service,
            connections: Connections::new(common.max_connections),
            pipeline: PipelineThread::start()?,
            short_names_of_kinds: SharedShortNames::default(),
        };
        Ok((app, writer))
    }

    /// Makes this replica the leader without an election.
    fn lead(&mut self, writer: Writer, begin_term: BeginTerm) {
        self.shared.readiness.set_has_joined();
        let alone = Leadership::alone(Rv::of_clock(clock::now()));
        let role = self.shared.replica_status.role();
        role.send_replace(ReplicaRole::Leading(alone));
        self.shared.metrics.series.leader.set(1);
        self.start_replica_task(writer, None, begin_term);
    }

    /// Starts the task that leads or follows, depending on the role of this replica.
    fn start_replica_task(
        &mut self,
        writer: Writer,
        mirror: Option<Mirror>,
        begin_term: BeginTerm,
    ) {
        let retire = match &mirror {
            Some(_) => self.retire.clone(),
            None => self.shutdown.clone(),
        };
        let pipeline = ServerPipeline {
            shared: self.shared.clone(),
            begin_term,
        };
        let replica = ReplicaTask {
            writer,
            mirror,
            replica_status: self.shared.replica_status.clone(),
            pipeline,
            retire,
            shutdown: self.shutdown.clone(),
        };
        let run = async move { replica.run().await.unwrap_or("replica") };
        self.tasks.start_finishing_on(self.pipeline.handle(), run);
    }

    /// Returns the router of the HTTP server. The caller creates the listener.
    ///
    /// The HTTP server serves operations, activities and the records of completed operations.
    /// `more` contains the additional resources and routes of the demo. `gate_webhook` is true if
    /// the admission webhook is served.
    fn router(
        &self,
        access: Access,
        more: (Vec<AnyResource>, Router),
        gate_webhook: bool,
    ) -> Router {
        let shared = self.shared.clone();
        let (reader, cluster_namespace) = (shared.operations(), shared.cluster_namespace());
        let mut served = vec![
            Resource {
                context: self.short_names_of_kinds.clone(),
                ..resources::inflight_operations(reader.clone())
            },
            resources::operation_records(reader.clone()),
            resources::activities(reader.clone()),
        ];
        if let Some(authorize) = access.authorize_subjects {
            let kinds = self.short_names_of_kinds.clone();
            let namespace = cluster_namespace.clone();
            SubjectVisibility::new(reader.clone(), kinds, namespace, authorize)
                .restrict(&mut served);
        }
        let hooks = Arc::new(OperationHooks {
            reader,
            replica_status: shared.replica_status.clone(),
            read_gaps: shared.read_gaps(),
            cluster_namespace,
            readiness: shared.readiness.clone(),
            authorize: access.authorize.clone(),
        });
        let server = ServerParameters {
            title: "ifo",
            authenticate: access.authenticate,
            authorize: access.authorize,
            public_routes: if gate_webhook {
                gate_webhook::routes(hooks.clone())
            } else {
                Router::new()
            },
            routes: peer_requests::routes(shared.replica_status.clone()).merge(more.1),
            hooks,
            readiness: shared.readiness.clone(),
            metrics: shared.metrics.api(),
            version: shared.common.version.clone(),
            limits: shared.common.limits(),
            shutdown: self.shutdown.clone(),
            render_metrics: Arc::new(move || shared.render_metrics()),
        };
        let served = served.into_iter().map(AnyResource::from);
        serve::router(server, served.chain(more.0))
    }

    /// Accepts connections until the shutdown.
    fn listen(&mut self, listener: TcpListener, tls: rustls::ServerConfig, router: Router) {
        let (connections, shutdown) = (self.connections.clone(), self.shutdown.clone());
        let tls = Arc::new(tls);
        let listening = serve::listen::serve(listener, tls, router, connections, shutdown);
        self.tasks.start_finishing("listener", listening);
    }

    /// Waits until a signal arrives or a task ends too early. Then finishes the open requests and
    /// stops the server. Returns an error if a task ended too early, or if a second signal arrives
    /// before the server has stopped.
    async fn until_stopped(mut self, mut signals: Signals) -> anyhow::Result<()> {
        let early = tokio::select! {
            signal = signals.next() => {
                self.shared.readiness.drain();
                // If this replica was elected as the leader, it releases the Lease, so that another
                // replica leads at once. This replica then follows the new leader until the process
                // ends.
                self.retire.cancel();
                // The kubelet sends SIGTERM. Then the server stops after a delay, because the
                // Service may still route clients to this replica. A person at a terminal sends
                // SIGINT. Then the server stops without the delay.
                if signal == Signal::Terminate && self.may_be_routed_to() {
                    wait_while_unready(&mut signals).await?;
                }
                None
            }
            ended = self.tasks.next_ended() => Some(ended),
        };
        self.shared.readiness.drain();
        self.shutdown.cancel();
        self.shared.replica_status.end_streams(false);
        tokio::select! {
            () = self.tasks.finish() => {}
            _ = signals.next() => bail!(STOPPED_AT_ONCE),
        }
        match early {
            Some(task) => bail!("the task {task:?} ended before the shutdown"),
            None => Ok(()),
        }
    }

    /// Returns true if a Service may route clients to this replica: a readiness probe has
    /// succeeded, or the index has been complete. Before that, this replica serves no operations,
    /// so a shutdown interrupts no client.
    fn may_be_routed_to(&self) -> bool {
        let readiness = &self.shared.readiness;
        self.behind_service && (readiness.was_ready() || readiness.synced())
    }
}

/// Waits for [`UNREADY_PERIOD`], so that the Service routes clients to other replicas. Returns an
/// error at once if a second signal arrives.
async fn wait_while_unready(signals: &mut Signals) -> anyhow::Result<()> {
    tracing::info!(
        "SIGTERM: this server is now unready, and stops in {} s",
        UNREADY_PERIOD.as_secs()
    );
    tokio::select! {
        () = tokio::time::sleep(UNREADY_PERIOD) => Ok(()),
        _ = signals.next() => bail!(STOPPED_AT_ONCE),
    }
}

/// The authenticator and the authorizers of requests.
struct Access {
    authenticate: Arc<dyn aggregated_apiserver::auth::Authenticate>,
    authorize: Arc<dyn aggregated_apiserver::auth::Authorize>,
    /// Decides which subjects (the objects on which operations run) a user may get. This authorizer
    /// has no cache. None if the server hides no operations.
    authorize_subjects: Option<Arc<dyn aggregated_apiserver::auth::Authorize>>,
}
