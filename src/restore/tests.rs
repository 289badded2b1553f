//! Tests with a scripted kube-apiserver, and with a tracker that continues from the state that was
//! read.

use super::*;
use crate::index::{Bounds, ListScope, ReadVersion, Rv, VersionAssignment, index};
use crate::persist;
use ifo_api::live::{InFlightOperation, Phase};
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

/// A client of a server that answers each path and query with this code and body.
fn serving(answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static) -> kube::Client {
    let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
        let asked = request.uri().path_and_query().map_or("", |it| it.as_str());
        let (code, body) = answer(asked);
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
            most: 1_000,
        }),
        cluster_namespace: "ifo-system".into(),
    };
    Tracker::new(settings, Arc::new(()))
}

/// The start of all operations, the same for the whole run. An operation with another start is a
/// different operation.
fn start() -> Timestamp {
    static START: LazyLock<Timestamp> =
        LazyLock::new(|| clock::reading().wall - Duration::from_mins(1));
    *START
}

/// The live object of an operation on a machine of this name, and of its end.
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
            says: Some(RuleValues::default()),
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
            read_now: false,
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

/// The custom resource of an operation on a machine of this name.
fn custom_resource(name: &str, phase: Phase) -> Value {
    let mut writes = writes(name, phase == Phase::Completed);
    let Some(Write::Show { operation, .. }) = writes.pop() else {
        panic!("{writes:?}");
    };
    let live: InFlightOperation = serde_json::from_slice(&operation.json).unwrap();
    assert_eq!(live.status.phase, phase);
    serde_json::to_value(persist::to_cr(&live)).unwrap()
}

fn active(name: &str) -> Value {
    custom_resource(name, Phase::Active)
}

fn list(items: &[Value], token: &str) -> (u16, Value) {
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

/// The changes of a tracker that continues from `state`: the names of subjects, with `!` if the
/// operation has completed, and `-` for each deletion.
fn taken_over(state: InitialState) -> Vec<String> {
    let mut tracker = tracker(true);
    tracker.advance(Message::Resume(Box::new(state)), clock::reading());
    let writes = tracker.take_changes().into_iter();
    let mut names: Vec<String> = writes
        .map(|write| match write {
            Write::Put { key, .. } => panic!("the tracker has encoded {key}"),
            Write::Show { operation, .. } => {
                let object: InFlightOperation = serde_json::from_slice(&operation.json).unwrap();
                let over = object.status.phase == Phase::Completed;
                let sign = if over { "!" } else { "" };
                format!("{}{sign}", object.spec.subject.name)
            }
            Write::Delete { .. } => "-".to_owned(),
        })
        .collect();
    names.sort();
    names
}

/// The state that is restored if lists of custom resources are answered like this, and the
/// requested lists.
async fn restored(
    answer: impl Fn(&str) -> (u16, Value) + Send + Sync + 'static,
) -> (Vec<String>, Vec<String>) {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = asked.clone();
    let client = serving(move |uri| match uri.strip_prefix(CUSTOM_RESOURCES) {
        Some(query) => {
            kept.lock().unwrap().push(query.to_owned());
            answer(query)
        }
        None => namespaces_since("ns", Timestamp::UNIX_EPOCH),
    });
    let (state, _) = initial_state(client, sources(Vec::new())).await;
    let asked = asked.lock().unwrap().clone();
    (taken_over(state), asked)
}

fn namespaces_since(name: &str, created: Timestamp) -> (u16, Value) {
    let list = json!({
        "apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadataList", "metadata": {},
        "items": [{"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": name, "creationTimestamp": created}}],
    });
    (200, list)
}

#[tokio::test(start_paused = true)]
async fn operations_in_flight_are_read_before_all_history() {
    let (names, asked) = restored(|query| {
        let over = |name| custom_resource(name, Phase::Completed);
        match (
            query.contains("phase%3DActive"),
            query.contains("continue=more%2F1"),
        ) {
            (true, false) => list(&[active("x")], "more/1"),
            (true, true) => list(&[active("y")], ""),
            // The operation ended after the first list was read.
            (false, false) => list(&[over("a"), over("x")], "more/1"),
            (false, true) => list(&[over("b")], ""),
        }
    })
    .await;
    assert_eq!(names, ["a!", "b!", "x!", "y"]);
    let query = |phase: &str, token: &str| {
        format!("?limit=500&fieldSelector=status.phase%3D{phase}{token}")
    };
    let more = "&continue=more%2F1";
    let want = [
        query("Active", ""),
        query("Active", more),
        query("Completed", ""),
        query("Completed", more),
    ];
    assert_eq!(asked, want);
}

