//! The task that owns the tracker. The tracker is a state machine: it starts, changes and completes
//! operations, according to the rules that match the watched objects (subjects). The task runs
//! while this replica leads.
//!
//! The task receives messages about the subjects from all feeds (the watches of the resources that
//! rule sets name), and messages about rule sets and namespaces. It gives each message to the
//! tracker with the current time. The task commits the tracker's changes to the index (the
//! operations in memory). Each change gets a resourceVersion that this leader has reserved in the
//! Lease.

use crate::clock;
use crate::index::{Error, Rv, VersionAssignment, Write, Writer};
use crate::replicate::Leadership;
use crate::telemetry::Metrics;
use ifo_engine::detect::FeedEvent;
pub use ifo_engine::track::Message;
use ifo_engine::track::Tracker;
use std::sync::Arc;
use tokio::sync::mpsc;

/// The capacity of the queue of messages to the tracker. When the queue is full, the feeds wait and
/// do not read from their connections. So no message is dropped, and memory stays bounded.
pub const QUEUE_CAPACITY: usize = 1024;

/// The largest number of messages in a batch. The task commits the changes of a batch together, so
/// clients see the change of the first message only after the last message. This limit keeps that
/// delay short. Further messages wait for the next batch.
const MAX_BATCH: usize = 256;

/// Processes messages until all senders are dropped or the leadership is lost. The index keeps its
/// content when this function returns.
///
/// The future can be dropped at any time, because a batch of changes is committed completely or not
/// at all.
pub async fn run(
    mut tracker: Tracker,
    writer: &mut Writer,
    leadership: &Leadership,
    mut messages: mpsc::Receiver<Message>,
    metrics: Arc<Metrics>,
) {
    let mut batch = Vec::with_capacity(MAX_BATCH);
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
            received = messages.recv_many(&mut batch, MAX_BATCH) => if received == 0 { return },
            () = expired => {}
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
            if let Message::Feed {
                event: FeedEvent::Evaluated { read, .. } | FeedEvent::Deleted { read, .. },
                ..
            } = &message
            {
                read_times.push(*read);
            }
            tracker.advance(message, now);
            if tracker.has_full_batch() {
                let Some(changed) = commit_all(&mut tracker, writer, leadership).await else {
                    return;
                };
                has_changed |= changed;
            }
        }
        tracker.expire(now);
        let Some(changed) = commit_all(&mut tracker, writer, leadership).await else {
            return;
        };
        has_changed |= changed;
        tracker.committed();
        if has_changed {
            for read in read_times {
                metrics.event_visible(clock::since(read));
            }
        }
        for done in unanswered_flushes {
            // `send` returns an error if the sender of the `Flush` message no longer waits.
            let _ = done.send(());
        }
    }
}

/// Commits all changes of the tracker. Many changes are committed in several batches, so that they
/// need little memory. Returns true if there were changes, and None if this replica loses the
/// leadership before it has committed all of them.
async fn commit_all(
    tracker: &mut Tracker,
    writer: &mut Writer,
    leadership: &Leadership,
) -> Option<bool> {
    let mut has_changed = false;
    loop {
        let changes = tracker.take_batch();
        if changes.is_empty() {
            return Some(has_changed);
        }
        has_changed = true;
        if !commit(writer, leadership, changes).await {
            return None;
        }
        if tracker.has_full_batch() {
            // Other tasks can run before the next batch.
            tokio::task::yield_now().await;
        }
    }
}

