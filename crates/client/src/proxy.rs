//! Chooses the proxy for the connection to a kube-apiserver, as client-go does. The `proxy-url` in the
//! kubeconfig overrides the environment variables.
//!
//! The library hyper-util interprets `NO_PROXY`. In contrast to client-go, hyper-util ignores
//! entries with a port. The library kube cannot be used for this, because it compares `NO_PROXY`
//! with the address of the proxy instead of the address of the server.

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
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
    if is_exempt(server, &exempt) {
        return None;
    }
    Some(if proxy.contains("://") {
        proxy
    } else {
        format!("http://{proxy}")
    })
}

/// Returns true if the server must be reached without a proxy, for one of these reasons:
///
/// - The server is on the local host.
/// - An entry of `list`, the value of `NO_PROXY`, matches the server.
fn is_exempt(server: &Uri, list: &str) -> bool {
    let host = server.host().unwrap_or_default();
    let ip = host.trim_matches(['[', ']']).parse::<IpAddr>();
    // hyper-util knows the entry `.example`, but not `*.example`.
    let entries = list.split(',').map(str::trim).map(|entry| {
        let domain = entry.strip_prefix('*');
        domain.filter(|it| !it.is_empty()).unwrap_or(entry)
    });
    let entries = entries.collect::<Vec<_>>().join(",");
    let matcher = Matcher::builder().all("http://proxy").no(entries).build();
    host == "localhost"
        || ip.is_ok_and(|ip| ip.is_loopback())
        || matcher.intercept(server).is_none()
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
    fn servers_in_no_proxy_are_reached_directly() {
        for (list, server, exempt) in [
            ("*", "https://k.example", true),
            ("", "https://k.example", false),
            (",, ,", "https://k.example", false),
            ("other, K.example", "https://k.Example:6443", true),
            ("example", "https://k.example", true),
            ("xample", "https://k.example", false),
            (".example", "https://k.example", true),
            ("*.example", "https://k.example", true),
            ("192.0.2.1", "https://192.0.2.1:6443", true),
            ("192.0.2.0/24", "https://192.0.2.1", true),
            ("192.0.2.0/24", "https://192.0.3.1", false),
            ("2001:db8::/32", "https://[2001:db8::1]:6443", true),
        ] {
            let variables = [("HTTPS_PROXY", "http://p"), ("NO_PROXY", list)];
            let chosen = chosen_proxy(server, &variables);
            assert_eq!(chosen.is_none(), exempt, "{list} {server}");
        }
    }
}
