//! What the tests of this room and of `certs` stand on: a CA that issues whatever is
//! asked of it, and a kube-apiserver that keeps objects in a map.

mod cluster;
mod pair;

pub(crate) use cluster::Cluster;
pub(crate) use pair::{Pair, ca, ca_again, ca_living};

use std::time::Duration;

/// Waits until `done`, and fails after 60 s (on whichever clock the test runs).
pub(crate) async fn eventually(what: &str, done: impl Fn() -> bool) {
    for _ in 0..6_000 {
        if done() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never came: {what}");
}
