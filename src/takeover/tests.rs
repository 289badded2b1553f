//! Tests of the operations that a new leader (the replica that detects operations) restores. A
//! scripted watch has the custom resources. Then a real tracker, which turns detections into
//! operations, continues from the restored operations.

use super::*;
use crate::index::{self, Bounds, VersionAssignment, index};
use crate::persist::{self, Pending, Revision};
use futures::stream::{self, BoxStream};
use ifo_api::live::{Phase, SubjectReference};
use ifo_api::{Gvr, Source};
use ifo_engine::ClockReading;
use ifo_engine::detect::{Evaluation, FeedEvent, Finding, RuleValues, Subject};
use ifo_engine::rules::{RuleBook, compile};
use ifo_engine::track::{Message, Publication, Retention, Tracker, TrackerSettings, Write};
use jiff::Timestamp;
use serde_json::json;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

/// A watch of custom resources that sends these events, one per second. After the last event, the
/// watch repeats this event.
struct Script(Vec<Raw>);

impl Store for Script {
    fn follow(&self) -> BoxStream<'static, Raw> {
        let last = stream::iter(self.0.last().cloned()).cycle();
        let events = stream::iter(self.0.clone()).chain(last);
        let late = events.then(async |event| {
            tokio::time::sleep(Duration::from_secs(1)).await;
            event
        });
        late.boxed()
    }

    fn apply<'a>(&'a self, _: &'a InFlightOperation) -> Pending<'a, Revision> {
        panic!("a takeover writes nothing")
    }

    fn delete<'a>(&'a self, _: &'a str, _: &'a Revision) -> Pending<'a, ()> {
        panic!("a takeover writes nothing")
    }
}

pub(crate) fn tracker(retain: bool) -> Tracker {
    let settings = TrackerSettings {
        debounce: Duration::ZERO,
        retain: retain.then_some(Retention {
            age: Duration::from_hours(24),
            max_count: 1_000,
        }),
        max_records: 10,
        cluster_namespace: "ifo-system".into(),
    };
    Tracker::new(settings, Arc::new(()))
}

/// Returns the start time of all operations. Each call returns the same time, because an operation
/// with another start time is another operation.
fn start() -> Timestamp {
    static START: LazyLock<Timestamp> =
        LazyLock::new(|| clock::reading().wall - Duration::from_mins(1));
    *START
}

/// Returns the messages with which an operation on the subject (the object) `name` starts. If
/// `is_over` is true, the messages also end the operation. Only the subject `node` is
/// cluster-scoped.
pub(crate) fn messages(name: &str, is_over: bool) -> Vec<Message> {
    let target = Arc::new(Gvr {
        group: "kubevirt.io".into(),
        version: "v1".into(),
        resource: "virtualmachines".into(),
    });
    let spec = json!({
        "component": "kubevirt",
        "target": *target,
        "rules": [{"operation": "Migrating", "expression": "true"}],
    });
    let spec = serde_json::from_value(spec).unwrap();
    let rule_set = Arc::new(compile("rules", &spec).unwrap());
    let sets = vec![rule_set.clone()];
    let book = RuleBook::new(1, (*target).clone(), "VirtualMachine".into(), true, sets);
    let mut messages = vec![Message::Rules(Publication {
        target: target.clone(),
        book: Some(Arc::new(book)),
        removed: false,
    })];
    for is_detected in [true, false] {
        if !is_detected && !is_over {
            break;
        }
        let finding = Finding {
            rule_set: rule_set.clone(),
            operation: "Migrating".into(),
            item: None,
            values: Some(RuleValues::default()),
        };
        let evaluation = Evaluation {
            subject: Subject {
                reference: SubjectReference {
                    uid: Some(format!("uid-{name}").into()),
                    name: name.into(),
                    namespace: (name != "node").then(|| "ns".into()),
                    ..SubjectReference::default()
                },
                generation: None,
            },
            findings: is_detected.then_some(finding).into_iter().collect(),
            ..Evaluation::default()
        };
        let event = FeedEvent::Evaluated {
            evaluation: Box::new(evaluation),
            read: Instant::now(),
        };
        let source = Source {
            target: target.clone(),
            namespace: None,
        };
        messages.push(Message::Feed {
            source,
            generation: 1,
            event,
        });
    }
    messages
}

/// Returns the tracker's writes for the operation of [`messages`].
fn writes(name: &str, is_over: bool) -> Vec<Write> {
    let mut tracker = tracker(true);
    let now = ClockReading {
        wall: start(),
        ..clock::reading()
    };
    for message in messages(name, is_over) {
        tracker.advance(message, now);
    }
    tracker.take_changes()
}

/// Returns the event with the custom resource of an operation on the subject `name`.
fn custom_resource(name: &str, phase: Phase) -> Raw {
    let writes = writes(name, phase == Phase::Completed);
    let live = writes.iter().rev().find_map(|write| match write {
        Write::Put { object, .. } => object.operation(),
        Write::Delete { .. } => None,
    });
    let live = live.expect("the operation was written");
    assert_eq!(live.status.phase, phase);
    Raw::Applied(serde_json::to_vec(&persist::to_cr(live)).unwrap().into())
}

/// Lets a tracker continue from `state`, and returns the tracker's writes as texts. The text of a
/// written operation is the name of its subject, followed by `!` if the operation has completed.
/// The text of a deletion is `-`.
fn writes_after_takeover(state: InitialState) -> Vec<String> {
    let mut tracker = tracker(true);
    tracker.advance(Message::Resume(Box::new(state)), clock::reading());
    let writes = tracker.take_changes().into_iter();
    let mut names: Vec<String> = writes
        .map(|write| match write {
            Write::Put { object, .. } => {
                let object = object.operation().expect("no test expects a record");
                let is_completed = object.status.phase == Phase::Completed;
                let sign = if is_completed { "!" } else { "" };
                format!("{}{sign}", object.spec.subject.name)
            }
            Write::Delete { .. } => "-".to_owned(),
        })
        .collect();
    names.sort();
    names
}

