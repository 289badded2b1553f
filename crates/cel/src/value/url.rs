//! URLs as CEL values, such as `url('https://example.com/a?b=c')`.
//!
//! Kubernetes parses URLs with Go's package `net/url`. The crate `iri-string` parses them as RFC
//! 3986 defines, and keeps them as they are written. The crate `url` would change them: for example,
//! it removes the port 443 and adds the path `/`.

use std::fmt;

use iri_string::types::{UriReferenceStr, UriReferenceString};

/// A URL of CEL: an absolute URL or an absolute path. Two URLs are equal if their texts are equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url(UriReferenceString);

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Returns true if [`Url::parse`] accepts `text`.
pub(crate) fn is_url(text: &str) -> bool {
    parse(text).is_some()
}

fn parse(text: &str) -> Option<&UriReferenceStr> {
    let url = UriReferenceStr::new(text).ok()?;
    (url.scheme_str().is_some() || text.starts_with('/')).then_some(url)
}

impl Url {
    /// Returns None if `text` is not an absolute URL or an absolute path.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        parse(text).map(|url| Self(url.to_owned()))
    }

    /// Returns the number of bytes of the whole URL. The work of each method is at most
    /// proportional to this number.
    pub(crate) fn len(&self) -> usize {
        self.0.as_str().len()
    }

    /// Returns the scheme in lower case, or an empty text.
    pub(crate) fn scheme(&self) -> String {
        self.0.scheme_str().unwrap_or_default().to_ascii_lowercase()
    }

    /// Returns the host with the port. An IPv6 address has brackets.
    pub(crate) fn host(&self) -> &str {
        let authority = self.0.authority_str().unwrap_or_default();
        authority
            .split_once('@')
            .map_or(authority, |(_, host)| host)
    }

    /// Returns the host without the port, and an IPv6 address without brackets.
    pub(crate) fn hostname(&self) -> &str {
        let authority = self.0.authority_components();
        authority.map_or("", |parts| parts.host().trim_matches(['[', ']']))
    }

    /// Returns the port, or an empty text.
    pub(crate) fn port(&self) -> &str {
        let authority = self.0.authority_components();
        authority.and_then(|parts| parts.port()).unwrap_or_default()
    }

    /// Returns the path with its `%` escapes. As in Kubernetes, a URL such as `mailto:a@b` has no
    /// path.
    pub(crate) fn escaped_path(&self) -> &str {
        let path = self.0.path_str();
        if path.starts_with('/') { path } else { "" }
    }

    /// Returns the decoded parameters of the query as pairs of key and value.
    pub(crate) fn query(&self) -> form_urlencoded::Parse<'_> {
        form_urlencoded::parse(self.0.query_str().unwrap_or_default().as_bytes())
    }
}
