//! The task that owns the tracker. The tracker is a state machine: it starts, changes and completes
//! operations, according to the rules that match the watched objects (subjects). The task runs
//! while this replica leads.
//!
//! All feeds (the watches of the resources that rule sets name) send messages about the subjects to
//! the task. Other tasks send messages about rule sets, namespaces, nodes and gaps. A gap is a rule
//! set that may miss operations. The tracker gets the messages about subjects, rule sets and
//! namespaces, with the current time. The [`ActivityWriter`] gets the namespaces, the nodes and the
//! gaps. The task commits the changes of both to the index (the objects in memory). Each change
//! gets a resourceVersion that this leader has reserved in the Lease.

use crate::clock;
use crate::index::{
    Error, IndexReader, Object, ReadVersion, Rv, Scope, VersionAssignment, Writer, engine_key,
    index_write,
};
use crate::replicate::Leadership;
use crate::telemetry::Metrics;
use ifo_api::Text;
use ifo_api::completeness::{Gaps, GapsObject};
use ifo_engine::activity::Activities;
use ifo_engine::detect::FeedEvent;
pub use ifo_engine::track::{Existing, Message};
use ifo_engine::track::{Tracker, Write};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The capacity of the queue of messages to the tracker. When the queue is full, the feeds wait and
/// do not read from their connections. So no message is dropped, and memory stays bounded.
pub const QUEUE_CAPACITY: usize = 1024;

/// The largest number of messages that the task takes from the queue at once. The task usually
/// commits the changes of all these messages after the last one, so clients see the change of the
/// first message late. This limit keeps that delay short.
const MAX_BATCH: usize = 256;

/// The interval at which [`send_gaps`] checks whether the gaps have changed.
const GAPS_INTERVAL: Duration = Duration::from_millis(200);

/// The shortest interval at which the numbers in the activities, such as `operations`, are written.
const NUMBERS_INTERVAL: Duration = Duration::from_secs(1);

/// Returns the rule sets that may miss operations now.
pub type ReadGaps = Arc<dyn Fn() -> Gaps + Send + Sync>;

/// Keeps the activities and the [`Gaps`] in the index up to date. The task commits the status of an
/// activity together with the operations that change it. Gaps, numbers, and the names of namespaces
/// and nodes are committed separately.
pub struct ActivityWriter {
    activities: Activities,
    numbers_at: Instant,
}

impl ActivityWriter {
    /// Creates the writer of a leadership term. At first, no activity is idle, because
    /// this leader has not read the targets of the rule sets.
    pub fn new(cluster_namespace: Text, reader: &IndexReader) -> Self {
        let listed = reader.list(&Scope::Everything, ReadVersion::Latest);
        let entries = listed.map(|(_, entries)| entries).unwrap_or_default();
        let keys: Vec<_> = entries.iter().map(|it| engine_key(it.key())).collect();
        let objects = entries.iter().map(|entry| entry.object());
        Self {
            activities: Activities::new(cluster_namespace, keys.iter().zip(objects)),
            numbers_at: Instant::now(),
        }
    }

    /// Adds the writes of the activities that change with the operations in `batch`.
    fn complete(&mut self, batch: &mut Vec<Write>) {
        for write in &*batch {
            self.activities.record(write);
        }
        self.surround(batch);
    }

    /// Adds the writes of activities to a batch. Each write of a batch gets its own
    /// resourceVersion, so the order of the writes matters:
    ///
    /// - Writes of activities that are not idle come first.
    /// - Then come the writes that were in the batch before.
    /// - Writes of activities that are idle, and deletions of activities, come last.
    ///
    /// So an activity is not idle at any resourceVersion at which an operation is in flight or may
    /// be missing.
    fn surround(&mut self, batch: &mut Vec<Write>) {
        let writes = self.activities.writes(clock::now(), false);
        let is_idle = |write: &Write| match write {
            Write::Put { object, .. } => {
                let idle = object.activity().and_then(|activity| activity.idle());
                idle.is_some_and(|idle| idle.status == "True")
            }
            Write::Delete { .. } => true,
        };
        let (last, first): (Vec<Write>, Vec<Write>) = writes.into_iter().partition(is_idle);
        batch.splice(0..0, first);
        batch.extend(last);
    }

