//! Joins the rooms. The only place that knows all of them: what enters is a
//! [`Config`], what leaves is a running server.
//!
//! Every long-lived task sits in one [`JoinSet`]; one that ends early ends the process,
//! since what it kept true would silently stop being so.

mod cluster;
mod demo;
mod listener;
mod persistence;
mod signals;

pub use signals::{Signal, Signals};

use crate::clock;
use crate::config::{Common, Config, Mode};
use crate::index::{self, Bounds, Object, Reader, Scope};
use crate::observe::{Feed, Supervisor};
use crate::persist::Unread;
use crate::rules::{
    Controller, Inputs, Outputs, Report, Reporter, Resolve, RuleSetEvent, StatusSink,
};
use crate::serve::{self, Health, Limits, Resource, Server, VersionInfo, resource};
use crate::telemetry::{IndexSample, Metrics, OperationSample};
use crate::tracking;
use anyhow::bail;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use ifo_api::Source;
use ifo_api::live::Phase;
use ifo_engine::rules::Bookless;
use ifo_engine::track::{Message, Retention, Settings, Tracker};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// How much of the past the ring keeps: enough to resume a watch after a restart of the
/// kube-apiserver, which takes well under five minutes.
const RING: Bounds = Bounds {
    bytes: 4 << 20,
    age: Duration::from_mins(5),
};

/// Time between becoming unready and refusing connections, if a Service may lead clients
/// here: the aggregator and kube-proxy need some seconds to learn that this endpoint is gone.
const UNREADY: Duration = Duration::from_secs(5);

/// Reports of feeds that may wait for the controller; when it is full, feeds wait.
const FEEDBACK: usize = 256;

/// Books that may wait for the supervisor; when it is full, the controller waits.
const PUBLICATIONS: usize = 64;

/// Runs until a signal stops it, also while it starts.
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

/// What every way of running has.
struct App {
    tasks: JoinSet<&'static str>,
    /// Those that end by themselves once the shutdown has begun, and are waited for.
    last: JoinSet<&'static str>,
    metrics: Arc<Metrics>,
    health: Arc<Health>,
    shutdown: CancellationToken,
    /// Whether it may be an endpoint of a Service.
    behind_service: bool,
    /// Set once every target has been read since the start or is known to have a gap,
    /// however long that took, to the rule sets whose targets have one: what is not in the
    /// index then, and not theirs, is over.
    settled: watch::Sender<Option<Arc<Unread>>>,
    version: String,
    limits: Limits,
    operations: Reader,
    tracker: mpsc::Sender<Message>,
    /// Which rule sets work.
    report: watch::Sender<Arc<Report>>,
    cluster_namespace: Arc<str>,
}

/// Where the pipeline's input comes from.
struct Origin {
    feed: Arc<dyn Feed>,
    resolve: Arc<dyn Resolve>,
    rule_sets: BoxStream<'static, RuleSetEvent>,
    status: Arc<dyn StatusSink>,
    /// Ends when what was there before a restart has been told to the tracker.
    restored: BoxFuture<'static, ()>,
}

impl App {
    /// An index, and the tracker that writes it.
    fn start(common: &Common, behind_service: bool) -> Self {
        let metrics = Arc::new(Metrics::of_version(&common.version));
        let (writer, operations) = index::index(&resource::LIVE_LAYOUT, RING);
        let settings = Settings {
            debounce: common.debounce,
            retain: common.retain.then_some(Retention {
                age: common.retain_for,
                most: common.retain_max,
            }),
            cluster_namespace: common.cluster_operations_namespace.as_str().into(),
        };
        let (tracker, messages) = mpsc::channel(tracking::QUEUE);
        let mut tasks = JoinSet::new();
        let run = tracking::run(
            Tracker::new(settings, metrics.clone()),
            writer,
            messages,
            metrics.clone(),
        );
        spawn(&mut tasks, "tracker", run);
        let sampled = operations.clone();
        metrics.read_index_with(move || sample(&sampled));
        Self {
            tasks,
            last: JoinSet::new(),
            metrics,
            health: Arc::new(Health::new()),
            shutdown: CancellationToken::new(),
            behind_service,
            settled: watch::Sender::new(None),
            version: common.version.clone(),
            limits: common.limits,
            operations,
            tracker,
            report: watch::Sender::default(),
            cluster_namespace: common.cluster_operations_namespace.as_str().into(),
        }
    }

    /// Adds a task that must not end.
    fn keep(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        spawn(&mut self.tasks, name, task);
    }

    /// Rule sets to books, books to feeds, feeds to the tracker.
    fn detect(&mut self, common: &Common, origin: Origin) {
        let (publications, published) = mpsc::channel(PUBLICATIONS);
        let (feedback, reported) = mpsc::channel(FEEDBACK);
        let (caught_up, catching_up) = watch::channel(None);
        let (unread, left) = watch::channel(Arc::default());
        let supervisor = Supervisor {
            feed: origin.feed,
            tracker: self.tracker.clone(),
            feedback,
            metrics: self.metrics.clone(),
            resync: common.resync,
        };
        self.keep("supervisor", supervisor.run(published));
        let (restored, may_serve) = oneshot::channel();
        // Without rule sets there are no feeds: nothing is detected before.
        let before = origin.restored.map(move |()| {
            // Nobody waits when the process is stopping.
            let _ = restored.send(());
            origin.rule_sets
        });
        let controller = Controller::new(origin.resolve, common.requeue, common.allow_secrets);
        let inputs = Inputs {
            rule_sets: before.flatten_stream().boxed(),
            feedback: reported,
        };
        let outputs = Outputs {
            publications,
            caught_up,
            unread,
            report: self.report.clone(),
            status: origin.status,
        };
        self.keep("rules", controller.run(inputs, outputs));
        let synced = first_sync(
            may_serve,
            (catching_up, left),
            self.tracker.clone(),
            self.health.clone(),
            self.settled.clone(),
            common.sync_timeout,
        );
        self.keep("first sync", synced);
    }

