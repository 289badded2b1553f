//! Binds the listening socket. Without an explicit address, the socket accepts IPv4 clients and, if
//! the host has IPv6, also IPv6 clients.

use anyhow::Context as _;
use socket2::{Domain, Protocol, Socket, Type};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use tokio::net::TcpListener;

/// Maximum number of connections that wait in the kernel until the server accepts them. If more
/// clients connect, Linux drops their packets, and the clients try again. The value is tokio's
/// default.
const BACKLOG: i32 = 1024;

/// Listens on `address`, or on all addresses of the host if `address` is `None`.
///
/// Returns the listener and the address with its port. If `port` is 0, the kernel chooses the port.
pub(super) fn bind(
    address: Option<IpAddr>,
    port: u16,
) -> anyhow::Result<(TcpListener, SocketAddr)> {
    let listener = match address {
        Some(address) => bind_one(SocketAddr::new(address, port), open)?,
        None => bind_all(port, open)?,
    };
    let address = listener
        .local_addr()
        .context("the listener has no address")?;
    Ok((listener, address))
}

fn bind_one<L>(
    address: SocketAddr,
    open: impl Fn(SocketAddr) -> io::Result<L>,
) -> anyhow::Result<L> {
    open(address).with_context(|| format!("cannot listen on {address}"))
}

/// Listens on `[::]`, which also accepts IPv4 connections. If this fails, usually because the host
/// has no IPv6, listens on `0.0.0.0`.
///
/// If another process already listens on this port of `[::]`, the function returns an error and
/// does not try `0.0.0.0`. The reason: if the other process listens on IPv6 only, the server could
/// bind `0.0.0.0` and start. But its IPv6 clients would reach the other process.
fn bind_all<L>(port: u16, open: impl Fn(SocketAddr) -> io::Result<L>) -> anyhow::Result<L> {
    let address = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
    match open(address) {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
            tracing::info!(%error, "cannot listen on IPv6; listening on IPv4 only");
            bind_one(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port), open)
        }
        result => result.with_context(|| format!("cannot listen on {address}")),
    }
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    if address.is_ipv6() {
        // The socket must also accept IPv4 clients. Without this call, the sysctl
        // `net.ipv6.bindv6only` of the host would decide.
        socket.set_only_v6(false)?;
    }
    // After a restart, connections of the previous process can be in the state TIME_WAIT. Without
    // this option, the server could not bind the port until the kernel has removed these
    // connections.
    socket.set_reuse_address(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_client::error_text::chain;
    use std::cell::RefCell;

    /// Calls `bind_all` with simulated failures to bind IPv6 and IPv4 addresses. Returns the
    /// addresses that were tried, in order, and the result as a text.
    fn bind_all_with(
        v6: Option<io::ErrorKind>,
        v4: Option<io::ErrorKind>,
    ) -> (Vec<String>, String) {
        let tried = RefCell::new(Vec::new());
        let result = bind_all(8443, |address| {
            tried.borrow_mut().push(address.to_string());
            let failure = if address.is_ipv6() { v6 } else { v4 };
            failure.map_or(Ok(address), |kind| Err(kind.into()))
        });
        let result = result.map_or_else(|error| chain(&*error), |address| address.to_string());
        (tried.into_inner(), result)
    }

    #[test]
    fn a_host_without_ipv6_listens_on_ipv4() {
        let no_ipv6 = io::ErrorKind::AddrNotAvailable;
        for v6 in [no_ipv6, io::ErrorKind::Unsupported, io::ErrorKind::Other] {
            let (tried, result) = bind_all_with(Some(v6), None);
            assert_eq!(tried, ["[::]:8443", "0.0.0.0:8443"]);
            assert_eq!(result, "0.0.0.0:8443");
        }
        let (_, result) = bind_all_with(Some(no_ipv6), Some(io::ErrorKind::PermissionDenied));
        assert!(
            result.starts_with("cannot listen on 0.0.0.0:8443: "),
            "{result}"
        );
    }

    #[test]
    fn an_ipv6_port_in_use_does_not_fall_back_to_ipv4() {
        let (tried, result) = bind_all_with(Some(io::ErrorKind::AddrInUse), None);
        assert_eq!(tried, ["[::]:8443"]);
        assert!(
            result.starts_with("cannot listen on [::]:8443: "),
            "{result}"
        );
        assert_eq!(
            bind_all_with(None, None),
            (vec!["[::]:8443".to_owned()], "[::]:8443".to_owned())
        );
    }

    #[tokio::test]
    async fn an_explicit_address_is_the_only_one_that_is_bound() {
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
