//! The listening socket.
//!
//! Input: the address to listen on, or none. Output: a socket. Without an address, the socket
//! serves IPv4 and IPv6 clients.

use anyhow::Context as _;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpListener;

/// Number of connections that the kernel holds until they are accepted. It is tokio's default.
const BACKLOG: i32 = 1024;

/// Listens on `address`, or on all addresses of the host if it is None.
///
/// Also returns the bound address. It has the port that the kernel chose if `port` is 0.
pub(super) fn bind(
    address: Option<IpAddr>,
    port: u16,
) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = match address {
        Some(address) => named(SocketAddr::new(address, port), open)?,
        None => anywhere(port, open)?,
    };
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    Ok((listener, address))
}

fn named<L>(address: SocketAddr, open: impl Fn(SocketAddr) -> io::Result<L>) -> anyhow::Result<L> {
    open(address).with_context(|| format!("cannot listen on {address}"))
}

/// Listens on `[::]`, which also accepts IPv4 connections, or on `0.0.0.0` if the host has no IPv6.
///
/// A port that is in use is an error, because the other process may serve only IPv6 clients.
fn anywhere<L>(port: u16, open: impl Fn(SocketAddr) -> io::Result<L>) -> anyhow::Result<L> {
    let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    match open(address) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            tracing::info!(%error, "cannot listen on IPv6; listening on IPv4 only");
            named(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), open)
        }
        opened => opened.with_context(|| format!("cannot listen on {address}")),
    }
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // The default of the host (net.ipv6.bindv6only) can differ.
        socket.set_only_v6(false)?;
    }
    // A restarted server must not wait for the closed connections of the previous process.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_client::error::chain;
    use std::cell::RefCell;

    /// Simulates binding with these failures of IPv6 and IPv4. Returns the addresses that
    /// `anywhere` tried in order, and its result.
    fn opened(v6: Option<io::ErrorKind>, v4: Option<io::ErrorKind>) -> (Vec<String>, String) {
        let tried = RefCell::new(Vec::new());
        let end = anywhere(8443, |address| {
            tried.borrow_mut().push(address.to_string());
            let failure = if address.is_ipv6() { v6 } else { v4 };
            failure.map_or(Ok(address), |kind| Err(kind.into()))
        });
        let end = end.map_or_else(|error| chain(&*error), |address| address.to_string());
        (tried.into_inner(), end)
    }

    #[test]
    fn a_host_without_ipv6_listens_on_ipv4() {
        let none = io::ErrorKind::AddrNotAvailable;
        for v6 in [none, io::ErrorKind::Unsupported, io::ErrorKind::Other] {
            let (tried, end) = opened(Some(v6), None);
            assert_eq!(tried, ["[::]:8443", "0.0.0.0:8443"]);
            assert_eq!(end, "0.0.0.0:8443");
        }
        let (_, end) = opened(Some(none), Some(io::ErrorKind::PermissionDenied));
        assert!(end.starts_with("cannot listen on 0.0.0.0:8443: "), "{end}");
    }

    #[test]
    fn an_ipv6_port_in_use_does_not_fall_back_to_ipv4() {
        let (tried, end) = opened(Some(io::ErrorKind::AddrInUse), None);
        assert_eq!(tried, ["[::]:8443"]);
        assert!(end.starts_with("cannot listen on [::]:8443: "), "{end}");
        assert_eq!(
            opened(None, None),
            (vec!["[::]:8443".to_owned()], "[::]:8443".to_owned())
        );
    }

    #[tokio::test]
    async fn an_explicit_bind_address_is_the_only_one() {
        let given = IpAddr::from(Ipv4Addr::LOCALHOST);
        let (first, address) = bind(Some(given), 0).unwrap();
        assert_eq!(address.ip(), given);
        let error = bind(Some(given), address.port()).unwrap_err();
        let text = chain(&*error);
        assert!(
            text.starts_with(&format!("cannot listen on {address}: ")),
            "{text}"
        );
        drop(first);
    }
}