    /// The HTTP side, without its listener.
    fn server(
        &self,
        access: Access,
        more: Option<Resource>,
        core: serve::discovery::CoreGroup,
    ) -> Server {
        let mut resources = vec![resource::inflight_operations(self.operations.clone())];
        resources.extend(more);
        Server {
            resources,
            authenticate: access.authenticate,
            authorize: access.authorize,
            completeness: Arc::new(Reporter::new(
                self.report.subscribe(),
                self.cluster_namespace.clone(),
            )),
            health: self.health.clone(),
            metrics: self.metrics.clone(),
            version: VersionInfo {
                version: self.version.clone(),
                ..VersionInfo::default()
            },
            core,
            limits: self.limits,
            shutdown: self.shutdown.clone(),
        }
    }

    /// Waits for a signal or for a task that ends early; then drains and stops.
    async fn until_stopped(
        mut self,
        listening: impl Future<Output = ()> + Send + 'static,
        mut signals: Signals,
    ) -> anyhow::Result<()> {
        let mut listening = tokio::spawn(listening);
        let early = tokio::select! {
            signal = signals.next() => {
                self.health.drain();
                // A person at a terminal sends SIGINT, and does not want to wait.
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

    /// Whether a Service may lead clients here: its readiness probe has succeeded, or data
    /// is served. Before that a stop interrupts no client.
    fn may_be_routed_to(&self) -> bool {
        self.behind_service && (self.health.was_ready() || self.health.synced())
    }
}

/// Gives the Service time to lead clients elsewhere. A second signal does not wait.
async fn unready(signals: &mut Signals) -> anyhow::Result<()> {
    tracing::info!(
        "SIGTERM: not ready any more, stopping in {} s",
        UNREADY.as_secs()
    );
    tokio::select! {
        () = tokio::time::sleep(UNREADY) => Ok(()),
        _ = signals.next() => bail!("stopped at once by a second signal"),
    }
}

/// Who asks, and whether they may.
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

/// Data is served once what was there before a restart is there again, every feed of the
/// first rule sets has reported and what they brought is in the index, or at the latest
/// `limit` after the first. Never ends.
async fn first_sync(
    restored: oneshot::Receiver<()>,
    (mut caught_up, mut unread): (
        watch::Receiver<Option<Arc<Bookless>>>,
        watch::Receiver<Arc<Unread>>,
    ),
    tracker: mpsc::Sender<Message>,
    health: Arc<Health>,
    settled: watch::Sender<Option<Arc<Unread>>>,
    limit: Duration,
) {
    // It always comes, but when the process is stopping.
    let _ = restored.await;
    let complete = async {
        // A closed channel means that the process is stopping.
        let _ = caught_up.wait_for(Option::is_some).await;
        booked(&mut caught_up, &tracker).await;
    };
    if tokio::time::timeout(limit, complete).await.is_err() {
        tracing::warn!(
            "not every target has been read within {} s; serving what is there",
            limit.as_secs()
        );
    } else {
        tracing::info!("every target has been read");
    }
    health.set_synced();
    loop {
        // What is read by now is in the index after that.
        let left = unread.borrow_and_update().clone();
        booked(&mut caught_up, &tracker).await;
        if caught_up.borrow().is_some() {
            settled.send_replace(Some(left));
        }
        let changed = tokio::select! {
            changed = caught_up.changed() => changed,
            changed = unread.changed() => changed,
        };
        if changed.is_err() {
            return std::future::pending().await;
        }
    }
}

/// Tells the tracker which rule sets have no book, and waits until it has heard of it and
/// of all before.
async fn booked(
    caught_up: &mut watch::Receiver<Option<Arc<Bookless>>>,
    tracker: &mpsc::Sender<Message>,
) {
    let Some(bookless) = caught_up.borrow_and_update().clone() else {
        return;
    };
    let (done, flushed) = oneshot::channel();
    for message in [Message::Booked(bookless), Message::Flush(done)] {
        if tracker.send(message).await.is_err() {
            return;
        }
    }
    let _ = flushed.await;
}

/// What the metrics show of the index.
fn sample(reader: &Reader) -> IndexSample {
    fn value<T: DeserializeOwned>(object: &Object<'_>, path: &[&str]) -> Option<T> {
        let mut paths = resource::LIVE_LAYOUT.paths.iter();
        let number = paths.position(|own| *own == path)?;
        serde_json::from_slice(object.value(number)?).ok()
    }
    let now = clock::now();
    let entries = reader
        .list(&Scope::All, index::At::Latest)
        .map(|(_, entries)| entries)
        .unwrap_or_default();
    IndexSample {
        operations: entries
            .iter()
            .filter_map(|entry| {
                let object = entry.open();
                let started: Timestamp = value(&object, &["metadata", "creationTimestamp"])?;
                let phase: Phase = value(&object, &["status", "phase"])?;
                Some(OperationSample {
                    component: value(&object, &["spec", "component"])?,
                    operation: value(&object, &["spec", "operation"])?,
                    state: value(&object, &["status", "state"])?,
                    age: (phase == Phase::Active)
                        .then(|| now.duration_since(started).as_secs_f64()),
                })
            })
            .collect(),
        ring_bytes: reader.ring_bytes(),
        ring_age: reader.ring_age(),
    }
}

/// Where rule sets come from, as a feed's source.
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
