//! The pipeline of a leader: rule sets to books, books to feeds, feeds to the tracker. Enters:
//! where rule sets and objects come from. Leaves: messages to the tracker, and the moment from
//! which on data is served.

use super::replica::LeaderTerm;
use crate::config::Common;
use crate::detection::Supervisor;
use crate::observe::{Feed, Resolve};
use crate::persist::Unread;
use crate::rules::{Controller, Inputs, Outputs, Report, RuleSetEvent, StatusSink};
use crate::serve::Health;
use crate::telemetry::Metrics;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use ifo_engine::rules::Bookless;
use ifo_engine::track::{Message, Retention, Tracker, TrackerSettings};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// Reports of feeds that may wait for the controller; when it is full, feeds wait.
const FEEDBACK: usize = 256;

/// Books that may wait for the supervisor; when it is full, the controller waits.
const PUBLICATIONS: usize = 64;

/// Where the pipeline's input comes from.
pub(super) struct PipelineInput {
    pub(super) feed: Arc<dyn Feed>,
    pub(super) resolve: Arc<dyn Resolve>,
    pub(super) rule_sets: BoxStream<'static, RuleSetEvent>,
    pub(super) status: Arc<dyn StatusSink>,
    /// Ends when the tracker has been told what it continues from.
    pub(super) restored: BoxFuture<'static, ()>,
    /// Set once every target has been read since the term began or is known to have a gap,
    /// however long that took, to the rule sets whose targets have one: what is not in the
    /// index then, and not theirs, is over.
    pub(super) settled: watch::Sender<Option<Arc<Unread>>>,
}

/// How operations are detected, in every term.
pub(super) struct DetectionSetup {
    pub(super) metrics: Arc<Metrics>,
    pub(super) health: Arc<Health>,
    /// Which rule sets work.
    pub(super) report: watch::Sender<Arc<Report>>,
    common: Common,
}

impl DetectionSetup {
    pub(super) fn new(
        common: Common,
        metrics: Arc<Metrics>,
        health: Arc<Health>,
        report: watch::Sender<Arc<Report>>,
    ) -> Self {
        Self {
            metrics,
            health,
            report,
            common,
        }
    }

    /// A tracker that knows nothing yet.
    pub(super) fn tracker(&self) -> Tracker {
        let common = &self.common;
        let settings = TrackerSettings {
            debounce: common.debounce,
            retain: common.retain.then_some(Retention {
                age: common.retain_for,
                most: common.retain_max,
            }),
            cluster_namespace: common.cluster_operations_namespace.as_str().into(),
        };
        Tracker::new(settings, self.metrics.clone())
    }

    /// What this replica knew of rule sets is over with its term.
    pub(super) fn forget(&self) {
        self.report.send_replace(Arc::default());
    }

    /// Starts the pipeline.
    pub(super) fn start(&self, term: &mut LeaderTerm, origin: PipelineInput) {
        let common = &self.common;
        let (publications, published) = mpsc::channel(PUBLICATIONS);
        let (feedback, reported) = mpsc::channel(FEEDBACK);
        let (caught_up, catching_up) = watch::channel(None);
        let (unread, left) = watch::channel(Arc::default());
        let supervisor = Supervisor {
            feed: origin.feed,
            tracker: term.tracker.clone(),
            feedback,
            metrics: self.metrics.clone(),
            resync: common.resync,
        };
        term.keep("supervisor", supervisor.run(published));
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
        term.keep("rules", controller.run(inputs, outputs));
        let synced = first_sync(
            may_serve,
            (catching_up, left),
            term.tracker.clone(),
            self.health.clone(),
            origin.settled,
            common.sync_timeout,
        );
        term.keep("first sync", synced);
    }
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
