//! Tests of a user who opens hundreds of connections with a valid client certificate. The server
//! under test must still serve other users, probes, and the front proxy (the kube-apiserver). Each
//! test starts its own server.

use super::WITHOUT_PERSISTENCE;
use super::http2_client::{RawConnection, RawConnector};
use crate::access::client_certificate;
use crate::harness::{Caller, OPERATION, TestCluster, alone};
use crate::persistence::Persisting;
use futures::{AsyncReadExt as _, FutureExt as _};
use kube::Config;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of connections that each of the two flooding tasks tries to keep open. It is above the
/// server's limit of 256 connections.
const CONNECTIONS: usize = 400;
/// A user without rights, who floods the server.
const EVE: &str = "hostile-eve";
/// A user who may list and watch, and who floods the server with watches.
const READER: &str = "hostile-watcher";
/// A third user, who may list and watch. The server must serve this user during a flood.
const BOB: &str = "hostile-bob";

/// Gives these users the ClusterRole `view`, with which they may list and watch operations.
async fn grant_view(cluster: &TestCluster, users: &[&str]) {
    let subjects: Vec<_> = users
        .iter()
        .map(|name| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}))
        .collect();
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "hostile-connections"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view",
        },
        "subjects": subjects,
    });
    cluster.apply(&[binding]).await;
}

/// Returns a client that connects directly to the server. The client authenticates as a user with
/// this name and this group, with a certificate that the cluster's CA has signed.
pub fn holder(cluster: &TestCluster, mut direct: Config, name: &str, group: &str) -> Caller {
    let (certificate, key) = client_certificate(cluster, name, group);
    direct.auth_info.client_certificate_data = Some(openssl::base64::encode_block(&certificate));
    direct.auth_info.client_key_data = Some(openssl::base64::encode_block(&key).into());
    Caller::new(direct)
}

/// Asserts that the server answers probes, the front proxy, an administrator and another user. Each
/// request uses a new connection.
async fn assert_others_are_served(cluster: &TestCluster, direct: &Config) {
    let anonymous = || Caller::new(direct.clone());
    for path in ["/livez", "/readyz", "/healthz"] {
        anonymous().get(path).await.ok();
    }
    let path = OPERATION.path(None);
    let proxy = cluster.front_proxy_of(direct.clone());
    let masters = [
        ("X-Remote-User", "anybody"),
        ("X-Remote-Group", "system:masters"),
    ];
    proxy.get_with(&path, &masters).await.ok();
    let administrator = holder(cluster, direct.clone(), "hostile-root", "system:masters");
    administrator.get(&path).await.ok();
    let bob = holder(cluster, direct.clone(), BOB, "people");
    bob.get(&path).await.ok();
}

/// Opens connections until the task is aborted, each from the next of four addresses. Sends one
/// request for `path` on each connection. When more than [`CONNECTIONS`] connections are open,
/// closes the oldest connection. `attempts` counts the attempts to connect.
async fn flood(connector: Arc<RawConnector>, path: String, attempts: Arc<AtomicUsize>) {
    let mut open: Vec<RawConnection> = Vec::new();
    loop {
        let number = attempts.fetch_add(1, Ordering::Relaxed);
        let last = u8::try_from(number % 4).expect("the number is below 4") + 1;
        // The server may refuse the connection.
        if let Ok(mut connection) = connector.connect_from([127, 0, 0, last], 65_535).await {
            connection.add_get(&path, &[]);
            let _ = connection.send().await;
            open.push(connection);
        }
        if open.len() > CONNECTIONS {
            open.remove(0);
        }
    }
}

/// Floods a server with connections of `user`, and sends a request for `path` on each connection.
/// Asserts that the server still serves other clients, and that a watch that another user opened
/// before the flood stays open.
fn others_are_served_during_flood(user: &'static str, path: &str) {
    alone(async |cluster| {
        let target = Persisting::start(cluster, &WITHOUT_PERSISTENCE).await;
        grant_view(cluster, &[READER, BOB]).await;
        let direct = target.server.stranger();
        let (certificate, key) = client_certificate(cluster, user, "people");
        let connector = RawConnector::presenting(cluster, &target.server, &certificate, &key).await;
        let connector = Arc::new(connector);
        let attempts = Arc::new(AtomicUsize::new(0));
        let bob = holder(cluster, direct.clone(), BOB, "people");
        let watch = format!("{}?watch=1", OPERATION.path(None));
        let request = http::Request::get(watch).body(Vec::new());
        let mut events = bob
            .client
            .request_stream(request.expect("the request is valid"))
            .await
            .expect("the user must be allowed to watch");
        let floods: Vec<_> = (0..2)
            .map(|_| tokio::spawn(flood(connector.clone(), path.to_owned(), attempts.clone())))
            .collect();
        let mut rounds = 0;
        while attempts.load(Ordering::Relaxed) < 2 * CONNECTIONS || rounds < 5 {
            assert_others_are_served(cluster, &direct).await;
            rounds += 1;
        }
        for flood in &floods {
            assert!(!flood.is_finished(), "a flooding task has panicked");
            flood.abort();
        }
        let mut buffer = [0; 4096];
        while let Some(read) = events.read(&mut buffer).now_or_never() {
            let is_open = read.is_ok_and(|read| read > 0);
            assert!(is_open, "the watch of another user was closed");
        }
    });
}

#[test]
fn many_connections_of_one_user_do_not_block_others() {
    others_are_served_during_flood(EVE, "/version");
}

#[test]
fn many_watches_of_one_user_do_not_block_others() {
    others_are_served_during_flood(READER, &format!("{}?watch=1", OPERATION.path(None)));
}
