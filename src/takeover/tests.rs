//! Tests of the operations that a new leader (the replica that detects operations) restores. A
//! scripted kube-apiserver answers the leader's lists. Then a real tracker, which turns detections
//! into operations, continues from the restored operations.

use super::*;
use crate::index::{self, Bounds, ReadVersion, Rv, VersionAssignment, index};
use crate::persist;
use ifo_api::live::Phase;
use ifo_api::{Gvr, Source};
use ifo_engine::ClockReading;
use ifo_engine::detect::{Evaluation, FeedEvent, Finding, RuleValues, Subject};
use ifo_engine::rules::{RuleBook, compile};
use ifo_engine::track::{Message, Retention, Tracker, TrackerSettings, Write};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::{LazyLock, Mutex};
use std::time::Instant;

const CUSTOM_RESOURCES: &str = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";

/// Returns a client of a scripted kube-apiserver. For each request, `answer` gets the path and the
/// query, and returns the status code and the body.
fn serving(answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let path_and_query = request.uri().path_and_query().map_or("", |it| it.as_str());
        let (code, body) = answer(path_and_query);
        let body = kube::client::Body::from(body.to_string().into_bytes());
        let answer = http::Response::builder().status(code).body(body);
        std::future::ready(Ok::<_, std::convert::Infallible>(answer.unwrap()))
    });
    kube::Client::new(service, "default")
}

fn tracker(retain: bool) -> Tracker {
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

/// Returns the tracker's writes for an operation on the subject (the object) `name`. The operation
/// has started. If `is_over` is true, the operation has also ended.
fn writes(name: &str, is_over: bool) -> Vec<Write> {
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
    let mut tracker = tracker(true);
    let now = ClockReading {
        wall: start(),
        ..clock::reading()
    };
    let rules = Message::Rules {
        target: target.clone(),
        book: Some(Arc::new(book)),
        removed: false,
    };
    tracker.advance(rules, now);
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
                uid: Some(format!("uid-{name}").into()),
                name: name.into(),
                namespace: Some("ns".into()),
                ..Subject::default()
            },
            findings: is_detected.then_some(finding).into_iter().collect(),
            outcomes: Vec::new(),
            unselected: Vec::new(),
            failures: Vec::new(),
            unknown: Vec::new(),
            time_dependent: Vec::new(),
        };
        let event = FeedEvent::Evaluated {
            evaluation: Box::new(evaluation),
            read: Instant::now(),
        };
        let source = Source {
            target: target.clone(),
            namespace: None,
        };
        let message = Message::Feed {
            source,
            generation: 1,
            event,
        };
        tracker.advance(message, now);
    }
    tracker.take_changes()
}

/// Returns the custom resource of an operation on the subject `name`.
fn custom_resource(name: &str, phase: Phase) -> Value {
    let writes = writes(name, phase == Phase::Completed);
    let live = writes.iter().rev().find_map(|write| match write {
        Write::Put { object, .. } => object.operation(),
        Write::Delete { .. } => None,
    });
    let live = live.expect("the operation was written");
    assert_eq!(live.status.phase, phase);
    serde_json::to_value(persist::to_cr(live)).unwrap()
}

fn active(name: &str) -> Value {
    custom_resource(name, Phase::Active)
}

fn answer_with_items(items: &[Value], token: &str) -> (u16, Value) {
    (
        200,
        json!({"metadata": {"resourceVersion": "7", "continue": token}, "items": items}),
    )
}

