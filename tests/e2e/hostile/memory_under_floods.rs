//! Tests of the server's memory while it handles hundreds of large requests. Each request has about
//! 60 KB, and the client does not read the bodies of the answers. Each test starts a new server,
//! because the system reports the peak memory since the start of the process.

use super::http2_client::{RawConnection, RawConnector};
use super::{WITHOUT_PERSISTENCE, peak_memory, process_status_bytes};
use crate::harness::{Caller, OPERATION, alone};
use crate::persistence::Persisting;
use serde_json::json;
use std::time::Duration;

/// Number of concurrent requests on a connection. It is below the server's limit of 1,000 streams
/// on a connection. If all requests are watches, the server accepts 125 watches of one user, and
/// answers the other requests with a 429.
const STREAMS: usize = 400;
/// Name of a user who may list and watch.
const READER: &str = "hostile-reader";
/// The header with which the front proxy names [`READER`].
const IDENTITY: [(&str, &str); 1] = [("x-remote-user", READER)];

/// Runs `flood`, which sends many requests to a new server. The server's memory may grow by at most
/// half of the Deployment's memory limit. The other half is for operations, and for the idle
/// server, which needs about 45 MB in a debug build and 15 MB in a release build.
///
/// If `as_reader` is true, the connector presents the certificate of the front proxy, and the user
/// [`READER`] may list and watch. Otherwise the requests are anonymous.
fn with_flood(as_reader: bool, flood: impl AsyncFnOnce(&RawConnector)) {
    alone(async |cluster| {
        let mut target = Persisting::start(cluster, &WITHOUT_PERSISTENCE).await;
        if as_reader {
            let binding = json!({
                "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": READER},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
                },
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": READER},
                ],
            });
            cluster.apply(&[binding]).await;
        }
        let server = &mut target.server;
        let connector = RawConnector::to(cluster, server, as_reader).await;
        let before = process_status_bytes(server.pid(), "VmRSS:");
        flood(&connector).await;
        Caller::new(server.stranger()).get("/livez").await.ok();
        let growth = peak_memory(server.pid()).saturating_sub(before);
        let most = server.memory_limit() / 2;
        assert!(
            growth < most,
            "the memory grew by {} MiB, from {} MiB",
            growth >> 20,
            before >> 20
        );
        assert!(server.is_running());
    });
}

/// Opens a connection and sends [`STREAMS`] requests. The flow-control window is 0 bytes, so the
/// server cannot send the bodies of the answers.
async fn send_requests(
    connector: &RawConnector,
    headers: &[(&str, &str)],
    path: impl Fn(usize) -> String,
) -> RawConnection {
    let mut connection = connector.connect(0).await;
    for number in 0..STREAMS {
        connection.add_get(&path(number), headers);
        connection
            .send()
            .await
            .expect("the server must read requests");
    }
    connection
}

/// Sends [`STREAMS`] requests on each of several connections, and waits until the headers of all
/// answers have arrived.
async fn send_and_wait(
    connector: &RawConnector,
    connections: usize,
    headers: &[(&str, &str)],
    path: impl Fn(usize) -> String,
) {
    let mut open = Vec::new();
    for number in 0..connections {
        let path = |of_connection| path(number * STREAMS + of_connection);
        open.push(send_requests(connector, headers, path).await);
    }
    for connection in &mut open {
        connection
            .until("all requests are answered", |seen| seen.heads >= STREAMS)
            .await;
    }
}

/// Returns a path with a label selector that has more than ten thousand values. Different numbers
/// give different paths. `more` contains further query options, each with a final `&`.
fn path_with_long_selector(number: usize, more: &str) -> String {
    let values: Vec<String> = (0..10_000).map(|value| format!("v{value}")).collect();
    let values = values.join(",");
    let path = OPERATION.path(None);
    format!("{path}?{more}labelSelector=k%20in%20({values},n{number})")
}

#[test]
fn long_forbidden_paths_take_little_memory() {
    with_flood(false, async |connector| {
        // The JSON of the answer contains each `&` in an escaped form of six bytes, `\u0026`.
        let path = format!("/apis/g/v1/{}", "&".repeat(60_000));
        send_and_wait(connector, 4, &[], |_| path.clone()).await;
    });
}

#[test]
fn cancelled_lists_with_long_selectors_release_their_memory() {
    with_flood(true, async |connector| {
        for round in 0..2 {
            let each = |number| path_with_long_selector(round * STREAMS + number, "");
            let mut connection = send_requests(connector, &IDENTITY, each).await;
            // In these 30 ms, the server sends SubjectAccessReviews, but does not receive all
            // answers. So some requests are cancelled while they wait for a review.
            tokio::time::sleep(Duration::from_millis(30)).await;
            for number in 0..STREAMS {
                connection
                    .add_reset(u32::try_from(1 + 2 * number).expect("the stream number is small"));
            }
            // The server may have closed the flooding connection, so an error is ignored.
            let _ = connection.send().await;
        }
    });
}

#[test]
fn watches_with_long_selectors_take_little_memory() {
    with_flood(true, async |connector| {
        let each = |number| path_with_long_selector(number, "watch=1&");
        send_and_wait(connector, 1, &IDENTITY, each).await;
    });
}
