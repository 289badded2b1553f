//! Tests with hostile input: rule sets, watched objects and requests that could use up the memory
//! or processor time of the server under test. Other users must not be affected.

mod compiler;
mod component_owners;
mod connections;
mod control_characters;
mod http2_client;
mod late_changes;
mod memory_under_floods;
mod operations_of_other_teams;
mod rapid_reset;
mod slow_rules;
mod too_many_operations;
mod watch_places;

use crate::harness::{RULE_SET, VM, condition, migrating, rule_set, shared, text};
use serde_json::{Value, json};

/// Returns expressions whose evaluation is too expensive. Each expression has at most 4,096
/// characters, because the CRD of rule sets refuses longer expressions.
fn expensive_expressions() -> Vec<String> {
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    // An evaluation of this expression would take 10^12 steps.
    let nested = (0..12).fold("false".to_owned(), |inner, depth| {
        format!("{ten}.exists(x{depth}, {inner})")
    });
    // This expression creates a list whose length doubles 40 times.
    let doubling = (0..40).fold("[1]".to_owned(), |inner, depth| {
        format!("[{inner}].map(x{depth}, x{depth} + x{depth})[0]")
    });
    vec![
        nested,
        format!("size({doubling}) > 0"),
        "object.big.all(a, object.big.all(b, object.big.all(c, a + b + c != '')))".to_owned(),
        "object.big.map(a, object.big.map(b, object.big)).size() > 0".to_owned(),
    ]
}

/// Returns expressions that are invalid, or that need much memory or many steps to compile or to
/// evaluate. Each expression has at most 4,096 characters.
fn other_hostile_expressions() -> Vec<String> {
    let text = format!("'{}'", "a".repeat(1500));
    vec![
        format!("{}true{}", "(".repeat(2000), ")".repeat(2000)),
        format!("{}true", "!".repeat(4000)),
        format!("{}1{} == 1", "[".repeat(2000), "]".repeat(2000)),
        format!("object{} == 1", ".a".repeat(2000)),
        format!("true{}", " && true".repeat(500)),
        format!("1{} == 1", "+1".repeat(2000)),
        "object.metadata.name.matches('(((a{100}){100}){100}){100}')".to_owned(),
        "object.metadata.name.matches('(a|aa)+$')".to_owned(),
        format!("object.metadata.name.matches('{}')", "(a?){50}".repeat(100)),
        format!(
            "object.metadata.name.matches('{}')",
            "(".repeat(1500) + &")".repeat(1500)
        ),
        format!("{text}.matches(object.regex)"),
        format!(
            "{text}.contains({text}) && object.big.exists(a, {:?}.contains(a))",
            "b".repeat(900)
        ),
        "timestamp('9999-12-31T23:59:59Z') + duration('999999999h') > timestamp('x')".to_owned(),
        "9223372036854775807 + 1 > 0".to_owned(),
        "int('9'.replace('9', '99')) > 0".to_owned(),
        "object.".to_owned() + &"metadata".repeat(400),
    ]
}

