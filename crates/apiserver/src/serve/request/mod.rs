//! Parses the HTTP method and the URI of a request. The result contains the verb, the resource, the
//! namespace, the name and the query options, as in the kube-apiserver's `RequestInfo`. The parser
//! does not check whether the resource exists.

pub mod list_options;
pub mod negotiation;
pub mod selectors;

use crate::auth::{Attributes, ResourceAttributes};
use crate::serve::answer::error_status::ErrorStatus;
use http::{Method, Uri};
use jiff::SignedDuration;
use percent_encoding::percent_decode_str;
use std::num::ParseIntError;
use std::time::Duration;

/// The supported query options. The server does not store other options, because a URL may contain
/// thousands of options.
pub const KNOWN_PARAMETERS: [&str; 13] = [
    "allowWatchBookmarks",
    "continue",
    "export",
    "fieldSelector",
    "includeObject",
    "labelSelector",
    "limit",
    "resourceVersion",
    "resourceVersionMatch",
    "sendInitialEvents",
    "timeout",
    "timeoutSeconds",
    "watch",
];

/// The query options of a request. If an option has several values, the first value counts.
#[derive(Clone, Debug, Default)]
pub struct Query([Option<String>; KNOWN_PARAMETERS.len()]);

impl Query {
    /// Parses the query of a URI.
    pub fn of(uri: &Uri) -> Self {
        let mut query = Self::default();
        for (name, value) in form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes()) {
            if let Some(option) = KNOWN_PARAMETERS.iter().position(|option| *option == name) {
                query.0[option].get_or_insert_with(|| value.into_owned());
            }
        }
        query
    }

    /// Returns the value of an option in `KNOWN_PARAMETERS`. Empty if the option is absent.
    pub fn text(&self, name: &str) -> &str {
        self.given(name).unwrap_or_default()
    }

    /// Returns the value of an option in `KNOWN_PARAMETERS`. None if the option is absent.
    pub fn given(&self, name: &str) -> Option<&str> {
        let option = KNOWN_PARAMETERS.iter().position(|option| *option == name);
        debug_assert!(option.is_some(), "{name} is not in KNOWN_PARAMETERS");
        self.0[option?].as_deref()
    }

    /// Returns the value of a boolean option. As in the kube-apiserver, an option that is absent,
    /// `0` or `false` is false. All other values, such as the empty value, are true.
    pub fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or_default()
    }

    /// Returns the value of a boolean option as [`Query::flag`] does, but None if the option is
    /// absent.
    pub fn optional_flag(&self, name: &str) -> Option<bool> {
        self.given(name)
            .map(|value| !(value == "0" || value.eq_ignore_ascii_case("false")))
    }

    /// Returns the value of a numeric option. None if the option is absent. Returns a 400 if the
    /// value is not valid.
    pub fn number(&self, name: &str) -> Result<Option<i64>, ErrorStatus> {
        let Some(value) = self.given(name) else {
            return Ok(None);
        };
        value.parse().map(Some).map_err(|error| {
            ErrorStatus::bad_request(format!("{name}: parsing {value:?}: {error}"))
        })
    }

    /// Returns the option `resourceVersion`. None if the option is empty or absent. Returns a 400
    /// if the value is not an unsigned 64-bit number.
    pub fn resource_version(&self) -> Result<Option<u64>, ErrorStatus> {
        let value = self.text("resourceVersion");
        if value.is_empty() {
            return Ok(None);
        }
        let parsed = value.parse().map(Some);
        parsed.map_err(|error: ParseIntError| {
            ErrorStatus::bad_request(format!(
                "invalid resource version: resourceVersion: Invalid value: {value:?}: {error}"
            ))
        })
    }

    /// Returns the option `timeout`: the time limit of the request, in Go's format, such as
    /// `1m30s`. None if the option is absent or empty. A negative time limit counts as zero.
    /// Returns a 400 if the value is not valid.
    pub fn timeout(&self) -> Result<Option<Duration>, ErrorStatus> {
        let value = self.text("timeout");
        if value.is_empty() {
            return Ok(None);
        }
        // Zero is the only number that needs no unit.
        let parsed = match value.trim_start_matches(['+', '-']) {
            "0" => Ok(SignedDuration::ZERO),
            _ => value.parse(),
        };
        let parsed = parsed.map_err(|_| {
            ErrorStatus::bad_request(format!(
                "invalid timeout specified in the request URL - time: invalid duration {value:?}"
            ))
        })?;
        Ok(Some(parsed.try_into().unwrap_or(Duration::ZERO)))
    }
}

