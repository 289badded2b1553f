//! Two servers that write at once.

use super::{Persisting, clear, crs, doubled, traffic::Traffic, writes};
use crate::harness::{alone, eventually, so, text};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// What the operations of a list, or their custom resources, are: by uid, with its phase.
fn phases(all: &BTreeMap<String, Value>) -> BTreeSet<(&str, &str)> {
    let phase = |it| text(it, "/status/phase");
    all.iter().map(|(uid, it)| (&**uid, phase(it))).collect()
}

#[test]
fn two_writers_show_the_same_and_write_each_operation_once() {
    alone(async |world| {
        clear(world).await;
        let one = Persisting::start(world, &[]).await;
        let other = Persisting::start(world, &[]).await;
        let mut traffic = Traffic::start(world, 20).await;
        let before = writes(world).await;
        let namespace = traffic.namespace;
        let own = |mut all: BTreeMap<String, Value>| {
            all.retain(|_, it| text(it, "/spec/subject/namespace") == namespace);
            all
        };
        let agreed = async |traffic: &Traffic| {
            eventually("both show the same, and it is written once", async || {
                let crs = own(crs(world).await);
                let active = traffic.active(crs.values());
                so(active == traffic.going_on(), (active, traffic.going_on()))?;
                let doubled = doubled(crs.values());
                so(doubled.is_none(), doubled)?;
                for server in [&one, &other] {
                    let live = own(server.live().await);
                    let (live, crs) = (phases(&live), phases(&crs));
                    so(live == crs, live.symmetric_difference(&crs))?;
                }
                Ok(crs)
            })
            .await
        };
        for _ in 0..5 {
            traffic.steps(80).await;
        }
        agreed(&traffic).await;
        traffic.statuses.fill("Running");
        traffic.repeat().await;
        let crs = agreed(&traffic).await;
        let writes = writes(world).await - before;
        // Each writes it at its start and at its end: the second changes nothing, but is
        // counted. On a slow machine some are written more often, after a gap or a conflict.
        // Two servers that undo each other's writes would do so until the end.
        #[allow(clippy::cast_precision_loss, reason = "hundreds")]
        let each = writes / crs.len() as f64;
        assert!(crs.len() > 100, "{}", crs.len());
        assert!(each <= 10.0, "{writes} writes of {} operations", crs.len());
    });
}
