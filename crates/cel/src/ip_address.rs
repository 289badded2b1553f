//! IP addresses and CIDRs (`ip('10.0.0.1')` and `cidr('10.0.0.0/8')`), as in Kubernetes. Addresses
//! with a zone and IPv4-mapped IPv6 addresses are refused.
//!
//! This module reimplements Go's `netip.ParseAddr`, because the standard library of Rust does not
//! have Go's error texts. The named format `format.uri()` needs these texts. Its message about a
//! URL with a wrong IPv6 address contains Go's reason and the part of the address that Go quotes.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

/// An address that Go accepts. It can be IPv4-mapped, as in `::ffff:10.0.0.1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParsedAddress {
    pub(super) address: IpAddr,
    /// True if the text ends with a zone, such as `%eth0`.
    pub(super) has_zone: bool,
}

/// The reason why Go does not accept an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AddressFault {
    /// Go's text of the reason, without the address.
    pub(super) reason: &'static str,
    /// The byte range of the part of the address that Go quotes in the error. If the range is
    /// empty, Go quotes nothing.
    pub(super) at: Range<usize>,
}

impl AddressFault {
    fn new(reason: &'static str, at: Range<usize>) -> Self {
        Self { reason, at }
    }

    fn whole(reason: &'static str) -> Self {
        Self::new(reason, 0..0)
    }
}

/// Parses an IPv4 or IPv6 address like Go's `netip.ParseAddr`. `text` can be invalid UTF-8, because
/// an unescaped host of a URL can contain any bytes.
pub(super) fn parse_address(text: &[u8]) -> Result<ParsedAddress, AddressFault> {
    match text.iter().find(|byte| b".:%".contains(byte)) {
        Some(b'.') => Ok(ParsedAddress {
            address: parse_octets(text, 0..text.len())?.into(),
            has_zone: false,
        }),
        Some(b':') => parse_groups(text),
        Some(_) => Err(AddressFault::whole("missing IPv6 address")),
        None => Err(AddressFault::whole("unable to parse IP")),
    }
}

/// Parses the bytes of `text` in the range `part` as an IPv4 address.
fn parse_octets(text: &[u8], part: Range<usize>) -> Result<[u8; 4], AddressFault> {
    let mut octets = [0; 4];
    let mut dots = 0;
    // `octet` is None before the first digit of an octet.
    let mut octet: Option<u8> = None;
    for at in part.clone() {
        match text.get(at) {
            Some(digit @ b'0'..=b'9') => {
                if octet == Some(0) {
                    return Err(AddressFault::whole(
                        "IPv4 field has octet with leading zero",
                    ));
                }
                let larger = octet
                    .unwrap_or(0)
                    .checked_mul(10)
                    .and_then(|tens| tens.checked_add(digit - b'0'))
                    .ok_or(AddressFault::whole("IPv4 field has value >255"))?;
                octet = Some(larger);
            }
            Some(b'.') => {
                let rest = at..part.end;
                let value = octet.take().filter(|_| at + 1 < part.end).ok_or_else(|| {
                    AddressFault::new("IPv4 field must have at least one digit", rest)
                })?;
                if dots == 3 {
                    return Err(AddressFault::whole("IPv4 address too long"));
                }
                octets[dots] = value;
                dots += 1;
            }
            _ => return Err(AddressFault::new("unexpected character", at..part.end)),
        }
    }
    if dots < 3 {
        return Err(AddressFault::whole("IPv4 address too short"));
    }
    octets[3] = octet.unwrap_or(0);
    Ok(octets)
}

/// The groups of an IPv6 address that are parsed so far.
#[derive(Default)]
struct Groups {
    values: [u16; 8],
    len: usize,
    /// The index of the first group after `::`. None if `::` has not occurred.
    gap: Option<usize>,
}

impl Groups {
    /// Adds a group. The caller checks that there are fewer than 8 groups.
    fn push(&mut self, group: u16) {
        if let Some(slot) = self.values.get_mut(self.len) {
            *slot = group;
            self.len += 1;
        }
    }