fn sources(listed: Vec<Arc<IndexEntry>>) -> TakeoverSources {
    TakeoverSources {
        listed,
        deleted: Vec::new(),
        persistence: true,
        retain: true,
        cluster_namespace: "ifo-system".into(),
    }
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

/// Restores operations from custom resources. For each list of custom resources, `answer` gets the
/// query, and returns the answer. Returns the tracker's writes, and the queries of all lists.
async fn restored(
    answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
) -> (Vec<String>, Vec<String>) {
    let queries: Arc<Mutex<Vec<String>>> = Arc::default();
    let received = queries.clone();
    let client = serving(move |uri| {
        let query = uri.strip_prefix(CUSTOM_RESOURCES).unwrap();
        received.lock().unwrap().push(query.to_owned());
        answer(query)
    });
    let namespaces = listed("ns", Timestamp::UNIX_EPOCH);
    let (state, _) = initial_state(client, sources(Vec::new()), namespaces).await;
    let queries = queries.lock().unwrap().clone();
    (writes_after_takeover(state), queries)
}

/// Returns the list of the namespaces, which contains one namespace.
fn listed(name: &str, created: Timestamp) -> oneshot::Receiver<ListedNamespaces> {
    let (sender, receiver) = oneshot::channel();
    sender.send([(name.to_owned(), created)].into()).unwrap();
    receiver
}

#[tokio::test(start_paused = true)]
async fn invalid_and_large_objects_do_not_affect_other_objects() {
    let (names, _) = restored(|_| {
        // This object is larger than Kubernetes allows. It is restored, without the large
        // annotation.
        let mut large = active("large");
        large["metadata"]["annotations"]["users"] = "x".repeat(2 << 20).into();
        answer_with_items(&[json!({}), json!(3), large, active("a")], "")
    })
    .await;
    assert_eq!(names, ["a", "large"]);
    for answer in [json!([]), json!({"items": 3})] {
        let (names, queries) = restored(move |_| (200, answer.clone())).await;
        assert!(names.is_empty());
        assert_eq!(queries.len(), 1);
    }
}

/// Returns an `answer` function for [`serving`]. It returns one of the `answers` for each request,
/// in order, and then repeats the last answer.
fn script(answers: Vec<(u16, Value)>) -> impl Fn(&str) -> (u16, Value) + Send + Sync + 'static {
    let remaining = Mutex::new(answers.into_iter());
    let last = Mutex::new((500, json!({})));
    move |_| {
        let mut last = last.lock().unwrap();
        if let Some(next) = remaining.lock().unwrap().next() {
            *last = next;
        }
        last.clone()
    }
}

fn answer_with_code(code: u16) -> (u16, Value) {
    (code, json!({}))
}

#[tokio::test(start_paused = true)]
async fn temporary_failures_are_retried_for_a_minute_and_pages_before_them_are_kept() {
    let failing_at_first = vec![
        answer_with_code(503),
        answer_with_code(503),
        answer_with_items(&[active("a")], ""),
    ];
    let (names, queries) = restored(script(failing_at_first)).await;
    assert_eq!((names, queries.len()), (vec!["a".to_owned()], 3));
    let failing_after_a_page = vec![
        answer_with_items(&[active("a")], "1"),
        answer_with_code(503),
    ];
    let (names, queries) = restored(script(failing_after_a_page)).await;
    assert_eq!(names, ["a"]);
    assert_eq!(
        queries.len(),
        61,
        "the list must be retried each second for a minute"
    );
}

