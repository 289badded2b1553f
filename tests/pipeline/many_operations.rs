//! Test of the server's memory if rules detect an operation on each of very many objects, some of them with
//! messages as long as possible, and if the rule sets are then deleted.

use crate::fake_apiserver::WITH_LONG_MESSAGES;
use crate::fake_apiserver::{FakeApiServer, Script, Step, list, thing};
use crate::running_server::RunningServer;
use std::time::Duration;
use tokio::time::Instant;

/// Number of objects of the target.
const OBJECTS: usize = 60_000;

/// Largest resident memory of the server in MiB that the test allows: half of the memory limit in the
/// Deployment. A debug build needs 85 MiB.
const MAX_MIB: u64 = 160;

/// If a step takes longer than this time, the test fails.
const TIMEOUT: Duration = Duration::from_mins(5);

/// Waits until `holds` returns true.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let started = Instant::now();
    while !holds().await {
        assert!(started.elapsed() < TIMEOUT, "still waiting for: {what}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rules_that_are_true_on_sixty_thousand_objects_stay_within_the_memory_limit() {
    let script = || -> Script {
        Box::new(|request| {
            if request.is_watch() {
                return vec![Step::HoldOpen];
            }
            let objects = (0..OBJECTS).map(|it| thing(&format!("n{it}"), "Busy").into_bytes());
            list(objects, "")
        })
    };
    let scripts = [("things", script()), (WITH_LONG_MESSAGES, script())];
    let api_server = FakeApiServer::start(scripts).await;
    let mut server = RunningServer::start(&api_server).await;
    // An operation with a long message counts several times.
    let bound = "operations are counted, and 10000 is the bound for a rule set.";
    for rule_set in ["things", WITH_LONG_MESSAGES] {
        until(
            "the bound is reached, and the list is complete",
            async || {
                let statuses = api_server.statuses_of(rule_set);
                let last = statuses.lines().next_back().unwrap_or_default();
                last.contains(bound) && last.contains(r#""watchActive":true"#)
            },
        )
        .await;
    }
    let shown = server.assert_healthy_within(MAX_MIB);
    api_server.delete_rule_sets();
    until("all operations have ended", async || {
        let path = format!(
            "{}?limit=1&fieldSelector=status.phase%3DActive",
            crate::demo::OPERATIONS
        );
        let list = server.text(&path).await;
        list.is_ok_and(|list| list.contains(r#""items":[]"#))
    })
    .await;
    let peak = server.assert_healthy_within(MAX_MIB);
    println!(
        "{OBJECTS} objects: {} MiB at the bound, {} MiB after the deletion of the rule sets",
        shown >> 20,
        peak >> 20
    );
}