/// Parses the method, the path and the option `watch`. Returns a 400 if the path or the name of the
/// object is not valid.
pub fn parse(method: &Method, uri: &Uri, query: &Query) -> Result<Attributes, ErrorStatus> {
    let path = percent_decode_str(uri.path())
        .decode_utf8()
        .map_err(|_| ErrorStatus::bad_request("the path is not valid UTF-8"))?;
    // As in the kube-apiserver, an empty namespace means all namespaces, and a path may have
    // additional slashes at the start and at the end. This server does not redirect to a path
    // without these slashes. The kube-apiserver forwards requests to this server, and would turn a
    // redirect into a 502.
    let mut parts = path.trim_matches('/').split('/');
    let root = parts.next().unwrap_or_default();
    let mut part = || parts.next().unwrap_or_default();
    let mut request = ResourceAttributes {
        group: if root == "apis" { part() } else { "" }.to_owned(),
        version: part().to_owned(),
        ..ResourceAttributes::default()
    };
    let mut next = part();
    if next == "watch" {
        request.legacy_watch = true;
        next = part();
    }
    let mut name = "";
    if next == "namespaces" {
        let namespace = part();
        namespace.clone_into(&mut request.namespace);
        next = part();
        if next.is_empty() && root == "api" {
            // As in the kube-apiserver, a request for the Namespace `a` has the namespace `a`.
            (next, name) = ("namespaces", namespace);
        }
    }
    if name.is_empty() {
        name = part();
    }
    name.clone_into(&mut request.name);
    next.clone_into(&mut request.resource);
    request.subresource = parts.collect::<Vec<_>>().join("/");
    if !matches!(root, "api" | "apis") || request.resource.is_empty() {
        return Ok(Attributes::NonResource {
            path: path.into_owned(),
            verb: method_name(method),
        });
    }
    let name = request.name.as_str();
    if matches!(name, "." | "..") || name.contains('%') {
        return Err(ErrorStatus::bad_request(format!(
            "Name parameter invalid: {name:?}: may not be '.' or '..' or contain '%'"
        )));
    }
    request.verb = verb(method, &request, query);
    Ok(Attributes::Resource(request))
}

/// Returns the name of an HTTP method, for metrics, log lines and reviews.
pub fn method_name(method: &Method) -> &'static str {
    match *method {
        Method::GET => "get",
        Method::HEAD => "head",
        Method::POST => "post",
        Method::PUT => "put",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        Method::OPTIONS => "options",
        _ => "other",
    }
}

/// Returns the Kubernetes verb of a request. Empty if the HTTP method has no Kubernetes verb. The
/// function does not read the field `verb` of `request`.
pub fn verb(method: &Method, request: &ResourceAttributes, query: &Query) -> &'static str {
    let has_name = !request.name.is_empty();
    match *method {
        Method::GET | Method::HEAD if request.legacy_watch => "watch",
        // The option `watch` has no effect if the path has a name.
        Method::GET | Method::HEAD if has_name => "get",
        Method::GET | Method::HEAD if query.flag("watch") => "watch",
        Method::GET | Method::HEAD => "list",
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE if has_name => "delete",
        Method::DELETE => "deletecollection",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unused_query_options_are_not_stored() {
        let many = "&a=1&b%20c=d".repeat(4_000);
        let uri: Uri = format!("/?{many}&limit=1&limit=2&l%69mit=3")
            .parse()
            .unwrap();
        let query = Query::of(&uri);
        assert_eq!(query.given("limit"), Some("1"));
        assert_eq!(query.0.iter().flatten().count(), 1);
    }
}