#[test]
fn a_hundred_hostile_rule_sets_get_clear_errors_and_do_not_affect_others() {
    shared(async |cluster| {
        let namespace = cluster.namespace("hostile").await;
        let good = cluster.namespace("good").await;
        cluster.ready_rule_set(&migrating(good)).await;
        let subject = json!({
            "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": "subject"},
            "status": {"printableStatus": "Migrating"},
            "regex": format!("({}){{1000}}", "(a{1000})"),
            "big": (0..2000).map(|number| format!("text {number}")).collect::<Vec<_>>(),
        });
        cluster.create(&VM, Some(namespace), &subject).await;

        let mut expressions = expensive_expressions();
        let expensive = expressions.len();
        expressions.extend(other_hostile_expressions());
        assert!(expressions.iter().all(|it| it.len() <= 4096));
        let name = |number: usize| format!("{namespace}-{number}");
        let requests = (0..100).map(|number| {
            let expression = &expressions[number % expressions.len()];
            let mut rules = rule_set(&name(number), &VM, &[("Hostile", expression)]);
            rules["spec"]["namespaces"] = json!([namespace]);
            async move { cluster.create(&RULE_SET, None, &rules).await }
        });
        futures::future::join_all(requests).await;

        // The rule set of the namespace `good` watches the same resource, and must still detect
        // operations.
        cluster.machine(good, "a", "Migrating").await;
        cluster.until_operations(good, &[("a", "Migrating")]).await;

        for number in 0..100 {
            let rule_set = cluster
                .rule_set_until(&name(number), "Ready, or the reason why it is not", |it| {
                    let ready = condition(it, "Ready");
                    let failures = ["InvalidRule", "EvaluationFailed", "Throttled"];
                    ready["status"] == "True" || failures.iter().any(|it| ready["reason"] == *it)
                })
                .await;
            if condition(&rule_set, "Ready")["reason"] == "InvalidRule" {
                let message = text(condition(&rule_set, "InvalidRule"), "/message");
                assert!(message.contains("rules[Hostile].expression: "), "{message}");
                assert!(message.len() < 2000, "{message}");
            }
        }
        // The first rule sets have the expensive expressions. Either the compiler must refuse the
        // expression, or the server must stop the evaluation at the cost limit. The status of the
        // rule set must report which of the two happened.
        for number in 0..expensive {
            let rule_set = cluster
                .rule_set_until(&name(number), "EvaluationFailed or InvalidRule", |it| {
                    condition(it, "EvaluationFailed")["status"] == "True"
                        || condition(it, "InvalidRule")["status"] == "True"
                })
                .await;
            let failed = condition(&rule_set, "EvaluationFailed");
            if failed != &Value::Null {
                let message = text(failed, "/message");
                assert!(message.contains("cost limit"), "{message}");
            }
        }

        cluster.set_status(good, "a", "Running").await;
        cluster.until_operations(good, &[]).await;
        let deletions = (0..100).map(|number| async move {
            let path = format!("{}/{namespace}-{number}", RULE_SET.path(None));
            cluster.admin.delete(&path).await.ok();
        });
        futures::future::join_all(deletions).await;
        cluster.until_operations(namespace, &[]).await;

        let server = cluster.server.lock().await;
        let peak = peak_memory(server.pid());
        assert!(
            peak < server.memory_limit(),
            "{peak} bytes at the peak, the Deployment allows {}",
            server.memory_limit()
        );
    });
}

/// Environment variables of a server that writes no custom resources.
const WITHOUT_PERSISTENCE: [(&str, &str); 1] = [("PERSISTENCE", "off")];

/// Returns the peak resident memory of a process in bytes, or 0 if the system does not report it.
pub fn peak_memory(pid: u32) -> u64 {
    process_status_bytes(pid, "VmHWM:")
}

/// Returns the value of the line `name` of `/proc/PID/status` in bytes, or 0 if there is no such
/// line. For example, `VmRSS:` is the resident memory, and `VmHWM:` is its peak.
fn process_status_bytes(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let found = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes =
        found.and_then(|text| text.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kibibytes.unwrap_or(0) << 10
}

#[test]
fn unusual_subjects_are_evaluated_or_skipped_and_the_rest_continues() {
    shared(async |cluster| {
        let namespace = cluster.namespace("odd").await;
        cluster.ready_rule_set(&migrating(namespace)).await;
        let odd = [
            json!({}),
            json!({"status": null}),
            json!({"status": "Migrating"}),
            json!({"status": ["Migrating"]}),
            json!({"status": {"printableStatus": 7}}),
            json!({"status": {"printableStatus": {"a": []}}}),
            json!({"status": {"printableStatus": "Migrating\u{0}\u{ffff}"}}),
            json!({"padding": "x".repeat(1_000_000), "status": {"printableStatus": "Stopped"}}),
        ];
        for (number, extra) in odd.into_iter().enumerate() {
            let mut object = json!({
                "apiVersion": VM.api_version, "kind": VM.kind,
                "metadata": {"name": format!("odd-{number}")},
            });
            for (key, value) in extra.as_object().into_iter().flatten() {
                object[key] = value.clone();
            }
            cluster.create(&VM, Some(namespace), &object).await;
        }
        let large = json!({
            "apiVersion": VM.api_version, "kind": VM.kind, "metadata": {"name": "large"},
            "padding": "\\\"".repeat(200_000), "status": {"printableStatus": "Migrating"},
        });
        cluster.create(&VM, Some(namespace), &large).await;
        let long = format!("long-{}", "x".repeat(240));
        cluster.machine(namespace, &long, "Migrating").await;
        let operations = cluster
            .until_operations(namespace, &[("large", "Migrating"), (&long, "Migrating")])
            .await;
        let name = text(&operations[1], "/metadata/name");
        assert!(name.len() <= 253 && name.contains("-migrating-"), "{name}");
        let label = text(
            &operations[1]["metadata"]["labels"],
            "/ifo.kubevirt.io~1subject-name",
        );
        assert!(!label.is_empty() && label.len() <= 63, "{label}");
    });
}