    /// Returns the address, in which groups of zeros replace `::`. Returns an error if the number
    /// of groups is wrong.
    fn address(mut self) -> Result<Ipv6Addr, AddressFault> {
        let missing = self.values.len() - self.len;
        match self.gap {
            None if missing > 0 => Err(AddressFault::whole("address string too short")),
            Some(_) if missing == 0 => Err(AddressFault::whole(
                "the :: must expand to at least one field of zeros",
            )),
            None => Ok(self.values.into()),
            Some(gap) => {
                if let Some(after) = self.values.get_mut(gap..) {
                    after.rotate_right(missing.min(after.len()));
                }
                Ok(self.values.into())
            }
        }
    }
}

/// Parses an IPv6 address, which can have a zone and can end with an IPv4 address.
fn parse_groups(text: &[u8]) -> Result<ParsedAddress, AddressFault> {
    let percent = text.iter().position(|byte| *byte == b'%');
    let end = percent.unwrap_or(text.len());
    if percent.is_some_and(|percent| percent + 1 == text.len()) {
        return Err(AddressFault::whole("zone must be a non-empty string"));
    }
    let byte = |at: usize| text.get(at).copied().filter(|_| at < end);
    let mut groups = Groups::default();
    let mut start = 0;
    if byte(0) == Some(b':') && byte(1) == Some(b':') {
        groups.gap = Some(0);
        start = 2;
    }
    // The address is complete here only if it is `::`.
    let mut complete = start == end;
    while groups.len < 8 && !complete {
        let rest = start..end;
        let mut group: u16 = 0;
        let mut at = start;
        while let Some(digit) = byte(at).and_then(|byte| char::from(byte).to_digit(16)) {
            if at - start == 4 {
                let reason = "each group must have 4 or less digits";
                return Err(AddressFault::new(reason, rest));
            }
            group = group << 4 | u16::try_from(digit).unwrap_or(0);
            at += 1;
        }
        if at == start {
            let reason = "each colon-separated field must have at least one digit";
            return Err(AddressFault::new(reason, rest));
        }
        if byte(at) == Some(b'.') {
            if groups.gap.is_none() && groups.len != 6 {
                let reason = "embedded IPv4 address must replace the final 2 fields of the address";
                return Err(AddressFault::new(reason, rest));
            }
            if groups.len > 6 {
                let reason =
                    "too many hex fields to fit an embedded IPv4 at the end of the address";
                return Err(AddressFault::new(reason, rest));
            }
            let [a, b, c, d] = parse_octets(text, rest)?;
            groups.push(u16::from_be_bytes([a, b]));
            groups.push(u16::from_be_bytes([c, d]));
            complete = true;
            break;
        }
        groups.push(group);
        start = at;
        complete = at == end;
        if complete {
            break;
        }
        if byte(at) != Some(b':') {
            let reason = "unexpected character, want colon";
            return Err(AddressFault::new(reason, at..end));
        }
        if at + 1 == end {
            let reason = "colon must be followed by more characters";
            return Err(AddressFault::new(reason, at..end));
        }
        start = at + 1;
        if byte(start) == Some(b':') {
            if groups.gap.is_some() {
                return Err(AddressFault::new("multiple :: in address", start..end));
            }
            groups.gap = Some(groups.len);
            start += 1;
            complete = start == end;
        }
    }
    if !complete {
        return Err(AddressFault::new(
            "trailing garbage after address",
            start..end,
        ));
    }
    Ok(ParsedAddress {
        address: groups.address()?.into(),
        has_zone: percent.is_some(),
    })
}

/// Returns true for an address such as `::ffff:10.0.0.1`.
fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(address) if address.to_ipv4_mapped().is_some())
}

/// The error for a text that is not an IP address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IpError {
    Syntax,
    Zone,
    Mapped,
}

impl IpError {
    /// Returns Kubernetes' text of the error without the address and without Go's reason.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Syntax => "IP Address parse error during conversion from string",
            Self::Zone => "IP address with zone value is not allowed",
            Self::Mapped => "IPv4-mapped IPv6 address is not allowed",
        }
    }
}

