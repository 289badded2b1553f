//! Tests of watched objects that are invalid or very large. The server must evaluate such an
//! object, or skip the object and report it. Then the server must continue with the next object.

use crate::demo::eventually;
use crate::fake_apiserver::{
    FakeApiServer, ObjectRequest, STREAM_HEADERS, Script, Step, event, initial_events_end,
    response, thing,
};
use crate::start_ifo_apiserver::RunningServer;

/// Size in bytes of the largest object in these tests that the server must evaluate. Real objects
/// are smaller, because etcd does not accept an object of this size.
const LARGE: usize = 7_000_000;

/// Size in bytes of an object that is too large: the server's limit for one object is 8 MiB
/// (`MAX_PART` in `src/observe/parts.rs`).
const TOO_LARGE: usize = 20_000_000;

/// Part of the message in the status of a rule set that reports an object above the limit.
const TOO_LARGE_MESSAGE: &str = "bytes, which is more than the limit for one object";

/// Returns invalid objects on which the server can detect no operation. They have no valid name or
/// state, or are not valid JSON.
fn odd() -> Vec<Vec<u8>> {
    let mut odd: Vec<Vec<u8>> = [
        r"{}",
        r#"{"metadata":null}"#,
        r#"{"metadata":7,"status":{"state":"Busy"}}"#,
        r#"{"metadata":[],"status":{"state":"Busy"}}"#,
        r#"{"metadata":{},"status":{"state":"Busy"}}"#,
        r#"{"metadata":{"name":7,"uid":8},"status":{"state":"Busy"}}"#,
        r#"{"metadata":{"name":""},"status":{"state":"Busy"}}"#,
        r#"{"metadata":{"name":"a1","uid":"a1"},"status":7}"#,
        r#"{"metadata":{"name":"a2","uid":"a2"},"status":{"state":["Busy"]}}"#,
        r#"{"metadata":{"name":"a3","uid":"a3"},"status":{"state":NaN}}"#,
        r#"{"metadata":{"name":"a4","uid":"a4"},"status":{"state":-Infinity}}"#,
        r#"{"metadata":{"name":"a5","uid":"a5"},"status":{"state":1e999}}"#,
        r#"{"metadata":{"name":"a6","uid":"a6"},"status":{"state":"\ud800"}}"#,
        r#"{"metadata":{"name":"s-\udc00","uid":"s"},"status":{"state":"Busy"}}"#,
        r#"{"metadata":{"name":"a7","uid":"a7","ownerReferences":{"a":1},"managedFields":"x","generation":-1e99}}"#,
        r#"{"metadata":{"name":"a8","uid":"a8"}} trailing {"}"#,
        r#"{"metadata":{"name":"a9","uid":"a9"},"status":{"state":'Busy'}}"#,
        r#"{"metadata":{"name":"b1","uid":"b1","deletionTimestamp":"never"}}"#,
    ]
    .into_iter()
    .map(Vec::from)
    .collect();
    odd.push(b"{\"metadata\":{\"name\":\"\xff\xfe\",\"uid\":\"\xff\"}}".to_vec());
    let deep = format!(
        r#"{{"metadata":{{"name":"c1","uid":"c1"}},"status":{}{}}}"#,
        r#"{"a":["#.repeat(100_000),
        "]}".repeat(100_000)
    );
    odd.push(deep.into_bytes());
    odd
}

/// Returns unusual objects on which the server must detect an operation. Before each object is the
/// name that its operation must show.
fn odd_and_busy() -> Vec<(String, Vec<u8>)> {
    let busy = |name: &str, more: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"uid-{more}"}},"status":{{"state":"Busy"}}}}"#
        )
    };
    let long = "l".repeat(10_000);
    let twice = r#"{"metadata":{"name":"no","name":"twice","namespace":"shop","uid":"uid-twice"},"status":{"state":7,"state":"Busy"},"status":{"state":"No","state":"Busy"}}"#;
    let numbers = r#"{"metadata":{"name":"numbers","namespace":"shop","uid":"uid-n","generation":99999999999999999999},"status":{"state":"Busy","more":-0.0}}"#;
    let control = r#"{"metadata":{"name":"a\u0000\n\u001b[31m/../\"b","namespace":"shop","uid":"uid-c"},"status":{"state":"Busy"}}"#;
    vec![
        (long.clone(), busy(&long, "long").into_bytes()),
        ("twice".to_owned(), twice.into()),
        ("numbers".to_owned(), numbers.into()),
        ("a\0\n\u{1b}[31m/../\"b".to_owned(), control.into()),
    ]
}

