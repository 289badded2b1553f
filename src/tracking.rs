//! The task that owns the tracker and the index's writer. Enters: messages of the feeds, of
//! the controller of rule sets, of the restore at the start, and about namespaces. Leaves:
//! changes of the index.

use crate::clock;
use crate::index::{Rv, Stamp, Writer};
use crate::telemetry::Metrics;
use ifo_engine::track::{Event, Message, Now, Tracker};
use std::sync::Arc;
use tokio::sync::mpsc;

/// Messages that may wait for the tracker. When it is full, feeds wait, and so does
/// the connection they read from: nothing is dropped, memory stays bounded.
pub const QUEUE: usize = 1024;

/// Messages taken, and committed to the index, at once. Bounds how long a reader
/// waits for the first of them.
const BATCH: usize = 256;

/// Runs until all senders are gone, and then leaves the index as it is.
pub async fn run(
    mut tracker: Tracker,
    mut writer: Writer,
    mut messages: mpsc::Receiver<Message>,
    metrics: Arc<Metrics>,
) {
    let mut batch = Vec::with_capacity(BATCH);
    loop {
        let deadline = tracker.next_deadline();
        let expired = async {
            match deadline {
                Some(deadline) => tokio::time::sleep_until(deadline.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            received = messages.recv_many(&mut batch, BATCH) => if received == 0 { return },
            () = expired => {}
        }
        let now = now();
        let mut reads = Vec::with_capacity(batch.len());
        let mut flushed = Vec::new();
        for message in batch.drain(..) {
            if let Message::Flush(done) = message {
                flushed.push(done);
                continue;
            }
            if let Message::Restore {
                version: Some(version),
                ..
            } = &message
            {
                writer.raise(Rv(*version));
            }
            if let Message::Feed {
                event: Event::Evaluated { read, .. } | Event::Deleted { read, .. },
                ..
            } = &message
            {
                reads.push(*read);
            }
            tracker.advance(message, now);
        }
        tracker.expire(now);
        let changes = tracker.take_changes();
        if !changes.is_empty() {
            match writer.commit(changes, Stamp::Mint) {
                Ok(_) => reads
                    .iter()
                    .for_each(|read| metrics.event_visible(clock::since(*read))),
                Err(error) => {
                    tracing::error!(%error, "operations could not be written to the index");
                }
            }
        }
        for done in flushed {
            // The sender of the message may have dropped its receiver.
            let _ = done.send(());
        }
    }
}

/// The time now, on the clocks of this machine.
pub fn now() -> Now {
    Now {
        wall: clock::now(),
        steady: clock::steady(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::{Bounds, Layout, index};
    use ifo_api::{Gvr, Source};
    use ifo_engine::evaluate::{Evaluation, Finding, Says, Subject};
    use ifo_engine::rules::{RuleBook, compile};
    use ifo_engine::track::Settings;
    use serde_json::json;
    use std::time::{Duration, Instant};
    use tokio::sync::oneshot;

    static LAYOUT: Layout = Layout {
        paths: &[],
        example: b"",
    };

    fn book(target: &Gvr) -> RuleBook {
        let spec = json!({
            "component": "kubevirt",
            "target": target,
            "rules": [{"operation": "Migrating", "expression": "true"}],
        });
        let spec = serde_json::from_value(spec).expect("a spec");
        let rule_set = Arc::new(compile("vm-rules", &spec).expect("valid rules"));
        RuleBook::new(1, target.clone(), "Machine".into(), true, vec![rule_set])
    }

    /// One subject with one operation.
    fn migrating(book: &RuleBook) -> Evaluation {
        Evaluation {
            subject: Subject {
                name: "vm".into(),
                namespace: Some("ns".into()),
                ..Subject::default()
            },
            findings: vec![Finding {
                rule_set: book.rule_sets[0].clone(),
                operation: "Migrating".into(),
                item: None,
                says: Some(Says::default()),
            }],
            outcomes: Vec::new(),
            unselected: Vec::new(),
            failures: Vec::new(),
            unknown: Vec::new(),
            read_now: false,
        }
    }

    /// The version of the index after an operation was detected, and the version before,
    /// where operations were restored from a list at so many versions above that.
    async fn detected_after_restore(above: u64) -> (Rv, Rv) {
        let bounds = Bounds {
            bytes: 1 << 20,
            age: Duration::from_mins(1),
        };
        let (writer, reader) = index(&LAYOUT, bounds);
        let before = reader.head();
        let settings = Settings {
            debounce: Duration::from_secs(30),
            retain: None,
            cluster_namespace: "ifo-system".into(),
        };
        let (send, messages) = mpsc::channel(QUEUE);
        let metrics = Arc::new(Metrics::new());
        let tracker = Tracker::new(settings, metrics.clone());
        let running = tokio::spawn(run(tracker, writer, messages, metrics));
        let target = Arc::new(Gvr {
            group: "example.com".into(),
            version: "v1".into(),
            resource: "machines".into(),
        });
        let book = Arc::new(book(&target));
        let (done, flushed) = oneshot::channel();
        for message in [
            Message::Restore {
                operations: Vec::new(),
                version: Some(before.0 + above),
            },
            Message::Rules {
                target: target.clone(),
                book: Some(book.clone()),
                removed: false,
            },
            Message::Feed {
                source: Source {
                    target,
                    namespace: None,
                },
                generation: 1,
                event: Event::Evaluated {
                    evaluation: Box::new(migrating(&book)),
                    read: Instant::now(),
                },
            },
            Message::Flush(done),
        ] {
            send.send(message).await.expect("the task runs");
        }
        flushed.await.expect("the messages were taken");
        assert_eq!(reader.len(), 1);
        drop(send);
        running.await.expect("the task ends with its senders");
        (before, reader.head())
    }

    #[tokio::test]
    async fn versions_rise_above_those_of_a_restored_list() {
        let ahead = 1_000_000_000;
        let (before, after) = detected_after_restore(ahead).await;
        assert!(after.0 > before.0 + ahead);
        // A version that would use up all others is ignored.
        let absurd = Rv::LIMIT.0 / 2;
        let (before, after) = detected_after_restore(absurd).await;
        assert!(after > before && after.0 < before.0 + absurd);
    }
}