/// An IP address of CEL. It has no zone and is not IPv4-mapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ip(IpAddr);

impl Ip {
    pub(super) fn parse(text: &str) -> Result<Self, IpError> {
        let ParsedAddress { address, has_zone } =
            parse_address(text.as_bytes()).map_err(|_| IpError::Syntax)?;
        if has_zone {
            return Err(IpError::Zone);
        }
        if is_mapped(address) {
            return Err(IpError::Mapped);
        }
        Ok(Self(address))
    }

    /// Returns true if `text` is the form in which [`fmt::Display`] prints the address.
    pub(super) fn is_canonical(text: &str) -> Result<bool, IpError> {
        Ok(Self::parse(text)?.to_string() == text)
    }

    /// Returns the version of IP: 4 or 6.
    pub(super) fn family(self) -> i64 {
        if self.0.is_ipv4() { 4 } else { 6 }
    }

    pub(super) fn is_unspecified(self) -> bool {
        self.0.is_unspecified()
    }

    pub(super) fn is_loopback(self) -> bool {
        self.0.is_loopback()
    }

    pub(super) fn is_link_local_multicast(self) -> bool {
        match self.0 {
            IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
            IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
        }
    }

    pub(super) fn is_link_local_unicast(self) -> bool {
        match self.0 {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        }
    }

    /// Returns true for all addresses except for unspecified, loopback, multicast, broadcast and
    /// link-local addresses. Private addresses count as global, too.
    pub(super) fn is_global_unicast(self) -> bool {
        !self.0.is_unspecified()
            && !self.0.is_loopback()
            && !self.0.is_multicast()
            && !self.is_link_local_unicast()
            && self.0 != Ipv4Addr::BROADCAST
    }
}

impl fmt::Display for Ip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The error for a text that is not a CIDR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CidrError {
    Syntax,
    Mapped,
}

impl CidrError {
    /// Returns Kubernetes' text of the error without the CIDR and without Go's reason.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Syntax => "network address parse error during conversion from string",
            Self::Mapped => {
                "network address parse error during conversion from string: \
                 IPv4-mapped IPv6 address is not allowed"
            }
        }
    }
}

/// An IP address with a prefix length. As in Kubernetes, the bits after the prefix need not be
/// zero. These bits count in a comparison, so `10.0.0.1/8` does not equal `10.0.0.0/8`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cidr {
    address: Ip,
    /// At most 32 for IPv4, and at most 128 for IPv6.
    prefix: u8,
}

impl Cidr {
    pub(super) fn parse(text: &str) -> Result<Self, CidrError> {
        let (address, prefix) = text.rsplit_once('/').ok_or(CidrError::Syntax)?;
        let address = match Ip::parse(address) {
            Ok(address) => Ok(address),
            // Kubernetes parses the prefix before it refuses an IPv4-mapped address.
            Err(IpError::Mapped) if parse_prefix(prefix, 128).is_some() => Err(CidrError::Mapped),
            Err(_) => Err(CidrError::Syntax),
        }?;
        let longest = if address.0.is_ipv4() { 32 } else { 128 };
        let prefix = parse_prefix(prefix, longest).ok_or(CidrError::Syntax)?;
        Ok(Self { address, prefix })
    }

    pub(super) fn ip(self) -> Ip {
        self.address
    }

    pub(super) fn prefix_length(self) -> i64 {
        i64::from(self.prefix)
    }

    /// Returns the CIDR in which the bits after the prefix are zero.
    pub(super) fn masked(self) -> Self {
        let address = match self.address.0 {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix));
                IpAddr::V4((u32::from(address) & mask.unwrap_or(0)).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix));
                IpAddr::V6((u128::from(address) & mask.unwrap_or(0)).into())
            }
        };
        Self {
            address: Ip(address),
            ..self
        }
    }

    /// Returns true if `ip` has the same prefix. If `ip` has the other IP version, the result is
    /// false.
    pub(super) fn contains_ip(self, ip: Ip) -> bool {
        let other = Self {
            address: ip,
            ..self
        };
        ip.family() == self.address.family() && self.masked() == other.masked()
    }

    pub(super) fn contains_cidr(self, other: Self) -> bool {
        self.prefix <= other.prefix && self.contains_ip(other.address)
    }
}