fn line(object: &[u8]) -> Step {
    Step::send([br#"{"type":"MODIFIED","object":"#, object, b"}\n"].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_objects_are_evaluated_or_skipped_and_the_rest_continues() {
    let script: Script = Box::new(|_| {
        let mut steps = vec![Step::send(STREAM_HEADERS)];
        // The fake kube-apiserver sends the objects twice: as initial events, and as later changes.
        for _ in 0..2 {
            steps.extend(odd().iter().map(|object| line(object)));
            steps.extend(odd_and_busy().iter().map(|(_, object)| line(object)));
            steps.push(Step::send(initial_events_end()));
        }
        steps.push(Step::send(event("ADDED", &thing("last", "Busy", 0))));
        steps.push(Step::HoldOpen);
        steps
    });
    let api_server = FakeApiServer::start([("odd", script)]).await;
    let mut server = RunningServer::start(&api_server).await;
    let mut expected: Vec<_> = odd_and_busy()
        .iter()
        .map(|(name, _)| format!("{name} Busy"))
        .collect();
    expected.push("last Busy".to_owned());
    expected.sort();
    server
        .wait_until("the operations of the unusual objects", |active| {
            active == expected
        })
        .await;
    server.assert_healthy_within(128);
}

/// Returns the answer to a request for a resource that has three objects: `small`, `large`, and
/// `grown`. The object `grown` grows above the server's limit for one object, and later shrinks. If
/// `watch_list` is false, the fake kube-apiserver does not support WatchList.
fn growing(request: &ObjectRequest, watch_list: bool) -> Vec<Step> {
    let small = [
        thing("small", "Busy", 0),
        thing("large", "Busy", LARGE),
        thing("grown", "Busy", 0),
    ];
    let grown = [
        small[0].clone(),
        small[1].clone(),
        thing("grown", "Busy", TOO_LARGE),
    ];
    let state = |objects: &[String]| {
        if watch_list {
            let mut steps = vec![Step::send(STREAM_HEADERS)];
            steps.extend(
                objects
                    .iter()
                    .map(|object| Step::send(event("ADDED", object))),
            );
            steps.push(Step::send(initial_events_end()));
            steps
        } else {
            let items = objects.join(",");
            let list = format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{items}]}}"#);
            vec![Step::send(response("200 OK", &list))]
        }
    };
    let expired = event("ERROR", r#"{"code":410,"reason":"Expired"}"#);
    // The steps of the two watches of the server, after the initial state:
    //
    // - `grows`, in the first watch: The object `grown` grows above the limit. The server reports
    //   this object. Then the watch expires, and the server reads all objects again. `grown` is
    //   still too large.
    // - `shrinks`, in the second watch: `grown` shrinks again.
    let grows = [
        Step::WaitForStage(1),
        Step::send(event("MODIFIED", &grown[2])),
        Step::WaitForStatus(TOO_LARGE_MESSAGE),
        Step::WaitForStage(2),
        Step::send(expired),
    ];
    let shrinks = [
        Step::WaitForStage(3),
        Step::send(event("MODIFIED", &thing("grown", "Idle", 0))),
        Step::HoldOpen,
    ];
    match (request.is_watch_list(), request.is_watch()) {
        (true, _) if !watch_list => {
            vec![Step::send(response("422 Unprocessable Entity", "{}"))]
        }
        (true, _) if request.statuses.contains(TOO_LARGE_MESSAGE) => {
            state(&grown).into_iter().chain(shrinks).collect()
        }
        (true, _) => state(&small).into_iter().chain(grows).collect(),
        (_, true) => {
            let rest = if request.statuses.contains(TOO_LARGE_MESSAGE) {
                Vec::from(shrinks)
            } else {
                Vec::from(grows)
            };
            [Step::send(STREAM_HEADERS)]
                .into_iter()
                .chain(rest)
                .collect()
        }
        _ if request.statuses.contains(TOO_LARGE_MESSAGE) => state(&grown),
        _ => state(&small),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_grows_too_large_keeps_its_operation_and_is_reported() {
    for watch_list in [true, false] {
        let script: Script = Box::new(move |request| growing(request, watch_list));
        let api_server = FakeApiServer::start([("things", script)]).await;
        let mut server = RunningServer::start(&api_server).await;
        let all = ["grown Busy", "large Busy", "small Busy"];
        server
            .wait_until("the operations of all three objects", |active| {
                active == all
            })
            .await;
        api_server.advance_to(1);
        eventually(
            "a status that reports that `grown` is too large",
            async || {
                api_server
                    .statuses_of("things")
                    .contains(TOO_LARGE_MESSAGE)
                    .then_some(())
            },
        )
        .await;
        assert_eq!(server.active().await, all);
        api_server.advance_to(2);
        let at_least_two_failures = |text: String| {
            let name = r#"ifo_evaluation_failures_total{ruleset="things",operation="Busy"}"#;
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u64>().ok().filter(|count| *count >= 2)
        };
        eventually(
            "a second failure, which the list after the expired watch causes",
            async || at_least_two_failures(server.text("/metrics").await.unwrap()),
        )
        .await;
        assert_eq!(server.active().await, all);
        api_server.advance_to(3);
        let rest = &all[1..];
        server
            .wait_until("the end of the operation", |active| active == rest)
            .await;
        server.assert_healthy_within(256);
    }
}
