//! Helpers for the tests of this module and of `certs`: a CA that issues any certificate, and a
//! kube-apiserver that keeps objects in a map.

mod cluster;
mod pair;

pub(crate) use cluster::Cluster;
pub(crate) use pair::{Pair, ca, ca_again, ca_living};

use std::time::Duration;

/// Waits until `done`, and fails after 60 s of the test's clock.
pub(crate) async fn eventually(what: &str, done: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came: {what}");
}
