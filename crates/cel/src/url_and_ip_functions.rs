//! The functions of URLs, IP addresses and CIDRs.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::rc::Rc;

use ipnet::IpNet;

use super::Budget;
use super::conversions::charge_arguments;
use super::ip_address::{
    is_global_unicast, is_link_local_multicast, is_link_local_unicast, parse_cidr, parse_ip,
};
use super::op::Function;
use super::strings::no_overload;
use super::url::{Url, is_url};
use super::value::{Fault, V, charge};

/// The error for a text that is not a URL. In Kubernetes, the URL and Go's reason follow this text.
const NO_URL: &str = "URL parse error during conversion from string";

/// Calls a function of URLs or IP addresses. A call costs one step for each 64 bytes of the texts
/// and URLs in its arguments. `getQuery` also costs steps for its result.
pub(super) fn call<'e>(
    function: Function,
    args: &[V<'e>],
    budget: &mut Budget,
) -> Result<V<'e>, Fault<'e>> {
    charge_arguments(args, budget)?;
    Ok(match (function, args) {
        (Function::Url, [V::Str(text)]) => {
            let url = Url::parse(text).ok_or(Fault::error(NO_URL))?;
            V::Url(Rc::new(url))
        }
        (Function::IsUrl, [V::Str(text)]) => V::Bool(is_url(text)),
        (Function::GetScheme, [V::Url(url)]) => V::text(&url.scheme()),
        (Function::GetHost, [V::Url(url)]) => V::text(url.host()),
        (Function::GetHostname, [V::Url(url)]) => V::text(url.hostname()),
        (Function::GetPort, [V::Url(url)]) => V::text(url.port()),
        (Function::GetEscapedPath, [V::Url(url)]) => V::text(url.escaped_path()),
        (Function::GetQuery, [V::Url(url)]) => query(url, budget)?,
        (Function::Ip, [V::Str(text)]) => V::Ip(Rc::new(ip(text)?)),
        (Function::Ip, [V::Cidr(cidr)]) => V::Ip(Rc::new(cidr.addr())),
        (Function::IsIp, [V::Str(text)]) => V::Bool(parse_ip(text).is_ok()),
        (Function::IsCanonicalIp, [V::Str(text)]) => V::Bool(ip(text)?.to_string() == **text),
        (Function::Family, [V::Ip(ip)]) => V::Int(if ip.is_ipv4() { 4 } else { 6 }),
        (Function::IsUnspecified, [V::Ip(ip)]) => V::Bool(ip.is_unspecified()),
        (Function::IsLoopback, [V::Ip(ip)]) => V::Bool(ip.is_loopback()),
        (Function::IsLinkLocalMulticast, [V::Ip(ip)]) => V::Bool(is_link_local_multicast(**ip)),
        (Function::IsLinkLocalUnicast, [V::Ip(ip)]) => V::Bool(is_link_local_unicast(**ip)),
        (Function::IsGlobalUnicast, [V::Ip(ip)]) => V::Bool(is_global_unicast(**ip)),
        (Function::Cidr, [V::Str(text)]) => V::Cidr(Rc::new(cidr(text)?)),
        (Function::IsCidr, [V::Str(text)]) => V::Bool(parse_cidr(text).is_ok()),
        (Function::ContainsIp, [V::Cidr(cidr), V::Ip(ip)]) => V::Bool(cidr.contains(&**ip)),
        (Function::ContainsIp, [V::Cidr(cidr), V::Str(text)]) => V::Bool(cidr.contains(&ip(text)?)),
        (Function::ContainsCidr, [V::Cidr(cidr), V::Cidr(other)]) => {
            V::Bool(cidr.contains(&**other))
        }
        (Function::ContainsCidr, [V::Cidr(network), V::Str(text)]) => {
            V::Bool(network.contains(&cidr(text)?))
        }
        (Function::Masked, [V::Cidr(cidr)]) => V::Cidr(Rc::new(cidr.trunc())),
        (Function::PrefixLength, [V::Cidr(cidr)]) => V::Int(cidr.prefix_len().into()),
        _ => return Err(no_overload(function, args)),
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
fn query<'e>(url: &Url, budget: &mut Budget) -> Result<V<'e>, Fault<'e>> {
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
