//! The functions of URLs, IP addresses and CIDRs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::rc::Rc;

use ipnet::IpNet;

use super::ip::{
    is_global_unicast, is_link_local_multicast, is_link_local_unicast, parse_cidr, parse_ip,
};
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
<net.CIDR>.containsIP(<T>) -> <bool> where T: net.IP|string
<net.CIDR>.containsCIDR(<T>) -> <bool> where T: net.CIDR|string
<net.CIDR>.masked() -> <net.CIDR>
<net.CIDR>.prefixLength() -> <int>
";

/// The error for a text that is not a URL. In Kubernetes, the URL and Go's reason follow this text.
/// They are left out here, because the URL can be a value of the object.
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
