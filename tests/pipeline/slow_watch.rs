//! Test of a client that stops reading its watch while operations change.

use crate::demo::{DEADLINE, Demo, Folders, OPERATIONS, eventually};
use crate::listener::{tls, token, until};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Number of machines that change together.
const MACHINES: usize = 300;
/// Number of rounds in which they start and end. Their changes are twice the size of the ring.
const TIMES: usize = 12;

/// Bytes that the ring holds for longer than some seconds (`RING_BOUNDS` in `src/app.rs`).
const RING: usize = 12 << 20;

/// A watch on its own connection, with HTTP/2's initial flow-control window.
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
async fn an_unread_watch_ends_without_affecting_others() {
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
                // Each request is answered before its deadline, so the slow client delays none.
                let event = read.next().await.expect("the watch goes on");
                assert_ne!(event["type"], "ERROR", "{event}");
                left -= usize::from(event["type"] == kind);
            }
        }
    }
    crate::calm(&demo.log());
    let peak = crate::peak_memory(demo.id());
    assert!(peak < 128 << 20, "{} MiB at the peak", peak >> 20);

    // Young changes are kept for clients that read promptly, beyond the size of the ring.
    until(&demo, "ifo_index_ring_bytes", |bytes| bytes <= RING).await;
    // The client gets the data that was in flight, and then an error that older changes are
    // missing.
    let mut heard = Vec::new();
    let to_the_end = async {
        while let Some(frame) = unread.frame().await {
            match frame {
                Ok(frame) => heard.extend(frame.into_data().unwrap()),
                // It took so long that the stream was aborted instead.
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
    // The client can continue from the current state.
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
