//! Decodes only those fields of a large object that some expressions can read.
//!
//! The projection of an expression is the set of fields that the expression can read. A controller
//! that watches thousands of objects compiles its expressions once and merges their projections.
//! The controller decodes every object with the merged projection. It can store the decoded fields
//! instead of the object.

use std::error::Error;

use ifo_cel::{Budget, Doc, Environment, EvaluationScope, Projection, ResultKind, compile};
use jiff::Timestamp;
use serde_json::{Value, json};

const EXPRESSIONS: [&str; 3] = [
    "object.status.phase == 'Pending'",
    "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
    "object.spec.containers.all(c, has(c.resources.limits))",
];

fn main() -> Result<(), Box<dyn Error>> {
    let json = pod().to_string();

    let mut programs = Vec::new();
    let mut projection = Projection::default();
    // A controller adds the fields that its own code needs.
    projection.add(&["metadata", "name"]);
    for source in EXPRESSIONS {
        let program = compile(source, ResultKind::Bool, &Environment::default())?;
        projection.merge(program.projection());
        programs.push(program);
    }
    let doc = Doc::parse(json.as_bytes(), &projection)?;
    let decoded = doc.to_json();
    println!("object: {} bytes", json.len());
    println!(
        "decoded: {} bytes: {}",
        decoded.len(),
        String::from_utf8(decoded.clone())?
    );
    assert!(decoded.len() * 40 < json.len());

    let mut budget = Budget { left: 1_000 };
    #[expect(clippy::disallowed_methods, reason = "an example may read the clock")]
    let now = Timestamp::now();
    let mut scope = EvaluationScope::new(&doc, now, &mut budget);
    for program in &programs {
        println!("{}: {}", program.test(&mut scope)?, program.source());
    }
    Ok(())
}

/// Returns a Pod as a kube-apiserver sends it. Its JSON consists mostly of environment variables
/// and managed fields.
fn pod() -> Value {
    let environment: Vec<_> = (0..100)
        .map(|index| json!({"name": format!("VARIABLE_{index}"), "value": "x".repeat(40)}))
        .collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "web-0",
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": "x".repeat(2_000)}}],
        },
        "spec": {
            "containers": [{
                "name": "web",
                "env": environment,
                "resources": {"limits": {"memory": "128Mi"}},
            }],
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": "PodScheduled", "status": "True", "lastProbeTime": null},
                {"type": "Ready", "status": "True", "lastProbeTime": null},
            ],
        },
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn only_a_fraction_of_the_pod_is_decoded() {
        super::main().expect("the expressions and the pod are valid");
    }
}
