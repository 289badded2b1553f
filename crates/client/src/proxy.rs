//! Chooses the proxy for the connection to a kube-apiserver, with the same result as client-go. The
//! `proxy-url` in the kubeconfig overrides the environment variables. This module interprets the
//! environment variables as Go's `golang.org/x/net/http/httpproxy` does.
//!
//! The libraries kube and hyper-util interpret `NO_PROXY` in other ways, so this module does not
//! use them. kube compares `NO_PROXY` with the address of the proxy, not of the server. hyper-util
//! ignores the ports in `NO_PROXY`.

use http::Uri;
use ipnet::IpNet;
use std::net::IpAddr;

/// Returns the URL of the proxy for `server`, or None if the server must be reached directly.
/// `proxy_url` is the `proxy-url` in the kubeconfig. `environment` returns the value of an
/// environment variable.
pub fn proxy(
    server: &Uri,
    proxy_url: Option<&str>,
    environment: impl Fn(&str) -> Option<String>,
) -> Option<String> {
    if let Some(proxy) = proxy_url.filter(|it| !it.is_empty()) {
        return Some(proxy.to_owned());
    }
    let first = |names: [&str; 2]| {
        let mut values = names.into_iter().filter_map(&environment);
        values.find(|value| !value.is_empty())
    };
    let proxy = first(match server.scheme_str() {
        Some("https") => ["HTTPS_PROXY", "https_proxy"],
        _ => ["HTTP_PROXY", "http_proxy"],
    })?;
    let exempt = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
    if ProxiedServer::of(server).is_exempt(&exempt) {
        return None;
    }
    Some(if proxy.contains("://") {
        proxy
    } else {
        format!("http://{proxy}")
    })
}

/// The parts of a server's address that are compared with `NO_PROXY`.
struct ProxiedServer {
    host: String,
    ip: Option<IpAddr>,
    port: u16,
}

impl ProxiedServer {
    fn of(address: &Uri) -> Self {
        let host = address.host().unwrap_or_default();
        let host = host.trim_matches(['[', ']']).to_ascii_lowercase();
        let default_port = if address.scheme_str() == Some("https") {
            443
        } else {
            80
        };
        Self {
            ip: host.parse().ok(),
            host,
            port: address.port_u16().unwrap_or(default_port),
        }
    }

    /// Returns true if the server must be reached without a proxy, for one of these reasons:
    ///
    /// - The server is on the local host.
    /// - An entry of `list`, the value of `NO_PROXY`, matches the server.
    fn is_exempt(&self, list: &str) -> bool {
        let is_local = self.host == "localhost" || self.ip.is_some_and(|ip| ip.is_loopback());
        let mut entries = list.split(',').map(|it| it.trim().to_ascii_lowercase());
        is_local || entries.any(|entry| self.matches_entry(&entry))
    }

    /// Returns true if an entry of `NO_PROXY` matches the server. An entry has one of these forms:
    ///
    /// - `*` matches every server.
    /// - A network such as `192.0.2.0/24` matches a server with an address in this network.
    /// - An IP address matches a server with this address.
    /// - A domain name matches a server with this name, and all subdomains.
    /// - A domain name with a leading `.` or `*.`, such as `*.example`, matches only the
    ///   subdomains.
    ///
    /// If a port follows an address or a domain name, the port must also match.
    fn matches_entry(&self, entry: &str) -> bool {
        if entry == "*" {
            return true;
        }
        if let Ok(network) = entry.parse::<IpNet>() {
            return self.ip.is_some_and(|ip| network.contains(&ip));
        }
        let name = match entry.rsplit_once(':') {
            // The text after the last colon is a port. In an IPv6 address without brackets, the
            // last colon belongs to the address, and there is no port.
            Some((name, port)) if !name.contains(':') || name.ends_with(']') => {
                if port.parse() != Ok(self.port) {
                    return false;
                }
                name
            }
            _ => entry,
        };
        let name = name.trim_start_matches('[').trim_end_matches(']');
        if let Some(ip) = self.ip {
            return name.parse() == Ok(ip);
        }
        let name = name
            .strip_prefix('*')
            .filter(|it| it.starts_with('.'))
            .unwrap_or(name);
        if let Some(domain) = name.strip_prefix('.') {
            return self.is_subdomain_of(domain);
        }
        self.host == name || self.is_subdomain_of(name)
    }

