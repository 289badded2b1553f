//! Connects the modules of the server. No other module knows all of them.
//!
//! Input: a [`Config`]. Output: a running server.
//!
//! Every long-lived task is in one [`JoinSet`]. If such a task ends early, the process ends too.
//! Otherwise the data that the task maintains would become stale unnoticed.

mod cluster;
mod demo;
mod detection;
mod listener;
mod persistence;
mod pipeline_thread;
mod replica;
mod signals;

pub use signals::{Signal, Signals};

use crate::clock;
use crate::config::{Common, Config, Mode};
use crate::index::{self, Bounds, IndexReader, ListScope, Rv, Writer};
use crate::replicate::{
    self, LeaderQueries, LeaderView, Leadership, Mirror, Predecessor, ReplicaTask,
    ReplicatedReporter, View,
};
use crate::rules::{Report, Reporter};
use crate::serve::{
    AdvertisedResource, Connections, Health, Limits, Resource, Server, VersionInfo, resource,
};
use crate::telemetry::{IndexSample, Metrics, OperationSample};
use anyhow::bail;
use detection::DetectionSetup;
use futures::future::BoxFuture;
use ifo_api::Source;
use pipeline_thread::PipelineThread;
use replica::{BeginTerm, ServerPipeline};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// Size limit of the ring that holds past changes, in bytes. 12 MiB hold about 5,000 changes. That
/// is enough to resume watches after a restart of the kube-apiserver, which takes well under five
/// minutes.
const RING_BOUNDS: Bounds = Bounds {
    bytes: 12 << 20,
    age: Duration::from_mins(5),
};

/// Time between becoming unready and refusing connections, if a Service may route clients here. The
/// aggregator and kube-proxy need some seconds to remove this endpoint.
const UNREADY_PERIOD: Duration = Duration::from_secs(5);

/// Runs until a signal stops the server. A signal is also handled during the start.
pub async fn run(config: Config, signals: Signals) -> anyhow::Result<()> {
    match config.mode {
        Mode::Serve(serve) => cluster::run(config.common, serve, signals).await,
        Mode::Demo(demo) => demo::run(config.common, demo, signals).await,
    }
}

/// A server whose start is complete.
struct Started {
    app: App,
    /// Accepts connections until the shutdown.
    listening: BoxFuture<'static, ()>,
}

/// The parts that both modes have: in a cluster, and the demo.
struct App {
    tasks: JoinSet<&'static str>,
    /// Tasks that end by themselves after the shutdown has begun. The process waits for them.
    last: JoinSet<&'static str>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    shutdown: CancellationToken,
    /// True if this server may be an endpoint of a Service.
    behind_service: bool,
    version: String,
    limits: Limits,
    connections: Arc<Connections>,
    operations: IndexReader,
    /// Runs the replica: detection while it leads, the mirror while it follows.
    pipeline: PipelineThread,
    /// Taken out when the replica is started.
    replica: Option<(Writer, LeaderQueries)>,
    standing: watch::Sender<LeaderView>,
    view: View,
    /// Cancelled when this replica must not lead any more.
    retire: CancellationToken,
    /// Reports which rule sets work.
    report: watch::Sender<Arc<Report>>,
    cluster_namespace: Arc<str>,
}

impl App {
    /// Creates the parts with an empty index.
    fn start(common: &Common, behind_service: bool) -> anyhow::Result<Self> {
        let metrics = Arc::new(Metrics::of_version(&common.version));
        // No leader issues version 0, so a mirror cannot continue from it.
        let (writer, operations) = index::index_from(RING_BOUNDS, Rv(0));
        let standing = watch::Sender::new(LeaderView::Unknown);
        let (view, contact) = replicate::view(operations.clone(), standing.subscribe());
        let report = watch::Sender::default();
        let (sampled, own, reported) = (operations.clone(), view.clone(), report.subscribe());
        metrics.read_index_with(move || sample(&sampled, &own, &reported));
        Ok(Self {
            tasks: JoinSet::new(),
            last: JoinSet::new(),
            metrics,
            health: Arc::new(Health::new()),
            shutdown: CancellationToken::new(),
            behind_service,
            version: common.version.clone(),
            limits: common.limits,
            connections: Connections::new(common.limits.connections),
            operations,
            pipeline: PipelineThread::start()?,
            replica: Some((writer, contact)),
            standing,
            view,
            retire: CancellationToken::new(),
            report,
            cluster_namespace: common.cluster_operations_namespace.as_str().into(),
        })
    }

    /// Adds a task that must not end.
    fn keep(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        spawn(&mut self.tasks, name, task);
    }

    /// Leads from now on, without an election.
    fn lead(&mut self, common: &Common, begin: BeginTerm) {
        self.health.set_has_joined();
        let alone = Leadership::alone(Rv::of_clock(clock::now()));
        self.standing.send_replace(LeaderView::Leading(alone));
        if let Some((writer, _)) = self.replica.take() {
            self.begin(common, writer, None, None, begin);
        }
    }

