//! Tests with rule sets whose compilation needs much time or memory.

use super::peak_memory;
use crate::harness::{
    RULE_SET, VM, condition, eventually, migrating, ok_if, rule_set, shared, text,
};
use serde_json::{Value, json};

/// Returns a rule set with 64 rules, whose expressions are as long as the CRD allows. Each regular
/// expression ignores case, so the compiler must find the other case of each character of Unicode.
/// The expressions have about 260 KB together.
fn expensive_regular_expressions(name: &str, rules: usize, length: usize) -> Value {
    let class = r"[\\x{0}-\\x{10ffff}]";
    let rules: Vec<Value> = (0..rules)
        .map(|number| {
            let classes = class.repeat((length - 60) / class.len());
            let expression = format!("object.metadata.name.matches('(?i){number}{classes}')");
            json!({"operation": format!("Rule{number}"), "expression": expression})
        })
        .collect();
    let mut object = rule_set(name, &VM, &[]);
    object["spec"]["rules"] = json!(rules);
    object
}

/// Returns a rule set whose variables double the compiler's data with each variable: the fields that
/// are needed, the static types, or the texts that are possible results.
fn doubling_variables(name: &str, first: &str, next: impl Fn(&str) -> String) -> Value {
    let mut variables = vec![json!({"name": "v0", "expression": first})];
    for number in 1..32 {
        let expression = next(&format!("variables.v{}", number - 1));
        variables.push(json!({"name": format!("v{number}"), "expression": expression}));
    }
    let mut object = rule_set(name, &VM, &[("Doubling", "size([variables.v31]) > 1")]);
    object["spec"]["variables"] = json!(variables);
    object["spec"]["rules"][0]["state"] = json!("variables.v31 == 'x' ? 'Failing' : 'Blocked'");
    object["spec"]["rules"][0]["message"] = json!("string(variables.v31.c)");
    object
}

/// A rule author creates a rule set of 260 KB with expensive regular expressions, and one of 120 KB,
/// to delay the rule sets of other teams. One rule set is refused because of its size, and the other
/// one because of its regular expressions. A rule set that is created at the same time becomes
/// ready.
#[test]
fn expensive_regular_expressions_delay_no_other_rule_set() {
    shared(async |cluster| {
        let namespace = cluster.namespace("compiler").await;
        let (large, smaller) = (format!("{namespace}-large"), format!("{namespace}-smaller"));
        for object in [
            expensive_regular_expressions(&large, 64, 4_096),
            expensive_regular_expressions(&smaller, 30, 4_096),
        ] {
            cluster.create(&RULE_SET, None, &object).await;
        }
        cluster.ready_rule_set(&migrating(namespace)).await;
        cluster.machine(namespace, "a", "Migrating").await;
        cluster
            .until_operations(namespace, &[("a", "Migrating")])
            .await;

        for (name, limit) in [(&large, "more than 131072"), (&smaller, "ignores case")] {
            let refused = cluster
                .rule_set_until(name, "InvalidRule", |it| {
                    condition(it, "InvalidRule")["status"] == "True"
                })
                .await;
            let message = text(condition(&refused, "InvalidRule"), "/message");
            assert!(message.contains(limit), "{message}");
            let path = format!("{}/{name}", RULE_SET.path(None));
            cluster.admin.delete(&path).await.ok();
        }
    });
}

/// A rule author creates rule sets whose variables double the compiler's data 31 times, to use up
/// the memory of the server. The server compiles or refuses them, within the memory limit of the
/// Deployment.
#[test]
fn variables_that_double_the_data_of_the_compiler_need_little_memory() {
    shared(async |cluster| {
        let namespace = cluster.namespace("doubling").await;
        let name = |kind: &str| format!("{namespace}-{kind}");
        let rule_sets = [
            doubling_variables(&name("fields"), "object.spec", |last| {
                format!("object.a ? {last}['a'] : {last}['b']")
            }),
            doubling_variables(&name("types"), "object.spec", |last| {
                format!("{{{last}: {last}}}")
            }),
            doubling_variables(&name("texts"), "dyn(object.a ? 'x' : 'y')", |last| {
                format!("object.a ? {last}.a.b.c : {last}.d.e.f")
            }),
        ];
        for object in &rule_sets {
            let mut object = object.clone();
            object["spec"]["namespaces"] = json!([namespace]);
            cluster.create(&RULE_SET, None, &object).await;
        }
        for object in &rule_sets {
            let name = text(object, "/metadata/name");
            cluster
                .rule_set_until(name, "compiled or refused", |it| {
                    let validated = condition(it, "Validated");
                    validated["status"] == "True" || validated["reason"] == "InvalidRule"
                })
                .await;
        }
        let server = cluster.server.lock().await;
        let peak = peak_memory(server.pid());
        let limit = server.memory_limit();
        assert!(
            peak < limit,
            "{peak} bytes at the peak, the Deployment allows {limit}"
        );
        drop(server);
        for object in &rule_sets {
            let path = format!("{}/{}", RULE_SET.path(None), text(object, "/metadata/name"));
            cluster.admin.delete(&path).await.ok();
        }
        eventually("the rule sets are deleted", async || {
            let list = cluster.admin.get(&RULE_SET.path(None)).await.ok();
            let names = list["items"].to_string();
            ok_if(!names.contains(&name("")), names.len())
        })
        .await;
    });
}
