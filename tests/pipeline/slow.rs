//! A client that stops reading its watch while the world goes on.

use crate::demo::{DEADLINE, Demo, Folders, OPERATIONS, eventually};
use crate::listener::{tls, token, until};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Machines that all change at once.
const MACHINES: usize = 300;
/// Times that they start and are done, which is twice what the ring holds.
const TIMES: usize = 12;

/// Bytes that the ring holds for longer than some seconds (`RING` in `src/app.rs`).
const RING: usize = 12 << 20;

/// A watch over a connection of its own, which opens no more than HTTP/2's first window.
async fn watch(demo: &Demo, query: &str) -> Incoming {
    let io = TokioIo::new(tls(demo, b"h2").await);
    let (mut sender, connection) = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(65_535)
        .initial_connection_window_size(65_535)
        .handshake(io)
        .await
        .unwrap();
    tokio::spawn(connection);
    let request = http::Request::get(format!("https://localhost{OPERATIONS}?watch=true{query}"))
        .header("authorization", format!("Bearer {}", token(demo)))
        .body(Empty::<Bytes>::new())
        .unwrap();
    let answer = sender.send_request(request).await.unwrap();
    assert_eq!(answer.status(), 200);
    answer.into_body()
}

fn machines(folders: &Folders, state: &str) {
    let machine = |n: usize| {
        json!({
            "apiVersion": "kubevirt.io/v1",
            "kind": "VirtualMachine",
            "metadata": {"name": format!("vm-{n:04}"), "namespace": "shop"},
            "status": {"printableStatus": state},
        })
    };
    let machines: Vec<_> = (0..MACHINES).map(machine).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": machines});
    folders.put(&folders.objects, "machines.json", &list.to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_that_is_not_read_ends_and_costs_the_others_nothing() {
    let folders = Folders::new();
    folders.rule_set(
        "starts",
        "Starting",
        "object.status.printableStatus == 'Starting'",
    );
    machines(&folders, "Running");
    let demo = Demo::start(&folders.args()).await;
    let list: Value = eventually("a list", async || demo.get(OPERATIONS).await.ok()).await;
    let version = list["metadata"]["resourceVersion"].as_str().unwrap();
    let after = format!("&resourceVersion={version}");

    let mut unread = watch(&demo, &after).await;
    let mut read = demo
        .watch(
            &format!("{OPERATIONS}?watch=true{after}"),
            "application/json",
        )
        .await;
    for _ in 0..TIMES {
        for (state, kind) in [("Starting", "ADDED"), ("Running", "DELETED")] {
            machines(&folders, state);
            let mut left = MACHINES;
            while left > 0 {
                // Each waits for less than the deadline: nothing holds it up.
                let event = read.next().await.expect("the watch goes on");
                assert_ne!(event["type"], "ERROR", "{event}");
                left -= usize::from(event["type"] == kind);
            }
        }
    }
    crate::calm(&demo.log());
    let peak = crate::peak_memory(demo.id());
    assert!(peak < 128 << 20, "{} MiB at the peak", peak >> 20);

    // Changes that are young are kept for whoever reads at once, beyond the ring's bytes.
    until(&demo, "ifo_index_ring_bytes", |bytes| bytes <= RING).await;
    // What was on its way, and then that the rest is gone.
    let mut heard = Vec::new();
    let to_the_end = async {
        while let Some(frame) = unread.frame().await {
            match frame {
                Ok(frame) => heard.extend(frame.into_data().unwrap()),
                // It took so long that the stream was cut off instead.
                Err(error) => {
                    assert!(format!("{error:?}").contains("CANCEL"), "{error:?}");
                    return false;
                }
            }
        }
        true
    };
    let ended = timeout(DEADLINE, to_the_end).await.expect("it ends");
    if ended {
        let events: Vec<Value> = serde_json::Deserializer::from_slice(&heard)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap();
        let (last, before) = events.split_last().unwrap();
        assert_eq!(last["type"], "ERROR", "{last}");
        assert_eq!(last["object"]["code"], 410, "{last}");
        assert_eq!(last["object"]["reason"], "Expired", "{last}");
        assert!(before.iter().all(|event| event["type"] != "ERROR"));
        assert!(before.len() < 3 * MACHINES * TIMES);
    }
    // It can go on from the present.
    let mut resumed = watch(&demo, "").await;
    machines(&folders, "Starting");
    let event = timeout(DEADLINE, resumed.frame()).await.expect("an event");
    assert!(
        event
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap()
            .starts_with(b"{\"type\":\"ADDED\"")
    );
}
