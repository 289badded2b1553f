//! Test of a slow watch: a client stops reading its watch while operations change. The server must
//! not keep an unlimited number of changes for this client, and must not delay other clients.

use crate::demo::{DEADLINE, Demo, Folders, OPERATIONS, eventually};
use crate::hostile_connections::{tls, token, wait_for_metric};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::time::timeout;

/// Number of VirtualMachines. All VirtualMachines change together.
const MACHINES: usize = 800;
/// Number of rounds. In each round, an operation starts and ends on each VirtualMachine. Together,
/// the changes of all rounds take twice [`RING_LIMIT`].
const ROUNDS: usize = 6;

/// Size limit of the ring buffer in bytes (`RING_BOUNDS` in `src/app.rs`). The ring buffer has the
/// latest changes, from which clients continue their watches.
const RING_LIMIT: usize = 12 << 20;

/// Starts a watch on a new connection. The client uses the default flow-control window of HTTP/2,
/// which is small: 65,535 bytes. So the server soon cannot send more events to a client that does
/// not read.
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

/// Writes the manifests of all VirtualMachines. All have the status `state`.
fn write_machines(folders: &Folders, state: &str) {
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
    write_machines(&folders, "Running");
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
    for _ in 0..ROUNDS {
        for (state, kind) in [("Starting", "ADDED"), ("Running", "DELETED")] {
            write_machines(&folders, state);
            let mut left = MACHINES;
            while left > 0 {
                // `next` panics if no event comes before [`DEADLINE`]. So this loop also checks
                // that the unread watch does not delay the watch `read`.
                let event = read.next().await.expect("the watch must not end");
                assert_ne!(event["type"], "ERROR", "{event}");
                left -= usize::from(event["type"] == kind);
            }
        }
    }
    crate::assert_no_panics(&demo.log());
    let peak = crate::peak_memory(demo.id());
    assert!(peak < 128 << 20, "{} MiB at the peak", peak >> 20);

    // The ring buffer may exceed its size limit while its changes are younger than 10 s. So the
    // test waits until the size is within the limit.
    wait_for_metric(&demo, "ifo_index_ring_bytes", |bytes| bytes <= RING_LIMIT).await;
    // When the slow client reads again, it first receives the events that the server had already
    // sent. Then it receives an error, because the ring buffer no longer has the following changes.
    let mut received = Vec::new();
    let to_the_end = async {
        while let Some(frame) = unread.frame().await {
            match frame {
                Ok(frame) => received.extend(frame.into_data().unwrap()),
                // The server resets the stream if the client has not read for two minutes.
                Err(error) => {
                    assert!(format!("{error:?}").contains("CANCEL"), "{error:?}");
                    return false;
                }
            }
        }
        true
    };
    let ended_cleanly = timeout(DEADLINE, to_the_end)
        .await
        .expect("the watch must end before the deadline");
    if ended_cleanly {
        let events: Vec<Value> = serde_json::Deserializer::from_slice(&received)
            .into_iter()
            .collect::<Result<_, _>>()
            .unwrap();
        let (last, before) = events.split_last().unwrap();
        assert_eq!(last["type"], "ERROR", "{last}");
        assert_eq!(last["object"]["code"], 410, "{last}");
        assert_eq!(last["object"]["reason"], "Expired", "{last}");
        assert!(before.iter().all(|event| event["type"] != "ERROR"));
        assert!(before.len() < 3 * MACHINES * ROUNDS);
    }
    // After the error, the client can start a new watch from the current state.
    let mut resumed = watch(&demo, "").await;
    write_machines(&folders, "Starting");
    let event = timeout(DEADLINE, resumed.frame())
        .await
        .expect("the new watch must send an event before the deadline");
    assert!(
        event
            .unwrap()
            .unwrap()
            .into_data()
            .unwrap()
            .starts_with(b"{\"type\":\"ADDED\"")
    );
}
