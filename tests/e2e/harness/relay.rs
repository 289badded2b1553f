//! A relay between a server under test and the kube-apiserver. A test can interrupt it. With
//! `IFO_E2E_GAPS` it breaks all connections periodically, which simulates an overloaded machine.

use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Time for which connections are refused in a gap. It is longer than the 2 s after which the
/// server counts a gap (`OPEN_TIMEOUT` in `src/observe/follow.rs`).
const AWAY: Duration = Duration::from_secs(3);

/// The state of a relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Link {
    Open,
    /// All connections break, and new connections are closed at once.
    Refused,
    /// Connections stay open, but no byte passes, as if every packet were dropped.
    Silent,
}

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    /// Its own `https` URL.
    pub url: String,
    link: watch::Sender<Link>,
}

impl Relay {
    /// Starts a relay to this `https` URL. It runs until the test process ends.
    pub async fn start(server: &str) -> Self {
        let (_, target) = server.split_once("//").expect("a URL has a scheme");
        let target = target.trim_end_matches('/').to_owned();
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a free port on loopback");
        let address = listener.local_addr().expect("it is bound");
        let (link, state) = watch::channel(Link::Open);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(carry(client, target.clone(), state.clone()));
            }
        });
        Self {
            url: format!("https://{address}"),
            link,
        }
    }

    /// Interrupts or restores the relay.
    pub fn set(&self, link: Link) {
        self.link.send_replace(link);
    }

    /// Breaks all connections at this interval.
    pub async fn with_gaps(self, interval: Duration) {
        loop {
            tokio::time::sleep(interval).await;
            self.set(Link::Refused);
            tokio::time::sleep(AWAY).await;
            self.set(Link::Open);
        }
    }
}

/// Transfers the bytes of one connection until either side closes it, or the relay refuses it.
async fn carry(client: TcpStream, target: String, mut link: watch::Receiver<Link>) {
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
    // An error means that the test has ended.
    let _ = link.wait_for(|link| *link == Link::Refused).await;
}

/// Waits until bytes may pass. None if the test has ended.
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
