//! A TCP relay between a server under test and the kube-apiserver. A test uses the relay to
//! interrupt the server's connections.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The state of a relay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Link {
    /// The relay forwards all bytes.
    Open,
    /// The relay closes all connections. It also closes each new connection at once.
    Refused,
    /// Connections stay open, but the relay forwards no bytes, as if the network lost every packet.
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
    /// Starts a relay to the server at this `https` URL. When the returned value is dropped, the
    /// relay closes all connections.
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
}

/// Forwards the bytes of one connection. Returns when either side closes the connection, when the
/// relay starts to refuse connections, or when the [`Relay`] is dropped.
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
    // `wait_for` fails only if the `Relay` has been dropped. A dropped `Relay` closes its
    // connections, so this function returns in this case, too.
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