/// Returns an index to which `writes` were applied.
fn index_with(writes: Vec<Write>) -> IndexReader {
    let bounds = Bounds {
        bytes: 1 << 20,
        age: Duration::from_mins(1),
    };
    let (mut writer, reader) = index(bounds);
    for write in writes {
        let write = [index::index_write(write)];
        writer.commit(write, VersionAssignment::Mint).unwrap();
    }
    reader
}

fn active(name: &str) -> Raw {
    custom_resource(name, Phase::Active)
}

fn refused(code: u16) -> Raw {
    Raw::Lost(GapReason::Refused {
        code,
        message: String::new(),
    })
}

/// Takes over the operations of an index to which `writes` were applied.
async fn take_over(
    store: Option<&dyn Store>,
    writes: Vec<Write>,
    namespaces: watch::Receiver<Option<Arc<Namespaces>>>,
) -> (InitialState, bool) {
    super::take_over(store, &index_with(writes), "ifo-system".into(), namespaces).await
}

/// Returns the list of the namespaces, which contains one namespace.
fn listed(name: &str, created: Timestamp) -> watch::Receiver<Option<Arc<Namespaces>>> {
    watch::channel(Some(Arc::new([(name.into(), created)].into()))).1
}

/// Restores operations from the custom resources in these events. Returns the tracker's writes, and
/// the time in seconds until the operations were restored.
async fn restored(events: Vec<Raw>) -> (Vec<String>, u64) {
    let begun = tokio::time::Instant::now();
    let namespaces = listed("ns", Timestamp::UNIX_EPOCH);
    let script = Script(events);
    let (state, _) = take_over(Some(&script), Vec::new(), namespaces).await;
    (writes_after_takeover(state), begun.elapsed().as_secs())
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_read_to_the_end_or_to_a_permanent_failure() {
    let lost = || Raw::Lost(GapReason::Unreachable("away".to_owned()));
    let invalid = || Raw::Applied(b"{}"[..].into());
    let a = || active("a");
    for (events, names, seconds) in [
        (
            vec![Raw::Reset, invalid(), a(), Raw::Synced, active("b")],
            &["a"][..],
            4,
        ),
        (
            vec![lost(), refused(503), Raw::Reset, a(), Raw::Synced],
            &["a"],
            5,
        ),
        (
            vec![
                Raw::Reset,
                a(),
                lost(),
                Raw::Reset,
                active("b"),
                Raw::Synced,
            ],
            &["a", "b"],
            6,
        ),
        // The leader retries the watch until the time limit of one minute ends.
        (vec![Raw::Reset, a(), lost()], &["a"], 60),
        (
            vec![refused(403), refused(403), Raw::Reset, a(), Raw::Synced],
            &["a"],
            5,
        ),
        (vec![refused(403)], &[], 11),
        (vec![refused(404), Raw::Reset, a(), Raw::Synced], &[], 1),
    ] {
        let text = format!("{events:?}");
        assert_eq!(
            restored(events).await,
            (names.iter().map(ToString::to_string).collect(), seconds),
            "{text}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_restored_into_a_recreated_or_deleted_namespace() {
    let script = Script(vec![
        active("active"),
        custom_resource("over", Phase::Completed),
        custom_resource("node", Phase::Completed),
        Raw::Synced,
    ]);
    let restore_with = async |namespaces: watch::Receiver<Option<Arc<Namespaces>>>| {
        let (state, is_complete) = take_over(Some(&script), Vec::new(), namespaces).await;
        (writes_after_takeover(state), is_complete)
    };
    let early = start() - Duration::from_mins(1);
    let late = start() + Duration::from_secs(30);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let all = (names(&["active", "node!", "over!"]), true);
    assert_eq!(restore_with(listed("ns", early)).await, all);
    for namespaces in [listed("ns", late), listed("other", early)] {
        assert_eq!(restore_with(namespaces).await, (names(&["node!"]), true));
    }
    // If the namespaces are not listed in time, the leader does not restore completed operations of
    // namespaced subjects.
    let (_never, unlisted) = watch::channel(None);
    let begun = tokio::time::Instant::now();
    let unlisted = restore_with(unlisted).await;
    assert_eq!(unlisted, (names(&["active", "node!"]), false));
    assert_eq!(begun.elapsed().as_secs(), 64);
}

#[tokio::test(start_paused = true)]
async fn operations_of_the_index_win_over_custom_resources() {
    let both = [writes("a", false), writes("b", true)].concat();
    let script = Script(vec![active("a"), active("c"), Raw::Synced]);
    let namespaces = listed("ns", Timestamp::UNIX_EPOCH);
    let (state, _) = take_over(Some(&script), both.clone(), namespaces).await;
    assert_eq!(state.count(), 3);
    // The index ignores the writes of `a` and `b`, because it contains the same objects.
    assert_eq!(writes_after_takeover(state), ["a", "b!", "c"]);
    // Without persistence mode, the leader waits for the namespaces for 2 s.
    let (_never, namespaces) = watch::channel(None);
    let begun = tokio::time::Instant::now();
    let (state, _) = take_over(None, both, namespaces).await;
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert_eq!(writes_after_takeover(state), ["a", "b!"]);
}
