//! The functions of URLs, IP addresses and CIDRs. As in Kubernetes, addresses with a zone and
//! IPv4-mapped IPv6 addresses are refused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::{IpAddr, Ipv4Addr};
use std::rc::Rc;

use ipnet::IpNet;

use crate::budget::{Budget, charge, charge_arguments};
use crate::value::V;
use crate::value::fault::{Fault, Outcome};
use crate::value::url::{Url, is_url};

pub(crate) const SIGNATURES: &str = "
url(<string>) -> <kubernetes.URL>
<kubernetes.URL>.getScheme|getHost|getHostname|getPort|getEscapedPath() -> <string>
<kubernetes.URL>.getQuery() -> <map(string, list(string))>
isURL|isIP|isCIDR|ip.isCanonical(<string>) -> <bool>
ip(<string>) -> <net.IP>
<net.CIDR>.ip() -> <net.IP>
<net.IP>.family() -> <int>
<net.IP>.isUnspecified|isLoopback|isLinkLocalMulticast() -> <bool>
<net.IP>.isLinkLocalUnicast|isGlobalUnicast() -> <bool>
cidr(<string>) -> <net.CIDR>
<net.CIDR>.containsIP(<net.IP>) -> <bool>
<net.CIDR>.containsIP(<string>) -> <bool>
<net.CIDR>.containsCIDR(<net.CIDR>) -> <bool>
<net.CIDR>.containsCIDR(<string>) -> <bool>
<net.CIDR>.masked() -> <net.CIDR>
<net.CIDR>.prefixLength() -> <int>
";

/// The error for a text that is not a URL. In Kubernetes, the URL and Go's reason follow this text.
const NO_URL: &str = "URL parse error during conversion from string";

/// Calls a function of URLs or IP addresses. A call costs one step for each 64 bytes of the texts
/// and URLs in its arguments. `getQuery` also costs steps for its result.
pub(crate) fn call<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    charge_arguments(args, budget)?;
    Ok(match (name, args) {
        ("url", [V::Str(text)]) => {
            let url = Url::parse(text).ok_or(Fault::error(NO_URL))?;
            V::Url(Rc::new(url))
        }
        ("isURL", [V::Str(text)]) => V::Bool(is_url(text)),
        ("getScheme", [V::Url(url)]) => V::text(&url.scheme()),
        ("getHost", [V::Url(url)]) => V::text(url.host()),
        ("getHostname", [V::Url(url)]) => V::text(url.hostname()),
        ("getPort", [V::Url(url)]) => V::text(url.port()),
        ("getEscapedPath", [V::Url(url)]) => V::text(url.escaped_path()),
        ("getQuery", [V::Url(url)]) => query(url, budget)?,
        ("ip", [V::Str(text)]) => V::Ip(Rc::new(ip(text)?)),
        ("ip", [V::Cidr(cidr)]) => V::Ip(Rc::new(cidr.addr())),
        ("isIP", [V::Str(text)]) => V::Bool(parse_ip(text).is_ok()),
        ("ip.isCanonical", [V::Str(text)]) => V::Bool(ip(text)?.to_string() == **text),
        ("family", [V::Ip(ip)]) => V::Int(if ip.is_ipv4() { 4 } else { 6 }),
        ("isUnspecified", [V::Ip(ip)]) => V::Bool(ip.is_unspecified()),
        ("isLoopback", [V::Ip(ip)]) => V::Bool(ip.is_loopback()),
        ("isLinkLocalMulticast", [V::Ip(ip)]) => V::Bool(is_link_local_multicast(**ip)),
        ("isLinkLocalUnicast", [V::Ip(ip)]) => V::Bool(is_link_local_unicast(**ip)),
        ("isGlobalUnicast", [V::Ip(ip)]) => V::Bool(is_global_unicast(**ip)),
        ("cidr", [V::Str(text)]) => V::Cidr(Rc::new(cidr(text)?)),
        ("isCIDR", [V::Str(text)]) => V::Bool(parse_cidr(text).is_ok()),
        ("containsIP", [V::Cidr(cidr), V::Ip(ip)]) => V::Bool(cidr.contains(&**ip)),
        ("containsIP", [V::Cidr(cidr), V::Str(text)]) => V::Bool(cidr.contains(&ip(text)?)),
        ("containsCIDR", [V::Cidr(cidr), V::Cidr(other)]) => V::Bool(cidr.contains(&**other)),
        ("containsCIDR", [V::Cidr(network), V::Str(text)]) => {
            V::Bool(network.contains(&cidr(text)?))
        }
        ("masked", [V::Cidr(cidr)]) => V::Cidr(Rc::new(cidr.trunc())),
        ("prefixLength", [V::Cidr(cidr)]) => V::Int(cidr.prefix_len().into()),
        _ => return Err(Fault::no_overload()),
    })
}

fn ip<'e>(text: &str) -> Result<IpAddr, Fault<'e>> {
    parse_ip(text).map_err(Fault::error)
}

fn cidr<'e>(text: &str) -> Result<IpNet, Fault<'e>> {
    parse_cidr(text).map_err(Fault::error)
}

/// Returns the parameters of the query as a map from the key to its values. Each key and each value
/// costs one step.
fn query<'e>(url: &Url, budget: &mut Budget) -> Outcome<'e> {
    let mut parameters: BTreeMap<_, Vec<V<'e>>> = BTreeMap::new();
    for (key, value) in url.query() {
        charge(budget, 1)?;
        let values = match parameters.entry(key) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                charge(budget, 1)?;
                entry.insert(Vec::new())
            }
        };
        values.push(V::text(&value));
    }
    let entries = parameters.into_iter();
    Ok(V::Map(
        entries
            .map(|(key, values)| (V::text(&key), V::List(values.into())))
            .collect(),
    ))
}

const NO_ADDRESS: &str = "IP Address parse error during conversion from string";
const NO_NETWORK: &str = "network address parse error during conversion from string";
const IS_MAPPED: &str = "IPv4-mapped IPv6 address is not allowed";

/// Parses an address, or returns the text of the error. This text does not quote the address.
fn parse_ip(text: &str) -> Result<IpAddr, &'static str> {
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
fn parse_cidr(text: &str) -> Result<IpNet, &'static str> {
    let (address, prefix) = text.split_once('/').ok_or(NO_NETWORK)?;
    let address = parse_ip(address)?;
    let cidr = prefix
        .parse()
        .ok()
        .and_then(|prefix| IpNet::new(address, prefix).ok());
    cidr.filter(|cidr| cidr.prefix_len().to_string() == prefix)
        .ok_or(NO_NETWORK)
}

fn is_link_local_multicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.octets().starts_with(&[224, 0, 0]),
        IpAddr::V6(address) => address.segments()[0] & 0xff0f == 0xff02,
    }
}

fn is_link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns true for all addresses except for unspecified, loopback, multicast, broadcast and
/// link-local addresses. Private addresses count as global, too.
fn is_global_unicast(address: IpAddr) -> bool {
    !address.is_unspecified()
        && !address.is_loopback()
        && !address.is_multicast()
        && !is_link_local_unicast(address)
        && address != Ipv4Addr::BROADCAST
}
