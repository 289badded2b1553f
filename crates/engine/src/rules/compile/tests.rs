//! Tests of the module `compile`.

mod compile_limits;

use super::*;
use ifo_api::ruleset::MAX_EXPRESSION;
use ifo_api::schema;
use serde_json::{Value, json};

fn spec(yaml: &str) -> OperationRuleSetSpec {
    serde_saphyr::from_str(yaml).expect("the YAML of the test is a valid spec")
}

fn rule(text: &str) -> OperationRuleSetSpec {
    spec(&format!(
        "component: c\ntarget: {{group: g.io, version: v1, resource: things}}\nrules:\n- {text}\n"
    ))
}

fn problems(spec: &OperationRuleSetSpec) -> Vec<String> {
    let invalid = compile("x", spec).expect_err("an invalid spec must be refused");
    invalid.iter().map(ToString::to_string).collect()
}

#[test]
fn each_field_of_a_rule_is_compiled_and_reported_by_its_name() {
    let schema = schema::rule_set();
    let rules = &schema["properties"]["spec"]["properties"]["rules"];
    let fields = rules["items"]["properties"].as_object().unwrap();
    let has_expression = |schema: &Value| schema["maxLength"] == MAX_EXPRESSION;
    let fields = fields.iter().filter(|(_, schema)| has_expression(schema));
    let fields: Vec<&String> = fields.map(|(field, _)| field).collect();
    assert!(fields.len() > 10, "{fields:?}");
    for field in fields {
        // These fields need other fields.
        let mut rule = json!({
            "operation": "Moving", "expression": "true", "forEach": "object.list",
            "itemKey": "item.name", "progress": "1", "outcome": "''",
        });
        rule[field] = "object.".into();
        let spec = json!({
            "component": "c", "rules": [rule],
            "target": {"group": "g.io", "version": "v1", "resource": "things"},
        });
        let problems = problems(&serde_json::from_value(spec).unwrap());
        assert_eq!(problems.len(), 1, "{problems:?}");
        let start = format!("rules[Moving].{field}: 1:");
        assert!(problems[0].starts_with(&start), "{problems:?}");
    }
}

#[test]
fn errors_say_what_to_do() {
    let target = |target: &str| {
        spec(&format!(
            "component: c\ntarget: {{{target}}}\nrules:\n- {{operation: Moving, expression: 'true'}}\n"
        ))
    };
    let cases = [
        (
            target("group: kubevirt.io, version: v1, resource: VirtualMachine"),
            "target.resource: \"VirtualMachine\" is not valid. Plural resource name in lower case, such as `virtualmachines`. Subresources cannot be watched.",
        ),
        (
            target("group: '', version: apps/v1, resource: deployments"),
            "target.version: \"apps/v1\" is not valid. API version, such as `v1`.",
        ),
        (
            rule("{operation: Moving, expression: 'true', state: Blocked}"),
            "rules[Moving].state: 1:1: undeclared reference to 'Blocked' (in container '') (hint: a string needs quotes inside the YAML quotes: \"'Blocked'\")",
        ),
    ];
    for (spec, expected) in cases {
        assert_eq!(problems(&spec), [expected]);
    }
    let spec = rule("{operation: Moving, expression: object.a = 1}");
    let error = &compile("x", &spec).expect_err("`=` is not an operator")[0];
    assert_eq!(error.excerpt().as_deref(), Some("object.a = 1\n         ^"));
}

