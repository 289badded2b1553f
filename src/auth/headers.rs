//! The user that a front proxy names in headers. Input: the names of the headers from the cluster's
//! configuration, and the headers of a request. Output: a user without the group
//! `system:authenticated`. Other modules verify that the sender is the front proxy.

use super::{Unauthenticated, User};
use http::{HeaderMap, HeaderName};
use percent_encoding::percent_decode_str;

/// The names of the headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct UserHeaders {
    pub(super) name: Vec<HeaderName>,
    pub(super) uid: Vec<HeaderName>,
    pub(super) groups: Vec<HeaderName>,
    /// Not empty, and in lower case as all header names here.
    pub(super) extra_prefixes: Vec<String>,
}

impl UserHeaders {
    /// The user in `headers`. None if no header names one.
    ///
    /// Values are UTF-8, and a name such as `jané` is sent as raw bytes. Other values are refused,
    /// because replaced characters could name another user.
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
                        .entry(unescaped(key))
                        .or_default()
                        .push(text(value)?.to_owned());
                }
            }
        }
        Ok(Some(user))
    }
}

/// The first header of `names` whose first value is not empty.
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

/// The key of an extra, percent-decoded. The name of the header is already in lower case, so only
/// an escape can stand for an upper-case letter. A key with an invalid escape is used without
/// decoding, as in Kubernetes' `headerrequest`.
fn unescaped(key: &str) -> String {
    let mut rest = key.as_bytes();
    while let Some(at) = rest.iter().position(|&byte| byte == b'%') {
        match rest.get(at + 1..at + 3) {
            Some(digits) if digits.iter().all(u8::is_ascii_hexdigit) => rest = &rest[at + 3..],
            _ => return key.to_owned(),
        }
    }
    percent_decode_str(key)
        .decode_utf8()
        .map_or_else(|_| key.to_owned(), std::borrow::Cow::into_owned)
}
