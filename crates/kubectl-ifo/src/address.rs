//! Checks the address of a kube-apiserver, which comes from `--server` or from the kubeconfig.
//!
//! As in kubectl, the address is a URL, or a host and an optional port without a scheme.

use super::problem::Problem;

/// Adds `http://` to an address without a scheme: `localhost:8080` gives `http://localhost:8080`.
/// Adds `http://` even if the kubeconfig contains a certificate authority, as kubectl does. Returns
/// None if the address already has a scheme, and an error if the address is invalid.
pub(super) fn with_scheme(address: &str) -> Result<Option<String>, Problem> {
    let invalid = || {
        Problem::Config(format!(
            "{address:?} is not the address of a cluster: use a URL or host:port"
        ))
    };
    let is_complete_url = |it: &http::Uri| {
        let scheme = it.scheme_str().unwrap_or_default();
        matches!(scheme, "http" | "https") && it.authority().is_some_and(is_host_and_port)
    };
    let parse = |text: &str| text.parse::<http::Uri>().ok().filter(is_complete_url);
    if address.contains("://") {
        return parse(address).map(|_| None).ok_or_else(invalid);
    }
    let with_http = format!("http://{address}");
    match parse(&with_http) {
        Some(url) if url.path() == "/" && url.query().is_none() => Ok(Some(with_http)),
        _ => Err(invalid()),
    }
}

/// Returns true if the authority of a URL is a host, or a host and a port.
fn is_host_and_port(authority: &http::uri::Authority) -> bool {
    let host = authority.host();
    let host_and_port = authority.as_str().rsplit('@').next().unwrap_or_default();
    !host.is_empty() && (host_and_port == host || authority.port_u16().is_some())
}

/// Returns true if the scheme of the URL is `http`, so that the connection is not encrypted.
pub(super) fn is_unencrypted(address: &str) -> bool {
    let address: Option<http::Uri> = address.parse().ok();
    address.is_some_and(|it| it.scheme() == Some(&http::uri::Scheme::HTTP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_is_http() {
        for (typed, expected) in [
            ("127.0.0.1:6443", Some("http://127.0.0.1:6443")),
            ("localhost:8080", Some("http://localhost:8080")),
            ("nonsense", Some("http://nonsense")),
            ("[::1]:6443", Some("http://[::1]:6443")),
            ("https://example.com:6443/k8s/clusters/c-1", None),
            ("http://example.com", None),
        ] {
            assert_eq!(
                with_scheme(typed),
                Ok(expected.map(str::to_owned)),
                "{typed}"
            );
        }
    }

    #[test]
    fn an_invalid_address_is_reported() {
        for typed in [
            "",
            "/",
            ":::",
            "http://",
            "no nsense",
            "example.com/k8s",
            "example.com?a",
            "ftp://example.com",
            "http:///a",
            "host:port",
            "http://host:99999",
        ] {
            let problem = with_scheme(typed).map_err(|it| it.to_string());
            assert!(
                problem
                    .as_ref()
                    .is_err_and(|it| it.contains("is not the address of a cluster")),
                "{typed}: {problem:?}"
            );
        }
    }
}
