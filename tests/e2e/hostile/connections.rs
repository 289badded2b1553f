//! Tests with hundreds of connections of a user with a valid client certificate. Each test has its
//! own server.

use super::UNWRITTEN;
use super::wire::{Way, Wire};
use crate::access::client_certificate;
use crate::harness::{Caller, OPERATION, World, alone};
use crate::persistence::Persisting;
use futures::{AsyncReadExt as _, FutureExt as _};
use kube::Config;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Number of connections, far above the limit.
const CONNECTIONS: usize = 400;
/// A user without rights.
const EVE: &str = "hostile-eve";
/// A user who may list and watch.
const READER: &str = "hostile-watcher";
/// A user who is no administrator and must be served.
const BOB: &str = "hostile-bob";

/// Gives these users the right to read everything.
async fn let_read(world: &World, users: &[&str]) {
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
    world.apply(&[binding]).await;
}

/// A client with a client certificate of the cluster.
fn holder(world: &World, mut direct: Config, name: &str, group: &str) -> Caller {
    let (certificate, key) = client_certificate(world, name, group);
    direct.auth_info.client_certificate_data = Some(openssl::base64::encode_block(&certificate));
    direct.auth_info.client_key_data = Some(openssl::base64::encode_block(&key).into());
    Caller::new(direct)
}

/// The clients that must be served, each on a new connection.
async fn others_are_served(world: &World, direct: &Config) {
    let stranger = || Caller::new(direct.clone());
    for path in ["/livez", "/readyz", "/healthz"] {
        stranger().get(path).await.ok();
    }
    let path = OPERATION.path(None);
    let proxy = world.front_proxy_of(direct.clone());
    let masters = [
        ("X-Remote-User", "anybody"),
        ("X-Remote-Group", "system:masters"),
    ];
    proxy.get_with(&path, &masters).await.ok();
    let administrator = holder(world, direct.clone(), "hostile-root", "system:masters");
    administrator.get(&path).await.ok();
    let bob = holder(world, direct.clone(), BOB, "people");
    bob.get(&path).await.ok();
}

/// Opens connections one after the other from four addresses, with one request each, until the task
/// is aborted. Keeps at most `open` of them open.
async fn flood(way: Arc<Way>, path: String, opened: Arc<AtomicUsize>) {
    let mut wires: Vec<Wire> = Vec::new();
    loop {
        let number = opened.fetch_add(1, Ordering::Relaxed);
        let last = u8::try_from(number % 4).expect("it is small") + 1;
        // The server may refuse the connection.
        if let Ok(mut wire) = way.connect_from([127, 0, 0, last], 65_535).await {
            wire.get(&path, &[]);
            let _ = wire.send().await;
            wires.push(wire);
        }
        if wires.len() > CONNECTIONS {
            wires.remove(0);
        }
    }
}

/// Floods a server with connections of this user, each with a request for `path`.
fn flooded(user: &'static str, path: &str) {
    alone(async |world| {
        let target = Persisting::start(world, &UNWRITTEN).await;
        let_read(world, &[READER, BOB]).await;
        let direct = target.server.stranger();
        let (certificate, key) = client_certificate(world, user, "people");
        let way = Way::presenting(world, &target.server, &certificate, &key).await;
        let way = Arc::new(way);
        let opened = Arc::new(AtomicUsize::new(0));
        // An older connection that is in use.
        let bob = holder(world, direct.clone(), BOB, "people");
        let watch = format!("{}?watch=1", OPERATION.path(None));
        let request = http::Request::get(watch).body(Vec::new());
        let mut events = bob
            .client
            .request_stream(request.expect("a request"))
            .await
            .expect("the watch begins");
        let floods: Vec<_> = (0..2)
            .map(|_| tokio::spawn(flood(way.clone(), path.to_owned(), opened.clone())))
            .collect();
        let mut rounds = 0;
        while opened.load(Ordering::Relaxed) < 2 * CONNECTIONS || rounds < 5 {
            others_are_served(world, &direct).await;
            rounds += 1;
        }
        for flood in &floods {
            assert!(!flood.is_finished(), "the server answers its connections");
            flood.abort();
        }
        let mut buffer = [0; 4096];
        while let Some(read) = events.read(&mut buffer).now_or_never() {
            let open = read.is_ok_and(|read| read > 0);
            assert!(open, "another user's watch was closed");
        }
    });
}

#[test]
fn many_connections_of_one_user_do_not_block_others() {
    flooded(EVE, "/version");
}

#[test]
fn many_watches_of_one_user_do_not_block_others() {
    flooded(READER, &format!("{}?watch=1", OPERATION.path(None)));
}
