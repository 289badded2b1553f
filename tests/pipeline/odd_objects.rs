//! Tests of objects with invalid fields and of large objects.

use crate::demo::eventually;
use crate::impostor::{Ask, Impostor, STREAM, Script, Step, event, initial_end, response, thing};
use crate::server::Server;

/// 7 MB: far more than etcd accepts, but the server reads it.
const LARGE: usize = 7_000_000;

/// 20 MB: more than is read of one object.
const TOO_LARGE: usize = 20_000_000;

const TOLD: &str = "bytes, which is more than the limit for one object";

/// Objects of which none is busy, or has a name, or is JSON at all.
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

/// Objects that are odd, and busy.
fn odd_and_busy() -> Vec<(String, Vec<u8>)> {
    let busy = |name: &str, more: &str| {
        format!(
            r#"{{"metadata":{{"name":"{name}","namespace":"shop","uid":"uid-{more}"}},"status":{{"state":"Busy"}}}}"#
        )
    };
    let long = "l".repeat(10_000);
    let mut bytes = busy("u-X", "utf8").into_bytes();
    let at = bytes.windows(3).position(|three| three == b"u-X").unwrap() + 2;
    bytes[at] = 0xff;
    let twice = r#"{"metadata":{"name":"no","name":"twice","namespace":"shop","uid":"uid-twice"},"status":{"state":7,"state":"Busy"},"status":{"state":"No","state":"Busy"}}"#;
    let numbers = r#"{"metadata":{"name":"numbers","namespace":"shop","uid":"uid-n","generation":99999999999999999999},"status":{"state":"Busy","more":-0.0}}"#;
    let control = r#"{"metadata":{"name":"a\u0000\n\u001b[31m/../\"b","namespace":"shop","uid":"uid-c"},"status":{"state":"Busy"}}"#;
    vec![
        (long.clone(), busy(&long, "long").into_bytes()),
        ("s-\u{fffd}".to_owned(), busy(r"s-\udc00", "s").into_bytes()),
        ("u-\u{fffd}".to_owned(), bytes),
        ("twice".to_owned(), twice.into()),
        ("numbers".to_owned(), numbers.into()),
        ("a\0\n\u{1b}[31m/../\"b".to_owned(), control.into()),
    ]
}

fn line(object: &[u8]) -> Step {
    Step::say([br#"{"type":"MODIFIED","object":"#, object, b"}\n"].concat())
}

#[tokio::test(flavor = "multi_thread")]
async fn unusual_objects_are_evaluated_or_skipped_and_the_rest_continues() {
    let script: Script = Box::new(|_| {
        let mut steps = vec![Step::say(STREAM)];
        // As part of the state, and as changes.
        for _ in 0..2 {
            steps.extend(odd().iter().map(|object| line(object)));
            steps.extend(odd_and_busy().iter().map(|(_, object)| line(object)));
            steps.push(Step::say(initial_end()));
        }
        steps.push(Step::say(event("ADDED", &thing("last", "Busy", 0))));
        steps.push(Step::Stay);
        steps
    });
    let impostor = Impostor::start([("odd", script)]).await;
    let mut server = Server::start(&impostor).await;
    let mut expected: Vec<_> = odd_and_busy()
        .iter()
        .map(|(name, _)| format!("{name} Busy"))
        .collect();
    expected.push("last Busy".to_owned());
    expected.sort();
    server
        .until("the odd and busy ones", |active| active == expected)
        .await;
    // Objects that are no JSON are in the stream, and are reported.
    let failures = r#"ifo_evaluation_failures_total{ruleset="odd",operation="Busy"}"#;
    let metrics = server.text("/metrics").await.unwrap();
    assert!(metrics.contains(failures), "{metrics}");
    server.stayed_within(128);
}

/// A machine resource with one valid object, one of 10 MB, and one that grows to 20 MB.
fn growing(ask: &Ask, watch_list: bool) -> Vec<Step> {
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
            let mut steps = vec![Step::say(STREAM)];
            steps.extend(
                objects
                    .iter()
                    .map(|object| Step::say(event("ADDED", object))),
            );
            steps.push(Step::say(initial_end()));
            steps
        } else {
            let items = objects.join(",");
            let list = format!(r#"{{"metadata":{{"resourceVersion":"5"}},"items":[{items}]}}"#);
            vec![Step::say(response("200 OK", &list))]
        }
    };
    let expired = event("ERROR", r#"{"code":410,"reason":"Expired"}"#);
    // The object grows and is reported, also in the next list. Then it has its usual size again.
    let grows = [
        Step::Stage(1),
        Step::say(event("MODIFIED", &grown[2])),
        Step::Told(TOLD),
        Step::Stage(2),
        Step::say(expired),
    ];
    let shrinks = [
        Step::Stage(3),
        Step::say(event("MODIFIED", &thing("grown", "Idle", 0))),
        Step::Stay,
    ];
    match (ask.is_watch_list(), ask.is_watch()) {
        (true, _) if !watch_list => {
            vec![Step::say(response("422 Unprocessable Entity", "{}"))]
        }
        (true, _) if ask.told.contains(TOLD) => state(&grown).into_iter().chain(shrinks).collect(),
        (true, _) => state(&small).into_iter().chain(grows).collect(),
        (_, true) => {
            let rest = if ask.told.contains(TOLD) {
                Vec::from(shrinks)
            } else {
                Vec::from(grows)
            };
            [Step::say(STREAM)].into_iter().chain(rest).collect()
        }
        _ if ask.told.contains(TOLD) => state(&grown),
        _ => state(&small),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_that_grows_too_large_keeps_its_operation_and_is_reported() {
    for watch_list in [true, false] {
        let script: Script = Box::new(move |ask| growing(ask, watch_list));
        let impostor = Impostor::start([("things", script)]).await;
        let mut server = Server::start(&impostor).await;
        let all = ["grown Busy", "large Busy", "small Busy"];
        server.until("all three", |active| active == all).await;
        impostor.advance_to(1);
        eventually("the author is told", async || {
            impostor.told("things").contains(TOLD).then_some(())
        })
        .await;
        assert_eq!(server.active().await, all);
        impostor.advance_to(2);
        let failed = |text: String| {
            let name = r#"ifo_evaluation_failures_total{ruleset="things",operation="Busy"}"#;
            let line = text.lines().find_map(|line| line.strip_prefix(name))?;
            line.trim().parse::<u64>().ok().filter(|count| *count >= 2)
        };
        eventually(
            "it is counted, in the state that follows as well",
            async || failed(server.text("/metrics").await.unwrap()),
        )
        .await;
        assert_eq!(server.active().await, all);
        impostor.advance_to(3);
        let rest = &all[1..];
        server.until("its end", |active| active == rest).await;
        server.stayed_within(256);
    }
}
