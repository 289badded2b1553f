//! The stream of events of a tab.

use super::cluster::{Cluster, Contents, contents, operation_at};
use super::{Events, Ui};
use ifo_api::completeness::Incomplete;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Returns an object of the live API.
fn live(kind: &str, name: &str) -> Value {
    json!({
        "apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "resourceVersion": "7"},
        "spec": {"operation": "Migrating", "component": "kubevirt", "addedLater": {"by": "a newer server"}},
        "status": {"outcome": "Succeeded"},
    })
}

/// Returns the names of the objects in the event `all`, in alphabetical order.
fn names(all: &Value) -> Vec<String> {
    let objects = all["items"].as_array().expect("a list").iter();
    let names = objects.map(|it| &it["metadata"]["name"]);
    let names = names.map(|it| it.as_str().unwrap_or_default().to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

/// Waits until the plugin watches operations, which is after its list.
fn ready(ui: &Ui) -> (String, Events) {
    let cookie = ui.sign_in();
    let events = ui.events(&cookie);
    (cookie, events)
}

#[test]
fn a_tab_gets_all_objects_and_then_each_change() {
    let record = live("OperationRecord", "old");
    let cluster = Cluster::start(Contents {
        operations: vec![operation_at(1, "7"), operation_at(2, "7")],
        records: Some(vec![record.clone()]),
        activities: Some(vec![live("Activity", "namespace")]),
        ..contents()
    });
    let ui = Ui::start(cluster.address, &[]);
    let (cookie, mut events) = ready(&ui);
    let (first, all) = events.next();
    let begin = &all["begin"];
    assert_eq!(first, "all");
    assert_eq!(begin["mode"], "live", "{begin}");
    assert_eq!(begin["namespace"], Value::Null, "{begin}");
    assert_eq!(begin["filter"], "", "{begin}");
    assert!(
        begin["time"].as_str().is_some_and(|it| it.ends_with('Z')),
        "{begin}"
    );
    let expected = ["namespace", "old", "vm-1-migrating", "vm-2-migrating"];
    assert_eq!(names(&all), expected);
    // The page also gets fields that this plugin does not know.
    let added = &record["spec"]["addedLater"];
    let mut shown = all["items"].as_array().expect("a list").iter();
    assert!(shown.any(|it| it["spec"]["addedLater"] == *added), "{all}");
    cluster.send("ADDED", &operation_at(3, "8"));
    assert_eq!(events.change(), "MODIFIED InFlightOperation/vm-3-migrating");
    cluster.send("MODIFIED", &operation_at(1, "9"));
    assert_eq!(events.change(), "MODIFIED InFlightOperation/vm-1-migrating");
    cluster.send("DELETED", &operation_at(2, "10"));
    assert_eq!(events.change(), "DELETED InFlightOperation/vm-2-migrating");
    // A second tab gets the present state, and newer records.
    let newer = live("OperationRecord", "newer");
    cluster.set(|it| it.records = Some(vec![newer]));
    let mut second = ui.events(&cookie);
    let expected = ["namespace", "old", "vm-1-migrating", "vm-3-migrating"];
    assert_eq!(names(&second.next_of("all")), expected);
    let changes = BTreeSet::from([second.change(), second.change()]);
    let expected = [
        "DELETED OperationRecord/old",
        "MODIFIED OperationRecord/newer",
    ];
    assert_eq!(changes, expected.map(str::to_owned).into());
    // Both tabs share one watch.
    cluster.until_watches(1);
}

#[test]
fn a_refused_kind_is_a_warning() {
    let cluster = Cluster::start(Contents {
        operations: vec![operation_at(1, "7")],
        answers: [("*operationrecords".to_owned(), json!(403))].into(),
        ..contents()
    });
    let ui = Ui::start(cluster.address, &[]);
    let all = ready(&ui).1.next_of("all");
    assert_eq!(names(&all), ["vm-1-migrating"]);
    let state = &all["state"];
    let warning = state["warnings"][0].to_string();
    assert!(
        warning.contains("operationrecords.live.ifo.kubevirt.io is forbidden"),
        "{warning}"
    );
    assert_eq!(state["gaps"], json!([]));
}

#[test]
fn a_gap_in_detection_is_an_event_while_operations_run() {
    let cluster = Cluster::start(Contents {
        operations: vec![operation_at(1, "7")],
        incomplete: Some(Incomplete::NoRuleSets),
        ..contents()
    });
    let ui = Ui::start(cluster.address, &[]);
    let (cookie, mut events) = ready(&ui);
    let begun = &events.next_of("all")["state"];
    let why = "no rule set is installed, so no operation can be detected";
    assert!(begun["warnings"][0].to_string().contains(why), "{begun}");
    let gap = &begun["gaps"][0];
    assert_eq!(gap["kind"], "detection", "{begun}");
    assert!(gap["message"].to_string().contains(why), "{begun}");
    assert!(gap["from"].is_string() && gap["to"].is_null(), "{begun}");

    cluster.set(|it| it.incomplete = None);
    // The next event is the end of the gap. The tab does not get its objects again.
    let (name, ended) = events.next();
    assert_eq!((name.as_str(), &ended["warnings"]), ("state", &json!([])));
    assert_eq!(ended["gaps"][0]["from"], gap["from"]);
    assert!(ended["gaps"][0]["to"].is_string(), "{ended}");
    // A tab that begins later does not show the gap again.
    let later = ui.events(&cookie).next_of("all");
    assert_eq!(later["state"], ended);
}

#[test]
fn after_a_restart_of_the_server_a_tab_gets_the_changes() {
    let cluster = Cluster::start(Contents {
        operations: vec![operation_at(1, "7"), operation_at(2, "7")],
        ..contents()
    });
    let ui = Ui::start(cluster.address, &[]);
    let (_, mut events) = ready(&ui);
    events.next_of("all");
    cluster.set(|it| {
        let down = json!({"code": 503, "message": "no endpoints"});
        it.answers.insert("/apis/live*".to_owned(), down);
        it.operations = vec![operation_at(2, "7"), operation_at(3, "8")];
    });
    cluster.end_watches();
    // Records that cannot be read are another change of the state.
    let gap = loop {
        if let Some(gap) = events.next_of("state")["gaps"].get(0) {
            break gap.clone();
        }
    };
    assert_eq!(
        (&gap["kind"], &gap["to"]),
        (&json!("connection"), &Value::Null)
    );
    let message = gap["message"].to_string();
    assert!(message.contains("the server is not available"), "{message}");
    cluster.until_refused();
    cluster.set(|it| it.answers.clear());
    assert_eq!(events.change(), "DELETED InFlightOperation/vm-1-migrating");
    assert_eq!(events.change(), "MODIFIED InFlightOperation/vm-3-migrating");
    while !events.next_of("state")["gaps"][0]["to"].is_string() {}
}

#[test]
fn an_expired_watch_is_listed_again() {
    let cluster = Cluster::start(Contents {
        operations: vec![operation_at(1, "7")],
        ..contents()
    });
    let ui = Ui::start(cluster.address, &[]);
    let (_, mut events) = ready(&ui);
    events.next_of("all");
    cluster.set(|it| it.operations = vec![operation_at(1, "9")]);
    cluster.send(
        "ERROR",
        &json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired",
                "message": "too old resource version", "code": 410}),
    );
    let changed = &events.next_of("change")["object"];
    assert_eq!(changed["metadata"]["resourceVersion"], "9", "{changed:?}");
}

