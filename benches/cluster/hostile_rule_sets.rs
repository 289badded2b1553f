//! Measures how much hostile rule sets delay the operations of another rule set for the same
//! resource. A hostile rule set has an expression with a very high cost.

use crate::api_client::RULE_SETS;
use crate::server::MeasuredServer;
use crate::{Bench, Load};
use serde_json::json;
use std::time::Duration;

/// Number of hostile rule sets.
const HOSTILE: usize = 100;
/// Number of rounds. Each round measures the latency of operations without the hostile rule sets,
/// and then with them. Each measurement yields a 99th percentile. For each of the two cases, the
/// benchmark prints the smallest 99th percentile of the rounds.
const ROUNDS: usize = 2;

/// Returns expressions that compile, and whose evaluation has a high cost.
fn hostile_expressions() -> Vec<String> {
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    let nested = (0..12).fold("false".to_owned(), |inner, depth| {
        format!("{ten}.exists(x{depth}, {inner})")
    });
    let doubling = (0..40).fold("[1]".to_owned(), |inner, depth| {
        format!("[{inner}].map(x{depth}, x{depth} + x{depth})[0]")
    });
    let text = "a".repeat(1500);
    let conditions = "object.status.conditions";
    vec![
        nested,
        format!("size({doubling}) > 0"),
        "object.metadata.name.matches('(a|aa|v|vm|m-)+$')".to_owned(),
        format!("'{text}'.replace('a', '{text}').size() > 0"),
        format!(
            "{conditions}.all(a, {conditions}.all(b, {conditions}.all(c, {conditions}.all(d, \
             {conditions}.all(e, a.type + b.type + c.type + d.type + e.type != '')))))"
        ),
    ]
}

/// Measures the latency of the shipped rule set's operations, with and without the hostile rule
/// sets.
pub async fn measure_effect(bench: &Bench, server: &MeasuredServer) -> anyhow::Result<()> {
    let expressions = hostile_expressions();
    let path = |number: usize| format!("{RULE_SETS}/a-hostile-{number}");
    let (mut without, mut with) = (Duration::MAX, Duration::MAX);
    for _ in 0..ROUNDS {
        let latencies = bench.load_with_watches(Load::StatusChange).await?;
        latencies.print();
        without = without.min(latencies.of_operations(99));
        for number in 0..HOSTILE {
            let expression = &expressions[number % expressions.len()];
            let rules = json!({
                "apiVersion": "ifo.kubevirt.io/v1alpha1", "kind": "OperationRuleSet",
                "metadata": {"name": format!("a-hostile-{number}")},
                "spec": {
                    "component": "hostile",
                    "target": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
                    "rules": [{"operation": "Hostile", "expression": expression}],
                },
            });
            bench.api.apply(&path(number), &rules.to_string()).await?;
        }
        let before = server.processor_time()?;
        let latencies = bench.load_with_watches(Load::StatusChange).await?;
        println!("with {HOSTILE} hostile rule sets:");
        server.print_processor("updates", before, bench.rate * bench.seconds)?;
        latencies.print();
        with = with.min(latencies.of_operations(99));
        for number in 0..HOSTILE {
            bench.api.delete(&path(number)).await?;
        }
    }
    println!(
        "p99 with {HOSTILE} hostile rule sets {with:.2?}, without {without:.2?}: {:.2} times",
        with.as_secs_f64() / without.as_secs_f64()
    );
    Ok(())
}
