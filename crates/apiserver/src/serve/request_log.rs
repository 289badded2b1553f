//! Logs each request, as the kube-apiserver's `httplog` does. The log line is written when the client
//! has read the whole answer, or when the request ends earlier. A watch is logged when the watch ends.
//! The line is created only if the log level includes it (`-v=1`).
//!
//! A log line contains no credentials. From the URL, it has only the path, without the query. From
//! the headers, it has only the audit ID, and the user name that the front proxy sends. The front
//! proxy is the kube-apiserver that forwards the requests of users. Text from clients is shortened.
//! The formatter of the log escapes control characters.

use super::quoting::clip;
use crate::clock;
use std::net::SocketAddr;
use std::time::Instant;

/// The target of the log lines (`tracing`).
pub const ACCESS_LOG: &str = "access";

/// Largest logged length of a text from the client, in bytes. Longer text is cut off.
const MAX_TEXT: usize = 512;

/// The address of the client. The listener adds it to each request as an extension.
#[derive(Clone, Copy, Debug)]
pub struct ClientAddress(pub SocketAddr);

/// The log line of a request. It is written when this value is dropped.
#[derive(Debug)]
pub struct RequestLog {
    pub started: Instant,
    pub client: Option<ClientAddress>,
    pub user: String,
    pub verb: &'static str,
    pub resource: String,
    pub namespace: String,
    pub path: String,
    pub code: u16,
    pub audit_id: String,
}

impl RequestLog {
    /// Returns true if the log level includes the lines of requests.
    pub fn is_enabled() -> bool {
        tracing::enabled!(target: ACCESS_LOG, tracing::Level::DEBUG)
    }
}

impl Drop for RequestLog {
    fn drop(&mut self) {
        let texts = [
            &mut self.user,
            &mut self.resource,
            &mut self.namespace,
            &mut self.path,
            &mut self.audit_id,
        ];
        for text in texts {
            clip(text, MAX_TEXT);
        }
        tracing::debug!(
            target: ACCESS_LOG,
            user = self.user,
            verb = self.verb,
            resource = self.resource,
            namespace = self.namespace,
            path = self.path,
            code = self.code,
            latency_ms = u64::try_from(clock::since(self.started).as_millis()).unwrap_or(u64::MAX),
            audit_id = self.audit_id,
            client = self.client.map(|client| tracing::field::display(client.0)),
            "request"
        );
    }
}
