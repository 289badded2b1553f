use super::*;
use crate::detection::tests::pipeline;
use crate::index::{self, Bounds, IndexEntry, IndexReader, ReadVersion, index};
use ifo_api::live::{InFlightOperation, SubjectReference};
use ifo_api::{Gvr, Source};
use ifo_engine::detect::{Evaluation, Finding, RuleValues, Subject};
use ifo_engine::rules::{RuleBook, compile};
use ifo_engine::track::InitialState;
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
            reference: SubjectReference {
                uid: Some("uid-vm".into()),
                name: "vm".into(),
                namespace: Some("ns".into()),
                ..SubjectReference::default()
            },
            generation: None,
        },
        findings: vec![Finding {
            rule_set: book.rule_sets[0].clone(),
            operation: "Migrating".into(),
            item: None,
            values: Some(RuleValues::default()),
        }],
        ..Evaluation::default()
    }
}

/// Runs the tracker task until it has processed these messages.
async fn run_until_processed(writer: Writer, reader: &IndexReader, messages: Vec<Message>) {
    let settings = pipeline::settings(Duration::from_secs(30), 0);
    let (sender, queue) = mpsc::channel(QUEUE_CAPACITY);
    let metrics = Arc::new(Metrics::new());
    let tracker = Tracker::new(settings, metrics.clone());
    let activity = ActivityWriter::new("ifo-system".into(), reader, Arc::new(Gaps::default));
    let running = tokio::spawn(async move {
        let mut writer = writer;
        let leadership = Leadership::alone(writer.head());
        run(tracker, &mut writer, &leadership, queue, activity, metrics).await;
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
    run_until_processed(leader_index, &listed, vec![rules, detected]).await;
    let list = |reader: &IndexReader| {
        reader
            .list(&index::OPERATIONS, ReadVersion::Latest)
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
            key: engine_key(entry.key()),
            object: operation.into(),
        };
        follower_index
            .commit([index_write(write)], VersionAssignment::Mint)
            .expect("an index accepts every new version before the first call of `reserve`");
        let before = list(&reader);
        let mut state = InitialState::new("ifo-system".into(), None);
        for entry in list(&reader) {
            state.add_index_object(&engine_key(entry.key()), entry.object(), clock::reading());
        }
        run_until_processed(
            follower_index,
            &reader,
            vec![Message::Resume(Box::new(state))],
        )
        .await;
        let after = list(&reader);
        let is_unchanged = |entry: &Arc<IndexEntry>| Arc::ptr_eq(entry, &before[0]);
        assert_eq!(after.first().is_some_and(is_unchanged), !is_broken);
        assert_eq!(after.is_empty(), is_broken);
    }
}