#[test]
fn filters_select_operations_and_records() {
    let mut moved = operation_at(2, "7");
    moved["status"]["nodes"] = json!(["worker-3"]);
    let cluster = Cluster::start(Contents {
        operations: vec![operation_at(1, "7"), moved.clone()],
        records: Some(vec![live("OperationRecord", "elsewhere")]),
        activities: Some(vec![live("Activity", "cluster")]),
        ..contents()
    });
    let ui = Ui::start(cluster.address, &["--node", "worker-3", "-o", "migrating"]);
    let (_, mut events) = ready(&ui);
    let all = events.next_of("all");
    assert_eq!(
        all["begin"]["filter"],
        "--operation migrating --node worker-3"
    );
    assert_eq!(names(&all), ["cluster", "vm-2-migrating"]);
    moved["metadata"]["resourceVersion"] = json!("8");
    moved["status"]["nodes"] = json!(["worker-4"]);
    cluster.send("MODIFIED", &moved);
    assert_eq!(events.change(), "DELETED InFlightOperation/vm-2-migrating");
}

#[test]
fn ten_thousand_operations_arrive() {
    let operations = (0..10_000).map(|it| operation_at(it, "7")).collect();
    let cluster = Cluster::start(Contents {
        operations,
        ..contents()
    });
    let ui = Ui::start(cluster.address, &[]);
    let all = ready(&ui).1.next_of("all");
    assert_eq!(all["items"].as_array().map(Vec::len), Some(10_000));
}

