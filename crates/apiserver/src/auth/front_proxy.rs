//! Reads the user whom the front proxy (the kube-apiserver that forwards a request) names in the
//! headers of the request. The names of the headers come from the cluster's configuration.
//! [`super::ClusterAuthenticator`] calls this module only if the client is the front proxy. The
//! authenticator also adds the group `system:authenticated` to the user.

use super::{Unauthenticated, User};
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

/// The names of the headers that describe a user.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UserHeaders {
    pub(super) name: Vec<HeaderName>,
    pub(super) uid: Vec<HeaderName>,
    pub(super) groups: Vec<HeaderName>,
    /// Prefixes of the names of headers with extra attributes. With the prefix `x-remote-extra-`,
    /// the header `x-remote-extra-scopes: all` gives the attribute `scopes` the value `all`. A
    /// prefix is never empty, because a `HeaderName` is never empty.
    pub(super) extra_prefixes: Vec<HeaderName>,
}

impl UserHeaders {
    /// Returns the user in `headers`, or `None` if no header names a user.
    ///
    /// The front proxy sends a name such as `jané` as raw bytes, which must be UTF-8. If a value is
    /// not UTF-8, returns an error, and the caller refuses the request. The method does not replace
    /// invalid bytes by `\u{FFFD}`, because the result could be the name of another user.
    pub(super) fn user(&self, headers: &HeaderMap) -> Result<Option<User>, Unauthenticated> {
        let Some(name) = first(headers, &self.name)? else {
            return Ok(None);
        };
        let mut user = User {
            name: name.to_owned(),
            uid: first(headers, &self.uid)?.map(str::to_owned),
            ..User::default()
        };
        for header in &self.groups {
            for value in headers.get_all(header) {
                let group = text(value)?;
                if !group.is_empty() {
                    user.groups.push(group.to_owned());
                }
            }
        }
        for prefix in &self.extra_prefixes {
            for (header, value) in headers {
                if let Some(key) = header.as_str().strip_prefix(prefix.as_str()) {
                    user.extra
                        .entry(percent_decoded(key))
                        .or_default()
                        .push(text(value)?.to_owned());
                }
            }
        }
        Ok(Some(user))
    }
}

/// Returns the first value that is not empty. Reads the headers in the order of `names`, and only
/// the first value of each header.
fn first<'h>(
    headers: &'h HeaderMap,
    names: &[HeaderName],
) -> Result<Option<&'h str>, Unauthenticated> {
    for name in names {
        if let Some(value) = headers.get(name) {
            let value = text(value)?;
            if !value.is_empty() {
                return Ok(Some(value));
            }
        }
    }
    Ok(None)
}

fn text(value: &http::HeaderValue) -> Result<&str, Unauthenticated> {
    str::from_utf8(value.as_bytes()).map_err(|_| Unauthenticated)
}

/// Percent-decodes the key of an extra attribute: `example.com%2fa` gives `example.com/a`. The
/// front proxy escapes `%`, and the characters that a header name cannot contain, such as `/`.
///
/// A key with an invalid escape is returned unchanged, as in Kubernetes' package `headerrequest`. A
/// key that is not UTF-8 after decoding is also returned unchanged.
fn percent_decoded(key: &str) -> String {
    percent_decode_str(key)
        .decode_utf8()
        .map_or_else(|_| key.to_owned(), std::borrow::Cow::into_owned)
}