    /// Returns the writes for outdated numbers, at most once per [`NUMBERS_INTERVAL`].
    fn update_numbers(&mut self) -> Vec<Write> {
        let now = Instant::now();
        if now < self.numbers_at || !self.activities.has_outdated_numbers() {
            return Vec::new();
        }
        self.numbers_at = now + NUMBERS_INTERVAL;
        self.activities.writes(clock::now(), true)
    }

    /// Returns the writes of the gaps and of the activities that change with the gaps.
    fn show(&mut self, gaps: Gaps) -> Vec<Write> {
        self.activities.set_gaps(Arc::new(gaps.clone()));
        let mut writes = vec![Write::Put {
            key: GapsObject::key(),
            object: Object::Gaps(Arc::new(GapsObject::new(gaps))),
        }];
        self.surround(&mut writes);
        writes
    }

    /// Records the namespaces or nodes that exist. Returns the writes of the activities that
    /// change.
    fn set_existing(&mut self, existing: &Existing) -> Vec<Write> {
        self.activities.set_existing(existing);
        self.activities.writes(clock::now(), false)
    }
}

/// Sends the gaps to the tracker's queue when the gaps change. Returns when the tracker has ended.
///
/// A feed first sends the operations that it has detected, and then ends its gap. So in the queue
/// of the tracker, these operations precede the end of the gap.
pub async fn send_gaps(read_gaps: ReadGaps, tracker: mpsc::Sender<Message>) {
    let mut sent = Gaps::default();
    loop {
        // While the queue is full, the gaps can change. So this task waits for space in the queue,
        // and then reads the gaps.
        let Ok(permit) = tracker.reserve().await else {
            return;
        };
        let gaps = read_gaps();
        if gaps != sent {
            sent = gaps.clone();
            permit.send(Message::Gaps(gaps));
        }
        tokio::time::sleep(GAPS_INTERVAL).await;
    }
}

/// Processes messages until all senders are dropped. Returns None if the leadership is lost while a
/// commit needs further resourceVersions. The index keeps its content when this function returns.
///
/// The future can be dropped at any time, because a batch of changes is committed completely or not
/// at all.
pub async fn run(
    mut tracker: Tracker,
    writer: &mut Writer,
    leadership: &Leadership,
    mut messages: mpsc::Receiver<Message>,
    mut activity: ActivityWriter,
    metrics: Arc<Metrics>,
) -> Option<()> {
    let mut batch = Vec::with_capacity(MAX_BATCH);
    let mut ticks = interval(NUMBERS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // At first, no activity is idle.
    commit(writer, leadership, activity.show(Gaps::default())).await?;
    loop {
        let deadline = tracker.next_deadline();
        let expired = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            received = messages.recv_many(&mut batch, MAX_BATCH) => if received == 0 { return Some(()) },
            () = expired => {}
            _ = ticks.tick() => {}
        }
        let now = clock::reading();
        let mut read_times = Vec::with_capacity(batch.len());
        let mut unanswered_flushes = Vec::new();
        let mut has_changed = false;
        for message in batch.drain(..) {
            if let Message::Flush(done) = message {
                unanswered_flushes.push(done);
                continue;
            }
            // A deletion with a channel is only a question: its answer leads to a further message.
            if let Message::Feed {
                event:
                    FeedEvent::Evaluated { read, .. }
                    | FeedEvent::Deleted {
                        read,
                        missing: None,
                        ..
                    },
                ..
            } = &message
            {
                read_times.push(*read);
            }
            match message {
                Message::Existing(existing) => {
                    commit(writer, leadership, activity.set_existing(&existing)).await?;
                    tracker.advance(Message::Existing(existing), now);
                }
                Message::Gaps(gaps) => {
                    has_changed |=
                        commit_all(&mut tracker, &mut activity, writer, leadership).await?;
                    commit(writer, leadership, activity.show(gaps)).await?;
                }
                message => tracker.advance(message, now),
            }
            if tracker.has_full_batch() {
                has_changed |= commit_all(&mut tracker, &mut activity, writer, leadership).await?;
            }
        }
        tracker.expire(now);
        has_changed |= commit_all(&mut tracker, &mut activity, writer, leadership).await?;
        tracker.committed();
        commit(writer, leadership, activity.update_numbers()).await?;
        if has_changed {
            for read in read_times {
                metrics
                    .series
                    .visible
                    .observe(clock::since(read).as_secs_f64());
            }
        }
        for done in unanswered_flushes {
            // `send` returns an error if the sender of the `Flush` message no longer waits.
            let _ = done.send(());
        }
    }
}