#[tokio::test(start_paused = true)]
async fn refusals_are_retried_for_ten_seconds() {
    let starting = vec![
        answer_with_code(403),
        answer_with_code(403),
        answer_with_items(&[active("a")], ""),
    ];
    let (names, _) = restored(script(starting)).await;
    assert_eq!(names, ["a"]);
    let (_, queries) = restored(|_| answer_with_code(403)).await;
    assert_eq!(queries.len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_list_whose_continue_token_has_expired_starts_again() {
    let expires = vec![
        answer_with_items(&[active("a")], "1"),
        answer_with_code(410),
        answer_with_items(&[active("a")], "2"),
        answer_with_items(&[active("b")], ""),
    ];
    let (names, queries) = restored(script(expires)).await;
    assert_eq!(names, ["a", "b"]);
    let token_of = |query: &String| query.split_once("continue=").map(|(_, it)| it.to_owned());
    let tokens: Vec<_> = queries.iter().map(token_of).collect();
    let token = |token: &str| Some(token.to_owned());
    assert_eq!(tokens, [None, token("1"), None, token("2")]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_restored_into_a_recreated_or_deleted_namespace() {
    let restore_with = async |namespaces: oneshot::Receiver<ListedNamespaces>| {
        let client = serving(move |_| {
            let over = custom_resource("over", Phase::Completed);
            answer_with_items(&[active("active"), over], "")
        });
        let (state, _) = initial_state(client, sources(Vec::new()), namespaces).await;
        writes_after_takeover(state)
    };
    let early = start() - Duration::from_mins(1);
    let late = start() + Duration::from_secs(30);
    let none = [""; 0];
    assert_eq!(restore_with(listed("ns", early)).await, ["active", "over!"]);
    assert_eq!(restore_with(listed("ns", late)).await, none);
    assert_eq!(restore_with(listed("other", early)).await, none);
    // If the namespaces are not listed in time, completed custom resources are not restored.
    let (_never, unlisted) = oneshot::channel();
    let begun = tokio::time::Instant::now();
    assert_eq!(restore_with(unlisted).await, ["active"]);
    assert_eq!(begun.elapsed().as_secs(), 60);
}

/// Applies `writes` to an empty index, and returns the entries of the index.
fn entries(writes: Vec<Write>) -> Vec<Arc<IndexEntry>> {
    let bounds = Bounds {
        bytes: 1 << 20,
        age: Duration::from_mins(1),
    };
    let (mut writer, reader) = index(bounds);
    let writes: Vec<_> = writes.into_iter().map(index::index_write).collect();
    let Rv(_) = writer.commit(writes, VersionAssignment::Mint).unwrap();
    reader
        .list(&index::OPERATIONS, ReadVersion::Latest)
        .unwrap()
        .1
}

#[tokio::test(start_paused = true)]
async fn operations_of_the_index_win_over_custom_resources_and_are_not_written() {
    let entries = entries([writes("a", false), writes("b", true)].concat());
    let client = serving(|_| {
        let mut other = active("a");
        other["status"]["message"] = "other".into();
        answer_with_items(&[other, active("c")], "")
    });
    let namespaces = listed("ns", Timestamp::UNIX_EPOCH);
    let (state, unlisted) = initial_state(client, sources(entries.clone()), namespaces).await;
    assert_eq!(state.count(), 3);
    assert_eq!(writes_after_takeover(state), ["c"]);
    assert_eq!(unlisted, HashSet::new());
    // Without persistence mode, the leader waits for the list for 2 s.
    let without = TakeoverSources {
        persistence: false,
        ..sources(entries.clone())
    };
    let (_never, namespaces) = oneshot::channel();
    let (client, begun) = (
        serving(|_| answer_with_code(503)),
        tokio::time::Instant::now(),
    );
    let (state, unlisted) = initial_state(client, without, namespaces).await;
    assert_eq!(begun.elapsed().as_secs(), 2);
    assert_eq!(state.count(), 2);
    assert_eq!(writes_after_takeover(state), [""; 0]);
    assert_eq!(unlisted, [Text::from("ns")].into());
    // Without persistence mode and without retention, the leader does not wait for the list.
    // `listed` and `deleted` contain the same two operations. Each operation counts once.
    let neither = TakeoverSources {
        persistence: false,
        retain: false,
        deleted: entries.clone(),
        ..sources(entries)
    };
    let (_never, namespaces) = oneshot::channel();
    let (client, begun) = (
        serving(|_| answer_with_code(503)),
        tokio::time::Instant::now(),
    );
    let (state, _) = initial_state(client, neither, namespaces).await;
    assert_eq!(begun.elapsed().as_secs(), 0);
    assert_eq!(state.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn codes_403_and_410_are_retried_like_429_and_5xx_but_404_is_not() {
    for (code, is_retried) in [
        (429, true),
        (500, true),
        (503, true),
        (403, true),
        (410, true),
        (404, false),
    ] {
        let answers = vec![
            answer_with_code(code),
            answer_with_items(&[active("a")], ""),
        ];
        let (names, _) = restored(script(answers)).await;
        assert_eq!(names.len(), usize::from(is_retried), "{code}");
    }
}