#[test]
fn the_constraints_of_the_schema_are_checked() {
    let valid = json!({
        "component": "c", "target": {"group": "g.io", "version": "v1", "resource": "things"},
        "rules": [{"operation": "Moving", "expression": "true", "debounce": "1h30m"}],
        "variables": [{"name": "v", "expression": "object.v"}], "namespaces": ["a"],
        "labels": {"x.io/a": "b", "ifo.kubevirt.io/correlation-group": "g"},
        "labelExpressions": [{"key": "tier", "expression": "object.t"}],
    });
    let parse = |spec: &Value| serde_json::from_value::<OperationRuleSetSpec>(spec.clone());
    assert!(compile("x", &parse(&valid).unwrap()).is_ok());
    for name in ["Bad_Name", "x y", &"a".repeat(300)] {
        let errors = compile(name, &parse(&valid).unwrap()).expect_err("the name is invalid");
        let expected = format!("metadata.name: {name:?} is not a DNS subdomain:");
        assert!(errors[0].to_string().starts_with(&expected), "{errors:?}");
    }
    let reserved = "keys under ifo.kubevirt.io/ are set by the server;";
    for (path, value, expected) in [
        (
            "/target/group",
            json!("ifo.kubevirt.io"),
            "target.group: the groups ifo.kubevirt.io",
        ),
        (
            "/rules/0/itemKey",
            json!("item"),
            "rules[Moving].itemKey: itemKey needs forEach",
        ),
        (
            "/rules/0/supersedes",
            json!(["*", "*"]),
            "rules[Moving].supersedes: \"*\" is declared twice",
        ),
        (
            "/rules/0/supersedes",
            json!(["a b"]),
            "rules[Moving].supersedes[a b]: \"a b\" is not valid. `*` for all operations, or the name",
        ),
        (
            "/rules/0/debounce",
            json!("25h"),
            "rules[Moving].debounce: at most 24h are allowed",
        ),
        (
            "/rules/0/appearAfter",
            json!("30m1h"),
            "rules[Moving].appearAfter: \"30m1h\" is not a duration such as 30s or 1h30m",
        ),
        (
            "/rules/0/expectedDuration",
            json!("999999999h"),
            "rules[Moving].expectedDuration: \"999999999h\" is not a duration such as",
        ),
        (
            "/rules/0/expectedDuration",
            json!("0s"),
            "rules[Moving].expectedDuration: zero is not",
        ),
        (
            "/rules",
            json!([]),
            "rules: 0 entries are not allowed, but 1 to 64",
        ),
        (
            "/variables/0/expression",
            json!(""),
            "variables[v].expression: 0 characters are not allowed",
        ),
        (
            "/namespaces",
            json!(["a b"]),
            "namespaces[a b]: \"a b\" is not valid. Name of a namespace: at most 63 lowercase letters,",
        ),
        (
            "/labels",
            json!({"x.io/a": "b", "ifo.kubevirt.io/state": "x"}),
            &format!("labels[ifo.kubevirt.io/state]: {reserved}"),
        ),
        (
            "/labels",
            json!({"a b": "x"}),
            "labels[a b]: a label key must be a qualified name",
        ),
        (
            "/labels",
            json!({"a": "-"}),
            "labels[a]: \"-\" is not valid. Label value: at most 63 letters,",
        ),
        (
            "/labelExpressions/0/key",
            json!("ifo.kubevirt.io/x"),
            &format!("labelExpressions[ifo.kubevirt.io/x].key: {reserved}"),
        ),
    ] {
        let mut spec = valid.clone();
        let (parent, field) = path.rsplit_once('/').unwrap();
        spec.pointer_mut(parent).unwrap()[field] = value;
        let problems = problems(&parse(&spec).unwrap());
        assert!(problems[0].starts_with(expected), "{path}: {problems:?}");
    }
}

#[test]
fn invalid_label_selectors_are_refused() {
    for (requirement, word) in [
        (
            "{key: tier, operator: Near, values: [a]}",
            "is not one of In",
        ),
        ("{key: tier, operator: In}", "needs values"),
        (
            "{key: tier, operator: Exists, values: [a]}",
            "takes no values",
        ),
        ("{key: a b, operator: Exists}", "is not a label key"),
        (
            "{key: tier, operator: In, values: [a b]}",
            "is not a label value",
        ),
    ] {
        let spec = spec(&format!(
            "component: c\ntarget: {{group: g.io, version: v1, resource: things}}\n\
             labelSelector: {{matchExpressions: [{requirement}]}}\n\
             rules:\n- {{operation: Moving, expression: 'true'}}\n"
        ));
        let problems = problems(&spec);
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains(word), "{problems:?}");
    }
}

#[test]
fn variables_can_use_earlier_variables_and_rules_can_use_all_variables() {
    let text = |first: &str, second: &str| {
        spec(&format!(
            "component: c\ntarget: {{group: g.io, version: v1, resource: things}}\n\
             variables:\n- {{name: a, expression: \"{first}\"}}\n- {{name: b, expression: \"{second}\"}}\n\
             rules:\n- {{operation: Moving, expression: variables.a && variables.b}}\n"
        ))
    };
    assert!(compile("x", &text("object.moving", "!variables.a")).is_ok());
    let problems = problems(&text("variables.b", "true"));
    assert!(
        problems[0].starts_with("variables[a].expression: 1:"),
        "{problems:?}"
    );
}

#[test]
fn item_is_defined_only_in_rules_with_for_each() {
    let with = rule(
        "{operation: Moving, forEach: object.parts, itemKey: item.name, expression: item.moving, message: item.text}",
    );
    assert!(compile("x", &with).is_ok());
    let without = rule("{operation: Moving, expression: item.moving}");
    assert!(problems(&without)[0].contains("item"));
}
