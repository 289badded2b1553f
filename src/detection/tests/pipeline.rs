//! Runs the supervisor, the tracker and an index for tests.

use crate::detection::Supervisor;
use crate::index::{self, Bounds, Cursor, IndexReader, index};
use crate::replicate::Leadership;
use crate::rules::Feedback;
use crate::telemetry::Metrics;
use crate::tracker_task::{self, ActivityWriter};
use ifo_api::completeness::Gaps;
use ifo_engine::rules::RuleBook;
use ifo_engine::track::{Message, Publication, Tracker, TrackerSettings};
use ifo_observe::Feed;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The settings of a tracker with this debounce period, which retains no operations and has
/// `max_records` records.
pub(crate) fn settings(debounce: Duration, max_records: usize) -> TrackerSettings {
    TrackerSettings {
        debounce,
        retain: None,
        max_records,
        cluster_namespace: "ifo-system".into(),
    }
}

/// A supervisor and a tracker that write an index. When the publications are dropped, all tasks end.
pub(crate) struct TestPipeline {
    pub(crate) publications: mpsc::Sender<Publication>,
    _reports: mpsc::Receiver<Feedback>,
    pub(crate) operations: IndexReader,
    /// Delivers all changes of operations.
    pub(crate) changes: Cursor,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) tasks: JoinSet<()>,
}

impl TestPipeline {
    /// Starts the tasks. All rule sets work.
    pub(crate) fn start(feed: Arc<dyn Feed>, settings: TrackerSettings, resync: Duration) -> Self {
        let (mut writer, operations) = index(Bounds {
            bytes: 1 << 30,
            age: Duration::from_hours(1_000),
        });
        let metrics = Arc::new(Metrics::new());
        let (tracker, messages) = mpsc::channel(tracker_task::QUEUE_CAPACITY);
        let (feedback, reports) = mpsc::channel(4096);
        let (publications, published) = mpsc::channel(64);
        let gaps = Gaps {
            rule_sets_are_read: true,
            total: 1,
            ..Gaps::default()
        };
        let sent = tracker.try_send(Message::Gaps(gaps));
        sent.expect("the queue is empty");
        let supervisor = Supervisor {
            feed,
            tracker,
            feedback,
            metrics: metrics.clone(),
            resync,
            stored_bytes: Arc::default(),
            time: Arc::default(),
        };
        let activity = ActivityWriter::new("ifo-system".into(), &operations);
        let changes = operations.follow_newest(index::OPERATIONS);
        let meter = metrics.clone();
        let mut tasks = JoinSet::new();
        tasks.spawn(supervisor.run(published));
        tasks.spawn(async move {
            let tracker = Tracker::new(settings, meter.clone());
            let leadership = Leadership::alone(writer.head());
            tracker_task::run(tracker, &mut writer, &leadership, messages, activity, meter).await;
        });
        Self {
            publications,
            _reports: reports,
            operations,
            changes,
            metrics,
            tasks,
        }
    }

    /// Publishes a rule book for its target.
    pub(crate) async fn publish(&self, book: Arc<RuleBook>) {
        let publication = Publication {
            target: Arc::new(book.target.clone()),
            book: Some(book),
            removed: false,
        };
        let sent = self.publications.send(publication).await;
        sent.expect("the supervisor is running");
    }
}
