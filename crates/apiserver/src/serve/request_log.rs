//! Logs each request, as the kube-apiserver's `httplog` does. Input: the fields of a request, as
//! soon as they are known. Output: one log line when the client has read the whole answer, or when
//! the request ends earlier. A watch is logged when the watch ends. The fields are collected only
//! if the log level includes these lines (`-v=1`).
//!
//! A log line contains no credentials. From the URL, it has only the path, without the query. From
//! the headers, it has only the audit ID, and the user name that the front proxy sends. The front
//! proxy is the kube-apiserver that forwards the requests of users.
//!
//! Text from clients is shortened, and control characters are escaped. So clients cannot forge a
//! line, and cannot control a terminal that shows the log.

use super::quoting::clip;
use super::request::RequestTarget;
use crate::auth::User;
use crate::clock;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

/// The target of the log lines (`tracing`).
pub const ACCESS_LOG: &str = "access";

/// Largest logged length of a user name, a resource, a namespace or an audit ID, in bytes. Longer
/// text is cut off. Kubernetes has the same limit for most names.
const MAX_NAME: usize = 253;

/// Largest logged length of a path, in bytes. A longer path is cut off.
const MAX_PATH: usize = 512;

/// The address of the client. The listener adds it to each request as an extension.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub SocketAddr);

/// The log line of one request. The line is logged when this value is dropped. The content is None
/// if the log level excludes the line.
pub struct RequestLogLine(Option<Box<LoggedFields>>);

struct LoggedFields {
    started: Instant,
    client: Option<SocketAddr>,
    user: String,
    verb: &'static str,
    resource: String,
    namespace: String,
    path: String,
    /// The HTTP status code. 0 until the server has an answer.
    code: u16,
    audit_id: String,
}

impl RequestLogLine {
    /// Begins the log line of a request. The logged verb is `method` if the request is not for a
    /// resource, or if the method has no Kubernetes verb.
    pub fn begin(
        parts: &Parts,
        method: &'static str,
        audit_id: &HeaderValue,
        started: Instant,
    ) -> Self {
        if !tracing::enabled!(target: ACCESS_LOG, tracing::Level::DEBUG) {
            return Self(None);
        }
        let client = parts.extensions.get::<ClientAddress>();
        Self(Some(Box::new(LoggedFields {
            started,
            client: client.map(|address| address.0),
            user: String::new(),
            verb: method,
            resource: String::new(),
            namespace: String::new(),
            path: printable(parts.uri.path(), MAX_PATH),
            code: 0,
            audit_id: printable(&String::from_utf8_lossy(audit_id.as_bytes()), MAX_NAME),
        })))
    }

    /// Adds the requested verb, resource and namespace.
    pub fn set_requested(&mut self, requested: &RequestTarget) {
        if let Some(line) = &mut self.0
            && let RequestTarget::Resource(request) = requested
        {
            if !request.verb.is_empty() {
                line.verb = request.verb;
            }
            line.resource = printable(&request.resource, MAX_NAME);
            line.namespace = printable(&request.namespace, MAX_NAME);
        }
    }

    /// Adds the user.
    pub fn set_user(&mut self, user: &User) {
        if let Some(line) = &mut self.0 {
            line.user = printable(&user.name, MAX_NAME);
        }
    }

    /// Adds the status code of the answer.
    pub fn set_code(&mut self, code: StatusCode) {
        if let Some(line) = &mut self.0 {
            line.code = code.as_u16();
        }
    }
}

impl Drop for RequestLogLine {
    fn drop(&mut self) {
        let Some(line) = self.0.take() else {
            return;
        };
        tracing::debug!(
            target: ACCESS_LOG,
            user = line.user,
            verb = line.verb,
            resource = line.resource,
            namespace = line.namespace,
            path = line.path,
            code = line.code,
            latency_ms = u64::try_from(clock::since(line.started).as_millis()).unwrap_or(u64::MAX),
            audit_id = line.audit_id,
            client = line.client.map(tracing::field::display),
            "request"
        );
    }
}

/// Escapes and shortens text from a client. Letters, digits and printable ASCII characters are not
/// escaped. All other characters are escaped, such as control characters and characters that change
/// the direction of text.
fn printable(text: &str, max_bytes: usize) -> String {
    let mut printable = String::with_capacity(text.len().min(max_bytes));
    for c in text.chars() {
        if printable.len() > max_bytes {
            break;
        }
        if matches!(c, ' '..='~') || c.is_alphanumeric() {
            printable.push(c);
        } else {
            write!(printable, "{}", c.escape_unicode()).expect("writing to a String cannot fail");
        }
    }
    clip(&mut printable, max_bytes);
    printable
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logged_client_text_is_escaped_and_truncated() {
        for (text, shown) in [
            ("system:serviceaccount:a:b", "system:serviceaccount:a:b"),
            ("jos\u{e9} \u{779e}", "jos\u{e9} \u{779e}"),
            ("a\n2026 INFO", r"a\u{a}2026 INFO"),
            ("\u{1b}[2J\r\t\0", r"\u{1b}[2J\u{d}\u{9}\u{0}"),
            (
                "\u{7f}\u{9b}\u{2028}\u{202e}",
                r"\u{7f}\u{9b}\u{2028}\u{202e}",
            ),
        ] {
            assert_eq!(printable(text, MAX_NAME), shown);
        }
        let long = printable(&"\u{1b}".repeat(1 << 16), MAX_NAME);
        assert!(long.len() <= MAX_NAME + '…'.len_utf8(), "{}", long.len());
    }
}
