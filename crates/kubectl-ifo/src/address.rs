//! Addresses of clusters. Enters: what a flag or a kubeconfig says. Leaves: a URL that
//! can be asked, or why it is none.

use super::problem::Problem;

/// The address with the scheme that kubectl takes for one without: plain HTTP, whatever
/// else the kubeconfig has. None if there is nothing to add.
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

/// Whether there is a host, and nothing but a port behind it.
fn is_place(authority: &http::uri::Authority) -> bool {
    let host = authority.host();
    let place = authority.as_str().rsplit('@').next().unwrap_or_default();
    !host.is_empty() && (place == host || authority.port_u16().is_some())
}

/// Whether nothing is encrypted on the way to a URL.
pub(super) fn is_plain(address: &str) -> bool {
    let address: Option<http::Uri> = address.parse().ok();
    address.is_some_and(|it| it.scheme() == Some(&http::uri::Scheme::HTTP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_without_a_scheme_is_one_of_http() {
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
    fn what_is_no_address_is_said() {
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
