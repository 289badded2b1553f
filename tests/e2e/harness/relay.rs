//! A TCP relay between a server under test and the kube-apiserver. A test uses the relay to
//! interrupt the connections. With the environment variable `IFO_E2E_GAPS`, the relay interrupts
//! all connections periodically, to simulate an overloaded machine.

use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Time for which the relay refuses connections in a periodic interruption. If the server cannot
/// continue a watch for 2 s (`INTERRUPTION_REPORT_DELAY` in `src/observe/list_and_watch.rs`), it
/// reports a watch gap. So each interruption causes a watch gap.
const INTERRUPTION: Duration = Duration::from_secs(3);

/// The state of a relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Link {
    Open,
    /// All connections are closed, and new connections are closed at once.
    Refused,
    /// Connections stay open, but the relay forwards no bytes, as if every packet were dropped.
    Silent,
}

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    /// The `https` URL of the relay.
    pub url: String,
    link: watch::Sender<Link>,
}

impl Relay {
    /// Starts a relay to this `https` URL. When the returned value is dropped, the relay closes all
    /// connections.
    pub async fn start(server: &str) -> Self {
        let (_, target) = server.split_once("//").expect("the URL has a scheme");
        let target = target.trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port on loopback is free");
        let address = listener.local_addr().expect("the listener has an address");
        let (link, state) = watch::channel(Link::Open);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(forward(client, target.clone(), state.clone()));
            }
        });
        Self {
            url: format!("https://{address}"),
            link,
        }
    }

    /// Interrupts or restores the connections.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// Repeats without end: forwards bytes for `interval`, and then refuses connections for
    /// [`INTERRUPTION`].
    pub async fn with_gaps(self, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            self.set(Link::Refused);
            tokio::time::sleep(INTERRUPTION).await;
            self.set(Link::Open);
        }
    }
}

/// Forwards the bytes of one connection, until either side closes the connection or the relay
/// starts to refuse connections.
async fn forward(client: TcpStream, target: String, mut link: watch::Receiver<Link>) {
    let refused = link.clone();
    let carried = async move {
        if passable(&mut link).await.is_none() {
            return;
        }
        let Ok(server) = TcpStream::connect(target).await else {
            return;
        };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        tokio::select! {
            () = pump(from_client, to_server, link.clone()) => {}
            () = pump(from_server, to_client, link) => {}
        }
    };
    tokio::select! {
        () = carried => {}
        () = until_refused(refused) => {}
    }
}

async fn until_refused(mut link: watch::Receiver<Link>) {
    // `wait_for` fails only when the `Relay` has been dropped. Then the connection is closed, too.
    let _ = link.wait_for(|link| *link == Link::Refused).await;
}

/// Waits until the relay may forward bytes. Returns None if the [`Relay`] was dropped while its
/// link was silent.
async fn passable(link: &mut watch::Receiver<Link>) -> Option<()> {
    link.wait_for(|link| *link != Link::Silent).await.ok()?;
    Some(())
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut link: watch::Receiver<Link>) {
    let mut bytes = vec![0; 16 << 10];
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        if passable(&mut link).await.is_none() || to.write_all(&bytes[..count]).await.is_err() {
            return;
        }
    }
}
