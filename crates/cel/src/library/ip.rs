//! IP addresses and CIDRs (`ip('10.0.0.1')` and `cidr('10.0.0.0/8')`), as in Kubernetes. Addresses
//! with a zone and IPv4-mapped IPv6 addresses are refused.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

const NO_ADDRESS: &str = "IP Address parse error during conversion from string";
const NO_NETWORK: &str = "network address parse error during conversion from string";
const IS_MAPPED: &str = "IPv4-mapped IPv6 address is not allowed";

/// Parses an address, or returns the text of the error. This text does not quote the address.
pub(crate) fn parse_ip(text: &str) -> Result<IpAddr, &'static str> {
    match text.parse() {
        Err(_) => Err(NO_ADDRESS),
        Ok(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => Err(IS_MAPPED),
        Ok(address) => Ok(address),
    }
}

/// Parses a CIDR, or returns the text of the error. This text does not quote the CIDR. As in
/// Kubernetes, the bits after the prefix need not be zero.
///
/// The parser of `ipnet` is not used, because it accepts leading zeros, as in `010.0.0.0/08`.
pub(crate) fn parse_cidr(text: &str) -> Result<IpNet, &'static str> {
    let (address, prefix) = text.split_once('/').ok_or(NO_NETWORK)?;
    let address = parse_ip(address)?;
    let cidr = prefix
        .parse()
        .ok()
        .and_then(|prefix| IpNet::new(address, prefix).ok());
    cidr.filter(|cidr| cidr.prefix_len().to_string() == prefix)
        .ok_or(NO_NETWORK)
}

pub(crate) fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

pub(crate) fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns true for all addresses except for unspecified, loopback, multicast, broadcast and
/// link-local addresses. Private addresses count as global, too.
pub(crate) fn is_global_unicast(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
        && address != Ipv4Addr::BROADCAST
}