/// Waits until this leader has reserved enough resourceVersions in the Lease, and then commits the
/// changes. Returns false if this replica loses the leadership before the commit. Otherwise returns
/// true. If the index rejects the changes, logs an error and also returns true.
async fn commit(writer: &mut Writer, leadership: &Leadership, changes: Vec<Write>) -> bool {
    loop {
        // If the process is paused after this call, another replica can become leader, and this
        // replica still commits the changes. This is safe, because the new leader does not issue
        // the resourceVersions that this replica has reserved.
        writer.reserve(leadership.reserved());
        match writer.commit(&changes, VersionAssignment::Mint) {
            Err(Error::NotReserved { next, .. }) => {
                if !leadership.reserved_above(Rv(next.0 - 1)).await {
                    return false;
                }
            }
            Err(error) => {
                tracing::error!(%error, "operations could not be written to the index");
                return true;
            }
            Ok(_) => return true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Bounds, IndexReader, ListScope, ReadVersion, Write, index};
    use ifo_api::live::InFlightOperation;
    use ifo_api::{Gvr, Source};
    use ifo_engine::detect::{Evaluation, Finding, RuleValues, Subject};
    use ifo_engine::rules::{RuleBook, compile};
    use ifo_engine::track::{InitialState, TrackerSettings};
    use serde_json::json;
    use std::time::{Duration, Instant};
    use tokio::sync::oneshot;

    fn book(target: &Gvr) -> RuleBook {
        let spec = json!({
            "component": "kubevirt",
            "target": target,
            "rules": [{"operation": "Migrating", "expression": "true"}],
        });
        let spec = serde_json::from_value(spec).expect("the JSON has the fields of a rule set");
        let rule_set = Arc::new(compile("vm-rules", &spec).expect("the rules are valid"));
        RuleBook::new(1, target.clone(), "Machine".into(), true, vec![rule_set])
    }

    /// Returns a detection of one operation on one subject.
    fn migrating(book: &RuleBook) -> Evaluation {
        Evaluation {
            subject: Subject {
                uid: Some("uid-vm".into()),
                name: "vm".into(),
                namespace: Some("ns".into()),
                ..Subject::default()
            },
            findings: vec![Finding {
                rule_set: book.rule_sets[0].clone(),
                operation: "Migrating".into(),
                item: None,
                values: Some(RuleValues::default()),
            }],
            evaluated_elements: Vec::new(),
            outcomes: Vec::new(),
            unselected: Vec::new(),
            failures: Vec::new(),
            unknown: Vec::new(),
            time_dependent: Vec::new(),
        }
    }

    /// Runs the tracker task until it has processed these messages.
    async fn run_until_processed(writer: Writer, messages: Vec<Message>) {
        let settings = TrackerSettings {
            debounce: Duration::from_secs(30),
            retain: None,
            max_records: 0,
            cluster_namespace: "ifo-system".into(),
        };
        let (sender, queue) = mpsc::channel(QUEUE_CAPACITY);
        let metrics = Arc::new(Metrics::new());
        let tracker = Tracker::new(settings, metrics.clone());
        let running = tokio::spawn(async move {
            let mut writer = writer;
            let leadership = Leadership::alone(writer.head());
            run(tracker, &mut writer, &leadership, queue, metrics).await;
        });
        let (done, flushed) = oneshot::channel();
        for message in messages.into_iter().chain([Message::Flush(done)]) {
            sender
                .send(message)
                .await
                .expect("the task runs until its senders are dropped");
        }
        flushed.await.expect("the task answers each flush");
        drop(sender);
        running.await.expect("the task does not panic");
    }

    fn new_index() -> (Writer, IndexReader) {
        let bounds = Bounds {
            bytes: 1 << 20,
            age: Duration::from_mins(1),
        };
        index(bounds)
    }

    #[tokio::test]
    async fn a_takeover_changes_the_index_only_to_delete_operations_with_an_invalid_uid() {
        let target = Arc::new(Gvr {
            group: "example.com".into(),
            version: "v1".into(),
            resource: "machines".into(),
        });
        let book = Arc::new(book(&target));
        let rules = Message::Rules {
            target: target.clone(),
            book: Some(book.clone()),
            removed: false,
        };
        let source = Source {
            target,
            namespace: None,
        };
        let event = FeedEvent::Evaluated {
            evaluation: Box::new(migrating(&book)),
            read: Instant::now(),
        };
        let detected = Message::Feed {
            source,
            generation: 1,
            event,
        };
        let (leader_index, listed) = new_index();
        run_until_processed(leader_index, vec![rules, detected]).await;
        let list = |reader: &IndexReader| {
            reader
                .list(&ListScope::Operations, ReadVersion::Latest)
                .expect("the newest state is always available")
                .1
        };
        let entry = list(&listed).pop().expect("the rule matches every object");
        let operation = entry.object().operation().expect("it is no record");

        for is_broken in [false, true] {
            let (mut follower_index, reader) = new_index();
            let mut operation = InFlightOperation::clone(operation);
            if is_broken {
                operation.metadata.uid = "not a UUID".into();
            }
            let write = Write::Put {
                key: entry.key().clone(),
                object: operation.into(),
            };
            let head = follower_index
                .commit(vec![write], VersionAssignment::Mint)
                .expect("an index accepts every new version before the first call of `reserve`");
            let mut state = InitialState::new("ifo-system".into(), None);
            for entry in list(&reader) {
                state.add_index_object(entry.key(), entry.object(), clock::reading());
            }
            run_until_processed(follower_index, vec![Message::Resume(Box::new(state))]).await;
            assert_eq!(reader.head() == head, !is_broken);
            assert_eq!(reader.is_empty(), is_broken);
        }
    }
}
