//! Helpers for tests: a CA that issues valid and invalid certificates, and a simulated
//! kube-apiserver.

#[cfg(test)]
mod certificate_and_key;
mod fake_apiserver;
#[cfg(test)]
mod handshake;

#[cfg(test)]
pub(crate) use certificate_and_key::{CertificateAndKey, ca, ca_living};
pub use fake_apiserver::Cluster;
#[cfg(test)]
pub(crate) use handshake::TlsClient;

use std::time::Duration;

/// Waits until `done` returns true.
///
/// # Panics
///
/// Panics after 60 s on tokio's clock.
pub async fn eventually(what: &str, done: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("timed out waiting for {what}");
}