/// Parses a prefix length from 0 to `longest`. Returns None for a text with a sign or a leading
/// zero.
fn parse_prefix(text: &str, longest: u8) -> Option<u8> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || (text.len() > 1 && text.starts_with('0')) {
        return None;
    }
    text.parse().ok().filter(|prefix| *prefix <= longest)
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> Ip {
        Ip::parse(text).expect("the address is valid")
    }

    fn cidr(text: &str) -> Cidr {
        Cidr::parse(text).expect("the CIDR is valid")
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
            assert_eq!(Ip::is_canonical(text), Ok(text == canonical));
        }
    }

    #[test]
    fn refused_addresses_have_the_reason_of_go() {
        for (text, reason, at) in [
            ("1", "unable to parse IP", ""),
            ("1.2.3", "IPv4 address too short", ""),
            ("1.2.3.04", "IPv4 field has octet with leading zero", ""),
            ("1..2.3", "IPv4 field must have at least one digit", ".2.3"),
            ("::ffff:1.2.3.256", "IPv4 field has value >255", ""),
            ("1:2::3::4", "multiple :: in address", ":4"),
            (
                "12345::%a",
                "each group must have 4 or less digits",
                "12345::",
            ),
            ("1:2:3:4:5:6:7:8:9", "trailing garbage after address", "9"),
            ("::%", "zone must be a non-empty string", ""),
        ] {
            let fault = parse_address(text.as_bytes()).expect_err(text);
            assert_eq!((fault.reason, &text[fault.at]), (reason, at), "{text}");
        }
    }

    #[test]
    fn zones_and_mapped_addresses_are_refused() {
        assert_eq!(Ip::parse("fe80::1%eth0"), Err(IpError::Zone));
        assert_eq!(Ip::parse("::ffff:1.2.3.4"), Err(IpError::Mapped));
        assert_eq!(Cidr::parse("::ffff:1.2.3.4/96"), Err(CidrError::Mapped));
        assert_eq!(Cidr::parse("fe80::1%eth0/64"), Err(CidrError::Syntax));
    }

    #[test]
    fn addresses_are_classified() {
        assert!(ip("10.0.0.1").is_global_unicast());
        assert!(!ip("255.255.255.255").is_global_unicast());
        assert!(ip("224.0.0.255").is_link_local_multicast());
        assert!(ip("ff12::1").is_link_local_multicast());
        assert!(ip("febf::1").is_link_local_unicast());
        assert!(ip("127.255.0.1").is_loopback());
        assert!(ip("::").is_unspecified());
    }

    #[test]
    fn prefix_lengths_have_no_sign_and_no_leading_zero() {
        for text in [
            "1.2.3.4/08",
            "1.2.3.4/+8",
            "1.2.3.4/33",
            "1.2.3.4/",
            "::/129",
        ] {
            assert_eq!(Cidr::parse(text), Err(CidrError::Syntax), "{text}");
        }
        assert_eq!(cidr("1.2.3.4/0").masked(), cidr("0.0.0.0/0"));
    }

    #[test]
    fn a_cidr_contains_addresses_and_longer_prefixes() {
        let outer = cidr("10.1.2.3/8");
        assert_ne!(outer, outer.masked());
        assert!(outer.contains_ip(ip("10.255.0.0")));
        assert!(!outer.contains_ip(ip("::a00:0")));
        assert!(outer.contains_cidr(cidr("10.9.0.0/16")));
        assert!(!outer.contains_cidr(cidr("10.0.0.0/7")));
        assert!(!cidr("0.0.0.0/0").contains_cidr(cidr("::/0")));
        assert_eq!(outer.masked().to_string(), "10.0.0.0/8");
    }
}
