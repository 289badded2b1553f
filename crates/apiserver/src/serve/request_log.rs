//! Logs each request, as the kube-apiserver's `httplog` does. The log line is written when the
//! client has read the whole answer, or when the request ends earlier. A watch is logged when the
//! watch ends. The line is created only if the log level includes such lines (`-v=1`).
//!
//! A log line contains no credentials. From the URL, the line has only the path, without the query.
//! From the headers, the line has only the audit ID, and the user name that the front proxy sends.
//! The front proxy is the kube-apiserver that forwards the requests of users. Long text from
//! clients is cut off. The formatter of the log escapes control characters.

use super::admission::Requested;
use super::answer::responses::clip;
use crate::auth::{Attributes, User};
use crate::clock;
use http::{HeaderValue, StatusCode, Uri};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;
use tracing::Level;

/// The target of the log lines (`tracing`).
pub const ACCESS_LOG: &str = "access";

/// Largest logged length of a text from the client, in bytes. Longer text is cut off.
const MAX_TEXT: usize = 512;

/// The address of the client. The listener adds it to each request as an extension.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub SocketAddr);

/// The properties of a request that its log line contains. The line is written when this value is
/// dropped.
#[derive(Debug)]
pub struct LogLine {
    pub started: Instant,
    pub client: Option<ClientAddress>,
    pub user: Option<User>,
    pub method: &'static str,
    /// None if the request is not valid.
    pub requested: Option<Arc<Requested>>,
    pub uri: Uri,
    pub audit_id: HeaderValue,
    /// The status code of the answer.
    pub code: StatusCode,
}

/// Returns true if the log level includes the lines of requests.
pub fn is_enabled() -> bool {
    tracing::enabled!(target: ACCESS_LOG, Level::DEBUG)
}

impl Drop for LogLine {
    fn drop(&mut self) {
        let clipped = |text: &str| clip(text.to_owned(), MAX_TEXT);
        let attributes = self.requested.as_ref().map(|it| &it.attributes);
        let (verb, resource, namespace) = match attributes {
            Some(Attributes::Resource(it)) => (it.verb, &*it.resource, &*it.namespace),
            _ => (self.method, "", ""),
        };
        let latency = clock::since(self.started).as_millis();
        tracing::debug!(
            target: ACCESS_LOG,
            user = clipped(self.user.as_ref().map_or("", |user| &user.name)),
            verb,
            resource = clipped(resource),
            namespace = clipped(namespace),
            path = clipped(self.uri.path()),
            code = self.code.as_u16(),
            latency_ms = u64::try_from(latency).unwrap_or(u64::MAX),
            audit_id = clipped(&String::from_utf8_lossy(self.audit_id.as_bytes())),
            client = self.client.map(|client| tracing::field::display(client.0)),
            "request"
        );
    }
}
