//! Parses addresses of clusters.
//!
//! Input: the value of a flag or of the kubeconfig. Output: a URL, or an error.

use super::problem::Problem;

/// Adds `http://` to an address without a scheme, as kubectl does regardless of other settings.
/// None if the address has a scheme.
pub(super) fn with_scheme(address: &str) -> Result<Option<String>, Problem> {
    let refused = || {
        Problem::Config(format!(
            "{address:?} is no address of a cluster: it must be a URL or host:port"
        ))
    };
    let is_whole = |it: &http::Uri| {
        let scheme = it.scheme_str().unwrap_or_default();
        matches!(scheme, "http" | "https") && it.authority().is_some_and(is_place)
    };
    let read = |text: &str| text.parse::<http::Uri>().ok().filter(is_whole);
    if address.contains("://") {
        return read(address).map(|_| None).ok_or_else(refused);
    }
    let whole = format!("http://{address}");
    match read(&whole) {
        Some(url) if url.path() == "/" && url.query().is_none() => Ok(Some(whole)),
        _ => Err(refused()),
    }
}

/// Returns true if the text is a host, optionally with a port.
fn is_place(authority: &http::uri::Authority) -> bool {
    let host = authority.host();
    let place = authority.as_str().rsplit('@').next().unwrap_or_default();
    !host.is_empty() && (place == host || authority.port_u16().is_some())
}

/// Returns true if the connection to a URL is not encrypted.
pub(super) fn is_plain(address: &str) -> bool {
    let address: Option<http::Uri> = address.parse().ok();
    address.is_some_and(|it| it.scheme() == Some(&http::uri::Scheme::HTTP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_is_http() {
        for (typed, read) in [
            ("127.0.0.1:6443", Some("http://127.0.0.1:6443")),
            ("localhost:8080", Some("http://localhost:8080")),
            ("nonsense", Some("http://nonsense")),
            ("[::1]:6443", Some("http://[::1]:6443")),
            ("https://example.com:6443/k8s/clusters/c-1", None),
            ("http://example.com", None),
        ] {
            assert_eq!(with_scheme(typed), Ok(read.map(str::to_owned)), "{typed}");
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
                    .is_err_and(|it| it.contains("is no address of a cluster")),
                "{typed}: {problem:?}"
            );
        }
    }
}