    fn is_subdomain_of(&self, domain: &str) -> bool {
        let below = self.host.strip_suffix(domain);
        !domain.is_empty() && below.is_some_and(|below| below.ends_with('.'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen_proxy(server: &str, variables: &[(&str, &str)]) -> Option<String> {
        let server = server.parse().unwrap();
        proxy(&server, None, |name| {
            let mut found = variables.iter().filter(|(given, _)| *given == name);
            found.next().map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn the_proxy_variable_depends_on_the_scheme() {
        let both = [("HTTPS_PROXY", "http://s:1"), ("http_proxy", "p:2")];
        assert_eq!(
            chosen_proxy("https://k:6443", &both).as_deref(),
            Some("http://s:1")
        );
        assert_eq!(
            chosen_proxy("http://k:6443", &both).as_deref(),
            Some("http://p:2")
        );
        assert_eq!(chosen_proxy("https://k", &[]), None);
        let empty = [("HTTPS_PROXY", ""), ("https_proxy", "socks5://s")];
        assert_eq!(
            chosen_proxy("https://k", &empty).as_deref(),
            Some("socks5://s")
        );
        for local in ["https://localhost", "https://127.0.0.2:1", "https://[::1]"] {
            assert_eq!(chosen_proxy(local, &both), None, "{local}");
        }
    }

    #[test]
    fn the_kubeconfig_proxy_wins_over_environment_variables() {
        let server = "https://localhost".parse().unwrap();
        let all = |name: &str| (name == "NO_PROXY").then(|| "*".to_owned());
        let chosen = proxy(&server, Some("http://p"), all);
        assert_eq!(chosen.as_deref(), Some("http://p"));
    }

    #[test]
    fn no_proxy_is_matched_as_in_go() {
        for (list, server, exempt) in [
            ("*", "https://k.example", true),
            ("", "https://k.example", false),
            (",, ,", "https://k.example", false),
            ("k.example", "https://k.example:6443", true),
            ("K.example", "https://k.Example", true),
            ("other, k.example", "https://k.example", true),
            ("example", "https://k.example", true),
            ("xample", "https://k.example", false),
            (".example", "https://k.example", true),
            (".k.example", "https://k.example", false),
            ("*.example", "https://k.example", true),
            ("*.k.example", "https://k.example", false),
            ("*example", "https://k.example", false),
            ("k.example:6443", "https://k.example:6443", true),
            ("k.example:443", "https://k.example", true),
            ("k.example:6443", "https://k.example", false),
            ("k.example:no", "https://k.example", false),
            (":443", "https://k.example", false),
            ("192.0.2.1", "https://192.0.2.1:6443", true),
            ("192.0.2.1:6443", "https://192.0.2.1:6443", true),
            ("192.0.2.1:6443", "https://192.0.2.1", false),
            ("192.0.2.0/24", "https://192.0.2.1", true),
            ("192.0.2.0/24", "https://192.0.3.1", false),
            ("192.0.2.0/24", "https://k.example", false),
            ("2.1", "https://192.0.2.1", false),
            ("192.0.2.1", "https://k.example", false),
            ("2001:db8::1", "https://[2001:db8::1]:6443", true),
            ("[2001:db8::1]:6443", "https://[2001:db8::1]:6443", true),
            ("[2001:db8::1]:443", "https://[2001:db8::1]:6443", false),
            ("2001:db8::/32", "https://[2001:db8::1]", true),
        ] {
            let variables = [("HTTPS_PROXY", "http://p"), ("NO_PROXY", list)];
            let chosen = chosen_proxy(server, &variables);
            assert_eq!(chosen.is_none(), exempt, "{list} {server}");
        }
    }
}