#[tokio::test(start_paused = true)]
async fn without_the_phase_selector_all_custom_resources_are_listed() {
    let (names, asked) = restored(|query| {
        if query.contains("fieldSelector") {
            (400, json!({}))
        } else if query.contains("continue=1") {
            list(&[active("b")], "")
        } else {
            list(&[active("a")], "1")
        }
    })
    .await;
    assert_eq!(names, ["a", "b"]);
    assert_eq!(asked.len(), 3, "{asked:?}");
}

#[tokio::test(start_paused = true)]
async fn a_broken_or_large_object_does_not_affect_the_others() {
    let (names, _) = restored(|_| {
        // More bytes than Kubernetes allows. Annotations of users are not restored.
        let mut large = active("large");
        large["metadata"]["annotations"]["users"] = "x".repeat(2 << 20).into();
        list(&[json!({}), json!(3), large, active("a")], "")
    })
    .await;
    assert_eq!(names, ["a", "large"]);
    for answer in [json!([]), json!({"items": 3})] {
        let (names, asked) = restored(move |_| (200, answer.clone())).await;
        assert!(names.is_empty());
        assert_eq!(
            asked.len(),
            2,
            "one attempt by phase, and one for all phases"
        );
    }
}

/// Returns these answers one after the other, and then repeats the last one.
fn script(answers: Vec<(u16, Value)>) -> impl Fn(&str) -> (u16, Value) + Send + Sync + 'static {
    let left = Mutex::new(answers.into_iter());
    let last = Mutex::new((500, json!({})));
    move |_| {
        let mut last = last.lock().unwrap();
        if let Some(next) = left.lock().unwrap().next() {
            *last = next;
        }
        last.clone()
    }
}

fn status(code: u16) -> (u16, Value) {
    (code, json!({}))
}

#[tokio::test(start_paused = true)]
async fn temporary_failures_are_retried_for_a_minute_and_read_pages_are_kept() {
    let comes = vec![status(503), status(503), list(&[active("a")], "")];
    let (names, asked) = restored(script(comes)).await;
    assert_eq!((names, asked.len()), (vec!["a".to_owned()], 4));
    let fails = vec![list(&[active("a")], "1"), status(503)];
    let (names, asked) = restored(script(fails)).await;
    assert_eq!(names, ["a"]);
    assert_eq!(asked.len(), 61, "a second apart");
}

