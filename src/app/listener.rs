//! Binds the listening socket. Without an explicit address, the socket accepts IPv4 clients and, if
//! the host has IPv6, also IPv6 clients.

use anyhow::Context as _;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpListener;

/// Listens on `address`. If `address` is `None`, listens on `[::]`, which also accepts IPv4
/// connections. If this fails, usually because the host has no IPv6, listens on `0.0.0.0`.
///
/// If another process already listens on this port of `[::]`, the function returns an error and
/// does not try `0.0.0.0`. If the other process listens on IPv6 only, the server could bind
/// `0.0.0.0` and start. But the server's IPv6 clients would reach the other process.
///
/// Returns the listener and the address with its port. If `port` is 0, the kernel chooses the port.
pub(super) async fn bind(
    address: Option<IpAddr>,
    port: u16,
) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let wanted = SocketAddr::new(address.unwrap_or(Ipv6Addr::UNSPECIFIED.into()), port);
    let listener = match TcpListener::bind(wanted).await {
        Err(error) if address.is_none() && error.kind() != ErrorKind::AddrInUse => {
            tracing::info!(%error, "cannot listen on IPv6; listening on IPv4 only");
            let ipv4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
            let bound = TcpListener::bind(ipv4).await;
            bound.with_context(|| format!("cannot listen on {ipv4}"))?
        }
        bound => bound.with_context(|| format!("cannot listen on {wanted}"))?,
    };
    let address = listener.local_addr();
    let address = address.context("the listener has no address")?;
    Ok((listener, address))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_client::error_text::chain;

    #[tokio::test]
    async fn both_protocols_are_accepted_and_a_port_in_use_is_an_error() {
        let (_listener, all) = bind(None, 0).await.unwrap();
        for client in [
            IpAddr::from(Ipv4Addr::LOCALHOST),
            Ipv6Addr::LOCALHOST.into(),
        ] {
            let connected = tokio::net::TcpStream::connect((client, all.port())).await;
            assert!(
                connected.is_ok() || all.is_ipv4() && client.is_ipv6(),
                "{client}"
            );
        }
        let given = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (_listener, address) = bind(Some(given), 0).await.unwrap();
        assert_eq!(address.ip(), given);
        for (in_use, address) in [(None, all), (Some(given), address)] {
            let error = bind(in_use, address.port()).await.unwrap_err();
            let text = chain(&*error);
            let start = format!("cannot listen on {address}: ");
            assert!(text.starts_with(&start), "{text}");
        }
    }
}
