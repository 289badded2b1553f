//! The log of requests, as in the kube-apiserver's `httplog`. Input: the fields of a request as
//! they become known. Output: one line when the client has read the whole answer, also for a watch.
//! Nothing is collected unless the line will be logged (`-v=1`).
//!
//! A line has the path of the URL without its query, and no header except the audit ID. So it
//! contains no credentials. Text of a client is shortened and has no control characters, so it can
//! neither forge a line nor control a terminal.

use super::quoted::clip;
use super::request::RequestTarget;
use crate::auth::User;
use crate::clock;
use crate::telemetry::ACCESS_LOG;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

/// Longest logged name of a user, a resource or a namespace, in bytes. Names in Kubernetes are not
/// longer.
const MAX_NAME: usize = 253;

/// Longest logged path, in bytes.
const MAX_PATH: usize = 512;

/// The peer of the connection of a request. It is an extension of the request.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub SocketAddr);

/// The line of one request. It is logged when this is dropped. None if it would not be logged.
pub struct RequestLogLine(Option<Box<LoggedFields>>);

struct LoggedFields {
    begun: Instant,
    client: Option<SocketAddr>,
    user: String,
    verb: &'static str,
    resource: String,
    namespace: String,
    path: String,
    /// 0 until there is an answer.
    code: u16,
    audit_id: String,
}

impl RequestLogLine {
    /// Begins the line of a request. `method` is used as the verb of a request without a resource.
    pub fn begin(
        parts: &Parts,
        method: &'static str,
        audit_id: &HeaderValue,
        begun: Instant,
    ) -> Self {
        if !tracing::enabled!(target: ACCESS_LOG, tracing::Level::DEBUG) {
            return Self(None);
        }
        let client = parts.extensions.get::<ClientAddress>();
        Self(Some(Box::new(LoggedFields {
            begun,
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
    pub fn asks(&mut self, asked: &RequestTarget) {
        if let Some(line) = &mut self.0
            && let RequestTarget::Resource(request) = asked
        {
            if !request.verb.is_empty() {
                line.verb = request.verb;
            }
            line.resource = printable(&request.resource, MAX_NAME);
            line.namespace = printable(&request.namespace, MAX_NAME);
        }
    }

    /// Adds the user.
    pub fn sent_by(&mut self, user: &User) {
        if let Some(line) = &mut self.0 {
            line.user = printable(&user.name, MAX_NAME);
        }
    }

    /// Adds the status code of the answer.
    pub fn answered(&mut self, code: StatusCode) {
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
            latency_ms = u64::try_from(clock::since(line.begun).as_millis()).unwrap_or(u64::MAX),
            audit_id = line.audit_id,
            client = line.client.map(tracing::field::display),
            "request"
        );
    }
}

/// Escapes the text of a client, except letters, digits and printable ASCII characters. Control
/// characters, also those outside of ASCII, and characters that change the direction of the text
/// are escaped.
fn printable(text: &str, most: usize) -> String {
    let mut printable = String::with_capacity(text.len().min(most));
    for c in text.chars() {
        if printable.len() > most {
            break;
        }
        if matches!(c, ' '..='~') || c.is_alphanumeric() {
            printable.push(c);
        } else {
            write!(printable, "{}", c.escape_unicode()).expect("writing to a String cannot fail");
        }
    }
    clip(&mut printable, most);
    printable
}

#[cfg(test)]
mod tests;
