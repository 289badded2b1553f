//! The functions of URLs, IP addresses and CIDRs.

use std::rc::Rc;

use super::Budget;
use super::conversions::charge_arguments;
use super::ip_address::{Cidr, Ip};
use super::op::Function;
use super::strings::no_overload;
use super::url::{Url, is_url};
use super::value::{Fault, Text, V, charge, steps};

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
            let url = Url::parse(text).map_err(|error| Fault::error(error.message()))?;
            V::Url(Rc::new(url))
        }
        (Function::IsUrl, [V::Str(text)]) => V::Bool(is_url(text)),
        (Function::GetScheme, [V::Url(url)]) => V::text(url.scheme()),
        (Function::GetHost, [V::Url(url)]) => V::text(url.host()),
        (Function::GetHostname, [V::Url(url)]) => V::text(url.hostname()),
        (Function::GetPort, [V::Url(url)]) => V::text(url.port()),
        (Function::GetEscapedPath, [V::Url(url)]) => V::text(url.escaped_path()),
        (Function::GetQuery, [V::Url(url)]) => query(url, budget)?,
        (Function::Ip, [V::Str(text)]) => V::Ip(Rc::new(parse_ip(text)?)),
        (Function::Ip, [V::Cidr(cidr)]) => V::Ip(Rc::new(cidr.ip())),
        (Function::IsIp, [V::Str(text)]) => V::Bool(Ip::parse(text).is_ok()),
        (Function::IsCanonicalIp, [V::Str(text)]) => {
            V::Bool(Ip::is_canonical(text).map_err(|error| Fault::error(error.message()))?)
        }
        (Function::Family, [V::Ip(ip)]) => V::Int(ip.family()),
        (Function::IsUnspecified, [V::Ip(ip)]) => V::Bool(ip.is_unspecified()),
        (Function::IsLoopback, [V::Ip(ip)]) => V::Bool(ip.is_loopback()),
        (Function::IsLinkLocalMulticast, [V::Ip(ip)]) => V::Bool(ip.is_link_local_multicast()),
        (Function::IsLinkLocalUnicast, [V::Ip(ip)]) => V::Bool(ip.is_link_local_unicast()),
        (Function::IsGlobalUnicast, [V::Ip(ip)]) => V::Bool(ip.is_global_unicast()),
        (Function::Cidr, [V::Str(text)]) => V::Cidr(Rc::new(parse_cidr(text)?)),
        (Function::IsCidr, [V::Str(text)]) => V::Bool(Cidr::parse(text).is_ok()),
        (Function::ContainsIp, [V::Cidr(cidr), V::Ip(ip)]) => V::Bool(cidr.contains_ip(**ip)),
        (Function::ContainsIp, [V::Cidr(cidr), V::Str(text)]) => {
            V::Bool(cidr.contains_ip(parse_ip(text)?))
        }
        (Function::ContainsCidr, [V::Cidr(cidr), V::Cidr(other)]) => {
            V::Bool(cidr.contains_cidr(**other))
        }
        (Function::ContainsCidr, [V::Cidr(cidr), V::Str(text)]) => {
            V::Bool(cidr.contains_cidr(parse_cidr(text)?))
        }
        (Function::Masked, [V::Cidr(cidr)]) => V::Cidr(Rc::new(cidr.masked())),
        (Function::PrefixLength, [V::Cidr(cidr)]) => V::Int(cidr.prefix_length()),
        _ => return Err(no_overload(function, args)),
    })
}

fn parse_ip<'e>(text: &str) -> Result<Ip, Fault<'e>> {
    Ip::parse(text).map_err(|error| Fault::error(error.message()))
}

fn parse_cidr<'e>(text: &str) -> Result<Cidr, Fault<'e>> {
    Cidr::parse(text).map_err(|error| Fault::error(error.message()))
}

/// Returns the parameters of the query as a map from the key to its values. Each key and each value
/// costs one step.
fn query<'e>(url: &Url, budget: &mut Budget) -> Result<V<'e>, Fault<'e>> {
    let text = |text: String| V::Str(Text::Own(text.into()));
    let mut entries = Vec::new();
    for (key, values) in url.query() {
        charge(budget, 1 + steps(values.len(), 1))?;
        let values = values.into_iter().map(text).collect();
        entries.push((text(key), V::List(values)));
    }
    Ok(V::Map(entries.into()))
}
