//! Test of watched objects that are invalid or unusual. The server must evaluate such an object, or skip
//! it. Then the server must continue with the next object.

use crate::demo::eventually;
use crate::fake_apiserver::{FakeApiServer, Script, Step, event, list, thing};
use crate::running_server::RunningServer;

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
    let script: Script = Box::new(|request| {
        let busy = odd_and_busy().into_iter().map(|(_, object)| object);
        // A list with an object that is not JSON is invalid as a whole.
        if !request.is_watch() {
            return list(busy, "");
        }
        // The fake kube-apiserver sends each object twice.
        let all: Vec<_> = odd().into_iter().chain(busy).collect();
        let mut steps: Vec<_> = all.iter().chain(&all).map(|object| line(object)).collect();
        steps.push(Step::send(event("ADDED", &thing("last", "Busy"))));
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
    eventually("the operations of the unusual objects", async || {
        (server.active().await == expected).then_some(())
    })
    .await;
    server.assert_healthy_within(128);
}