#[test]
fn events_and_rule_sets_are_read_on_demand() {
    let event = |name: &str, uid: &str, time: &str| {
        json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("{name}.{time}"), "namespace": "shop"},
            "involvedObject": {"kind": "VirtualMachine", "name": name, "namespace": "shop", "uid": uid},
            "reason": "Moved", "message": format!("at {time}"), "type": "Normal", "count": 2,
            "source": {"component": "virt-handler"}, "lastTimestamp": time,
        })
    };
    let mut all: Vec<Value> = (10..59)
        .map(|second| event("vm-1", "u", &format!("2026-01-01T00:00:{second}Z")))
        .collect();
    all.push(event("vm-1", "u", "2026-01-01T00:01:00Z"));
    all.push(event("vm-1", "u", "2026-01-01T00:00:01Z"));
    all.push(event(
        "vm-1",
        "another object of this name",
        "2026-01-01T00:02:00Z",
    ));
    let cluster = Cluster::start(Contents {
        answers: [
            ("*shop/events".to_owned(), json!({"items": all})),
            ("*secret/events".to_owned(), json!(403)),
        ]
        .into(),
        ..contents()
    });
    let ui = Ui::start(cluster.address, &[]);
    let cookie = ui.sign_in();
    let get = |path: &str| {
        let answer = ui.get(path, &cookie);
        let body: Value = serde_json::from_str(&answer.body).expect("the body is JSON");
        (answer.code, body)
    };
    let events_in = |namespace: &str| {
        let subject = json!({"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "name": "vm-1",
                             "namespace": namespace, "uid": "u"});
        let subject = utf8_percent_encode(&subject.to_string(), NON_ALPHANUMERIC).to_string();
        format!("/api/events?{subject}")
    };
    let (code, events) = get(&events_in("shop"));
    assert_eq!(code, 200, "{events}");
    let items = events["items"].as_array().expect("a list");
    assert_eq!(items.len(), 50);
    assert_eq!(
        items[0],
        json!({"time": "2026-01-01T00:01:00Z", "type": "Normal", "reason": "Moved",
               "message": "at 2026-01-01T00:01:00Z", "source": "virt-handler", "count": 2})
    );
    let (code, rule_set) = get("/api/ruleset?vm");
    assert_eq!(
        (code, &rule_set["spec"]["component"]),
        (200, &json!("kubevirt"))
    );
    for (path, code, why) in [
        ("/api/ruleset?none", 502, "not found"),
        ("/api/ruleset?..%2Fvm", 502, "not found"),
        (&events_in("secret"), 502, "forbidden"),
        ("/api/events?%7B%22name%22:%22a%22%7D", 400, "apiVersion"),
        ("/api/nothing", 404, "there is no such path"),
    ] {
        let (actual, body) = get(path);
        assert_eq!(actual, code, "{path}: {body}");
        let error = body["error"].as_str().unwrap_or_default();
        assert!(error.contains(why), "{path}: {body}");
    }
}