/// Commits all changes of the tracker. Many changes are committed in several batches, because one
/// large batch would need much memory. Returns true if there were changes, and None if the
/// leadership is lost while a commit needs further resourceVersions.
async fn commit_all(
    tracker: &mut Tracker,
    activity: &mut ActivityWriter,
    writer: &mut Writer,
    leadership: &Leadership,
) -> Option<bool> {
    let mut has_changed = false;
    loop {
        let mut changes = tracker.take_batch();
        if changes.is_empty() {
            return Some(has_changed);
        }
        activity.complete(&mut changes);
        has_changed = true;
        commit(writer, leadership, changes).await?;
        if tracker.has_full_batch() {
            // Other tasks can run before the next batch.
            tokio::task::yield_now().await;
        }
    }
}

/// Waits until this leader has reserved enough resourceVersions in the Lease, and then commits the
/// changes. Returns None if the leadership is lost during this wait.
async fn commit(writer: &mut Writer, leadership: &Leadership, changes: Vec<Write>) -> Option<()> {
    if changes.is_empty() {
        return Some(());
    }
    let changes: Vec<_> = changes.into_iter().map(index_write).collect();
    loop {
        // If the process is paused after this call, another replica can become leader, and this
        // replica still commits the changes. This is safe, because the new leader never issues a
        // resourceVersion that this replica has reserved.
        writer.reserve(leadership.reserved());
        match writer.commit(&changes, VersionAssignment::Mint) {
            Err(Error::NotReserved { next, .. }) => {
                leadership.reserved_above(Rv(next.0 - 1)).await?;
            }
            Ok(_) => return Some(()),
            Err(error) => unreachable!("a minted version is below the year 2255: {error}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Bounds, IndexChange, index};
    use crate::takeover::tests::{messages, tracker};
    use futures::FutureExt as _;

    /// A client that sees no gap must see all operations that were detected during the gap.
    #[tokio::test(start_paused = true)]
    async fn a_gap_ends_after_the_operations_that_were_detected_before() {
        let bounds = Bounds {
            bytes: 1 << 20,
            age: Duration::from_mins(1),
        };
        let (mut writer, reader) = index(bounds);
        let (sender, queue) = mpsc::channel(QUEUE_CAPACITY);
        let gaps = Gaps {
            rule_sets_are_read: true,
            total: 1,
            ..Gaps::default()
        };
        for message in messages("a", false) {
            sender.try_send(message).unwrap();
        }
        sender.try_send(Message::Gaps(gaps)).unwrap();
        drop(sender);
        let mut cursor = reader.follow_newest(Scope::Everything);
        let leadership = Leadership::alone(writer.head());
        let activity = ActivityWriter::new("ifo-system".into(), &reader);
        let metrics = Arc::new(Metrics::new());
        run(
            tracker(false),
            &mut writer,
            &leadership,
            queue,
            activity,
            metrics,
        )
        .await;
        let mut objects = Vec::new();
        while let Some(changes) = cursor.next().now_or_never() {
            let after = |change: IndexChange| Some(change.after?.object().clone());
            objects.extend(changes.unwrap().into_iter().filter_map(after));
        }
        let last_gaps = objects.iter().rposition(|it| matches!(it, Object::Gaps(_)));
        let operation = objects.iter().position(|it| it.operation().is_some());
        assert!(operation.is_some() && operation < last_gaps, "{objects:?}");
    }
}