    /// Follows or leads from now on, depending on its standing in the election.
    fn begin(
        &mut self,
        common: &Common,
        writer: Writer,
        following: Option<(Mirror, Predecessor)>,
        release: Option<oneshot::Sender<Rv>>,
        begin: BeginTerm,
    ) {
        let (mirror, predecessor) = following.unzip();
        let pipeline = ServerPipeline {
            operations: self.operations.clone(),
            detection: DetectionSetup::new(
                common.clone(),
                self.metrics.clone(),
                self.health.clone(),
                self.report.clone(),
            ),
            begin,
            running: None,
        };
        let replica = ReplicaTask {
            writer,
            operations: self.operations.clone(),
            standing: self.standing.subscribe(),
            mirror,
            predecessor,
            view: self.view.clone(),
            pipeline,
            retire: self.retire.clone(),
            release,
            shutdown: self.shutdown.clone(),
        };
        let run = async move { replica.run().await.unwrap_or("replica") };
        self.last.spawn_on(run, self.pipeline.handle());
    }

    /// Creates the HTTP server, without its listener.
    fn server(
        &self,
        access: Access,
        more: Option<Resource>,
        direct: Option<&'static [AdvertisedResource]>,
    ) -> Server {
        let reporter = Reporter::new(self.report.subscribe(), self.cluster_namespace.clone());
        let covered = ReplicatedReporter::new(reporter, self.view.clone());
        let own = covered.clone();
        let mut resources = vec![resource::inflight_operations(self.operations.clone())];
        resources.extend(more);
        Server {
            resources,
            authenticate: access.authenticate,
            authorize: access.authorize,
            completeness: Arc::new(covered),
            coverage: Arc::new(move || own.coverage()),
            view: self.view.clone(),
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            version: VersionInfo {
                version: self.version.clone(),
                ..VersionInfo::default()
            },
            direct,
            limits: self.limits,
            shutdown: self.shutdown.clone(),
        }
    }

    /// Waits for a signal or for a task that ends early. Then drains and stops.
    async fn until_stopped(
        mut self,
        listening: impl Future<Output = ()> + Send + 'static,
        mut signals: Signals,
    ) -> anyhow::Result<()> {
        let mut listening = tokio::spawn(listening);
        let early = tokio::select! {
            signal = signals.next() => {
                self.health.drain();
                // Another replica takes over the leadership. This replica follows until it ends.
                self.retire.cancel();
                // SIGINT comes from a person at a terminal, so it stops the server without this
                // delay.
                if signal == Signal::Terminate && self.may_be_routed_to() {
                    unready(&mut signals).await?;
                }
                None
            }
            Some(ended) = self.tasks.join_next() => Some(match ended {
                Ok(name) => name.to_owned(),
                Err(error) => error.to_string(),
            }),
            Some(ended) = self.last.join_next() => Some(match ended {
                Ok(name) => name.to_owned(),
                Err(error) => error.to_string(),
            }),
            _ = &mut listening => Some("listener".to_owned()),
        };
        self.health.drain();
        self.shutdown.cancel();
        self.view.end_streams(false);
        let drained = async {
            let _ = (&mut listening).await;
            while self.last.join_next().await.is_some() {}
        };
        tokio::select! {
            () = drained => {}
            _ = signals.next() => {}
        }
        self.last.shutdown().await;
        self.tasks.shutdown().await;
        match early {
            Some(task) => bail!("the task {task:?} ended, which it never should"),
            None => Ok(()),
        }
    }

    /// Returns true if a Service may route clients here: the readiness probe has succeeded, or data
    /// is served. Before that, a shutdown interrupts no client.
    fn may_be_routed_to(&self) -> bool {
        self.behind_service && (self.health.was_ready() || self.health.synced())
    }
}

/// Gives the Service time to route clients to other replicas. A second signal ends the delay.
async fn unready(signals: &mut Signals) -> anyhow::Result<()> {
    tracing::info!(
        "SIGTERM: this server is now unready, and stops in {} s",
        UNREADY_PERIOD.as_secs()
    );
    tokio::select! {
        () = tokio::time::sleep(UNREADY_PERIOD) => Ok(()),
        _ = signals.next() => bail!("stopped at once by a second signal"),
    }
}

/// Authentication and authorization of requests.
struct Access {
    authenticate: Arc<dyn crate::auth::Authenticate>,
    authorize: Arc<dyn crate::auth::Authorize>,
}

fn spawn(
    tasks: &mut JoinSet<&'static str>,
    name: &'static str,
    task: impl Future<Output = ()> + Send + 'static,
) {
    tasks.spawn(async move {
        task.await;
        name
    });
}

/// The sample of the index that the metrics show.
fn sample(
    reader: &IndexReader,
    view: &View,
    report: &watch::Receiver<Arc<Report>>,
) -> IndexSample {
    let now = clock::now();
    let entries = reader
        .list(&ListScope::All, index::ReadVersion::Latest)
        .map(|(_, entries)| entries)
        .unwrap_or_default();
    let operations = entries.iter();
    IndexSample {
        operations: operations
            .filter_map(|entry| OperationSample::new(entry, now))
            .collect(),
        ring_bytes: reader.ring_bytes(),
        ring_age: reader.ring_age(),
        lag: view.lag(),
        rule_sets: report.borrow().states(),
    }
}

/// The source of rule sets, as the source of a feed.
fn rule_set_source() -> Source {
    Source {
        target: Arc::new(ifo_api::Gvr {
            group: ifo_api::GROUP.to_owned(),
            version: ifo_api::VERSION.to_owned(),
            resource: "operationrulesets".to_owned(),
        }),
        namespace: None,
    }
}
