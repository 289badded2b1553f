//! A relay between the server under test and kube-apiserver that breaks all connections
//! from time to time, for `IFO_E2E_GAPS`: what an overloaded machine does to watches.

use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long no connection is accepted after a break: longer than the 2 s that the server
/// waits for a watch before it counts a gap (`PATIENCE` in `src/observe/follow.rs`).
const AWAY: Duration = Duration::from_secs(3);

/// Starts a relay to this `https` URL, and returns its own. It breaks all connections so
/// often, and lives as long as the process.
pub async fn start(server: &str, often: Duration) -> String {
    let (_, target) = server.split_once("//").expect("a URL has a scheme");
    let target = target.trim_end_matches('/').to_owned();
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("a free port on loopback");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move {
        loop {
            relay(&listener, &target, often).await;
            refuse(&listener).await;
        }
    });
    format!("https://{address}")
}

/// Passes connections on for this long.
async fn relay(listener: &TcpListener, target: &str, long: Duration) {
    // All connections end when this is dropped.
    let mut connections = JoinSet::new();
    let end = Instant::now() + long;
    while let Ok(Ok((mut client, _))) = tokio::time::timeout_at(end, listener.accept()).await {
        let target = target.to_owned();
        connections.spawn(async move {
            if let Ok(mut server) = TcpStream::connect(target).await {
                // It ends as either side wants it to.
                let _ = copy_bidirectional(&mut client, &mut server).await;
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// Closes each connection at once, for a while.
async fn refuse(listener: &TcpListener) {
    let end = Instant::now() + AWAY;
    while let Ok(accepted) = tokio::time::timeout_at(end, listener.accept()).await {
        drop(accepted);
    }
}
