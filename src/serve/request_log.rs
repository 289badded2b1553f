//! The log of requests, as kube-apiserver's `httplog` has it. Enters: what is known of a
//! request, bit by bit. Leaves: one line at its end, which is when the client has taken the
//! answer, also for a watch. Nothing is collected unless the log wants it (`-v=1`).
//!
//! A line has the path of the URL but not its query, and no header except the audit ID: no
//! credential can be in it. What a client has written is cut and has no control characters,
//! so it can neither forge a line nor control a terminal.

use super::quoted::clip;
use super::request::Asked;
use crate::auth::User;
use crate::clock;
use crate::telemetry::REQUESTS;
use http::request::Parts;
use http::{HeaderValue, StatusCode};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::Instant;

/// Longest name of a user, a resource or a namespace that is logged, in bytes: as long as
/// Kubernetes' names may be.
const MAX_NAME: usize = 253;

/// Longest path that is logged, in bytes.
const MAX_PATH: usize = 512;

/// The other end of the connection that a request came by. Set as a request extension.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub SocketAddr);

/// The line of one request, which is logged when this is dropped; none if the log does not
/// want it.
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
    /// The line of a request that has just arrived. `method` is its verb if it is about no
    /// resource.
    pub fn begin(
        parts: &Parts,
        method: &'static str,
        audit_id: &HeaderValue,
        begun: Instant,
    ) -> Self {
        if !tracing::enabled!(target: REQUESTS, tracing::Level::DEBUG) {
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

    /// What the request asks for.
    pub fn asks(&mut self, asked: &Asked) {
        if let Some(line) = &mut self.0
            && let Asked::Resource(request) = asked
        {
            if !request.verb.is_empty() {
                line.verb = request.verb;
            }
            line.resource = printable(&request.resource, MAX_NAME);
            line.namespace = printable(&request.namespace, MAX_NAME);
        }
    }

    /// Who sent the request.
    pub fn sent_by(&mut self, user: &User) {
        if let Some(line) = &mut self.0 {
            line.user = printable(&user.name, MAX_NAME);
        }
    }

    /// What the answer is.
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
            target: REQUESTS,
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

/// A client's text with escapes for all but letters, digits and what ASCII prints: control
/// characters, also those beyond ASCII, and what changes the direction of a line.
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