#[tokio::test(start_paused = true)]
async fn refusals_are_retried_for_ten_seconds() {
    let starting = vec![status(403), status(403), list(&[active("a")], "")];
    let (names, _) = restored(script(starting)).await;
    assert_eq!(names, ["a"]);
    let (_, asked) = restored(|_| status(403)).await;
    assert_eq!(asked.len(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_list_with_an_expired_token_restarts() {
    let expires = vec![
        list(&[active("a")], "1"),
        status(410),
        list(&[active("a")], "2"),
        list(&[active("b")], ""),
    ];
    let (names, asked) = restored(script(expires)).await;
    assert_eq!(names, ["a", "b"]);
    let of = |query: &String| query.split_once("continue=").map(|(_, it)| it.to_owned());
    let tokens: Vec<_> = asked.iter().map(of).collect();
    let token = |token: &str| Some(token.to_owned());
    assert_eq!(tokens, [None, token("1"), None, token("2"), None]);
}

#[tokio::test(start_paused = true)]
async fn a_repeated_continue_token_ends_the_list() {
    let (names, asked) = restored(|_| list(&[active("a")], "1")).await;
    assert_eq!((names, asked.len()), (vec!["a".to_owned()], 4));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_restored_into_a_recreated_or_deleted_namespace() {
    let of = async |namespaces: (u16, Value)| {
        let client = serving(move |uri| {
            if !uri.starts_with(CUSTOM_RESOURCES) {
                return namespaces.clone();
            }
            let over = custom_resource("over", Phase::Completed);
            list(&[active("active"), over], "")
        });
        taken_over(initial_state(client, sources(Vec::new())).await.0)
    };
    let early = start() - Duration::from_mins(1);
    let late = start() + Duration::from_secs(30);
    let none = [""; 0];
    assert_eq!(of(namespaces_since("ns", early)).await, ["active", "over!"]);
    assert_eq!(of(namespaces_since("ns", late)).await, none);
    assert_eq!(of(namespaces_since("other", early)).await, none);
    // If the custom resources cannot be read, the subjects are read anyway.
    assert_eq!(of(status(404)).await, ["active"]);
}

/// The entries of an index after these writes.
fn entries(writes: Vec<Write>) -> Vec<Arc<IndexEntry>> {
    let bounds = Bounds {
        bytes: 1 << 20,
        age: Duration::from_mins(1),
    };
    let (mut writer, reader) = index(bounds);
    let Rv(_) = writer.commit(writes, VersionAssignment::Mint).unwrap();
    reader.list(&ListScope::All, ReadVersion::Latest).unwrap().1
}

#[tokio::test(start_paused = true)]
async fn the_objects_of_the_index_come_first_and_are_not_written() {
    let listed = entries([writes("a", false), writes("b", true)].concat());
    let client = serving(|uri| {
        if !uri.starts_with(CUSTOM_RESOURCES) {
            return namespaces_since("ns", Timestamp::UNIX_EPOCH);
        }
        let mut other = active("a");
        other["status"]["message"] = "other".into();
        list(&[other, active("c")], "")
    });
    let (state, namespaces) = initial_state(client, sources(listed.clone())).await;
    assert_eq!(state.count(), 3);
    assert_eq!(taken_over(state), ["c"]);
    let created = Some(Timestamp::UNIX_EPOCH);
    assert_eq!(namespaces, [("ns".to_owned(), created)].into());
    // The kube-apiserver does not answer.
    let silent = serving(|_| status(503));
    let without = TakeoverSources {
        persistence: false,
        ..sources(listed.clone())
    };
    let (state, namespaces) = initial_state(silent, without).await;
    assert_eq!(state.count(), 2);
    assert_eq!(taken_over(state), [""; 0]);
    assert_eq!(namespaces, [("ns".to_owned(), None)].into());
    // A leader without retention deletes completed operations.
    let client = serving(|_| status(503));
    let neither = TakeoverSources {
        persistence: false,
        retain: false,
        deleted: listed.clone(),
        ..sources(listed)
    };
    let (state, _) = initial_state(client, neither).await;
    assert_eq!(state.count(), 2);
}

#[tokio::test(start_paused = true)]
async fn namespaces_of_a_kube_apiserver_that_has_just_started_are_waited_for() {
    for (code, times, seconds, is_read) in [
        (403, 8, 60, true),
        (403, 30, 60, false),
        (503, 30, 60, true),
        // The wait has a time limit.
        (503, 30, 2, false),
    ] {
        let mut answers = vec![status(code); times];
        answers.push(namespaces_since("a", Timestamp::UNIX_EPOCH));
        let store = ClusterStore::new(serving(script(answers)));
        let limit = Duration::from_secs(seconds);
        let read = within_time(limit, lists::namespaces(&store)).await;
        assert_eq!(read.is_ok(), is_read, "{code} {times} times");
        assert!(read.is_ok_and(|read| read.contains_key("a")) == is_read);
    }
}

#[tokio::test(start_paused = true)]
async fn only_temporary_failures_are_retried() {
    for (code, is_retried) in [
        (429, true),
        (500, true),
        (503, true),
        (403, true),
        (410, true),
        (404, false),
    ] {
        let answers = vec![status(code), list(&[active("a")], "")];
        let (names, _) = restored(script(answers)).await;
        assert_eq!(names.len(), usize::from(is_retried), "{code}");
    }
}
