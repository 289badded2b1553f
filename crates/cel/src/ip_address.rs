//! IP addresses and CIDRs (`ip('10.0.0.1')` and `cidr('10.0.0.0/8')`), as in Kubernetes. Addresses
//! with a zone and IPv4-mapped IPv6 addresses are refused.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

const NO_ADDRESS: &str = "IP Address parse error during conversion from string";
const NO_NETWORK: &str = "network address parse error during conversion from string";
const IS_MAPPED: &str = "IPv4-mapped IPv6 address is not allowed";

/// Parses an address, or returns the text of the error. This text does not quote the address.
pub(super) fn parse_ip(text: &str) -> Result<IpAddr, &'static str> {
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
pub(super) fn parse_cidr(text: &str) -> Result<IpNet, &'static str> {
    let (address, prefix) = text.split_once('/').ok_or(NO_NETWORK)?;
    let address = parse_ip(address)?;
    let cidr = prefix
        .parse()
        .ok()
        .and_then(|prefix| IpNet::new(address, prefix).ok());
    cidr.filter(|cidr| cidr.prefix_len().to_string() == prefix)
        .ok_or(NO_NETWORK)
}

pub(super) fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

pub(super) fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns true for all addresses except for unspecified, loopback, multicast, broadcast and
/// link-local addresses. Private addresses count as global, too.
pub(super) fn is_global_unicast(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
        && address != Ipv4Addr::BROADCAST
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        parse_ip(text).expect("the address is valid")
    }

    fn cidr(text: &str) -> IpNet {
        parse_cidr(text).expect("the CIDR is valid")
    }

    #[test]
    fn addresses_are_printed_in_canonical_form() {
        for (text, canonical) in [
            ("10.0.0.1", "10.0.0.1"),
            ("2001:DB8:0:0:0:0:0:0001", "2001:db8::1"),
            ("1:0:0:2:3:0:0:4", "1::2:3:0:0:4"),
            ("0:1:0:1:0:1:0:1", "0:1:0:1:0:1:0:1"),
            ("1:2:3:4:5:6:7::", "1:2:3:4:5:6:7:0"),
            ("::1.2.3.4", "::102:304"),
        ] {
            assert_eq!(ip(text).to_string(), canonical);
        }
    }

    #[test]
    fn zones_and_mapped_addresses_are_refused() {
        assert_eq!(parse_ip("fe80::1%eth0"), Err(NO_ADDRESS));
        assert_eq!(parse_ip("::ffff:1.2.3.4"), Err(IS_MAPPED));
        assert_eq!(parse_cidr("::ffff:1.2.3.4/96"), Err(IS_MAPPED));
        assert_eq!(parse_cidr("fe80::1%eth0/64"), Err(NO_ADDRESS));
    }

    #[test]
    fn addresses_are_classified() {
        assert!(is_global_unicast(ip("10.0.0.1")));
        assert!(!is_global_unicast(ip("255.255.255.255")));
        assert!(is_link_local_multicast(ip("224.0.0.255")));
        assert!(is_link_local_multicast(ip("ff12::1")));
        assert!(is_link_local_unicast(ip("febf::1")));
    }

    #[test]
    fn cidrs_have_no_signs_and_no_leading_zeros() {
        for text in [
            "010.0.0.0/8",
            "1.2.3.4/08",
            "1.2.3.4/00",
            "1.2.3.4/+8",
            "1.2.3.4/33",
            "1.2.3.4/",
            "::/129",
        ] {
            assert!(parse_cidr(text).is_err(), "{text}");
        }
        assert_eq!(cidr("1.2.3.4/0").trunc(), cidr("0.0.0.0/0"));
    }

    #[test]
    fn a_cidr_contains_addresses_and_longer_prefixes() {
        let outer = cidr("10.1.2.3/8");
        assert_ne!(outer, outer.trunc());
        assert!(outer.contains(&ip("10.255.0.0")));
        assert!(!outer.contains(&ip("::a00:0")));
        assert!(outer.contains(&cidr("10.9.0.0/16")));
        assert!(!outer.contains(&cidr("10.0.0.0/7")));
        assert!(!cidr("0.0.0.0/0").contains(&cidr("::/0")));
        assert_eq!(outer.trunc().to_string(), "10.0.0.0/8");
    }
}
