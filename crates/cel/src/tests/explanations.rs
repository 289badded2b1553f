//! Tests that an explanation has the clauses that decided a result, with their operands.

use super::*;

const OBJECT: &str = r#"{"status": {"phase": "Idle", "n": 2, "on": true, "off": false,
    "conditions": [{"type": "Ready", "status": "True"}]}, "since": "2026-01-01T00:00:00Z"}"#;

fn environment() -> Environment {
    let mut environment = Environment::default();
    for (name, source) in [
        ("phase", "object.status.phase"),
        ("idle", "variables.phase == 'Idle' && object.status.n > 1"),
    ] {
        let program = crate::compile(source, ResultKind::Any, &environment).unwrap();
        environment.declare(name, program).unwrap();
    }
    environment
}

/// Returns each clause as `text = result [operand = value; …]`.
fn explain(source: &str) -> Vec<String> {
    let environment = environment();
    let program = crate::compile(source, ResultKind::Any, &environment).expect(source);
    let doc = Doc::parse(OBJECT.as_bytes(), &whole_object()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
    scope.set_variables(&environment);
    let text = |result: &Result<TypedValue, EvaluationFault>| match result {
        Ok(value) => value.value.to_string(),
        Err(failure) => failure.to_string(),
    };
    let explanation = program.explain(&mut scope);
    assert_eq!(explanation.result, program.value(&mut scope));
    let clauses = explanation.clauses.iter();
    clauses
        .map(|clause| {
            let operands: Vec<_> = clause
                .operands
                .iter()
                .map(|(name, value)| format!("{name} = {}", text(value)))
                .collect();
            let variable = clause.variable.iter().map(|name| format!("{name}: "));
            format!(
                "{}{} = {} [{}]",
                variable.collect::<String>(),
                clause.text,
                text(&clause.result),
                operands.join("; ")
            )
        })
        .collect()
}

#[test]
fn the_first_false_clause_decides_an_and_and_all_clauses_decide_a_true_and() {
    assert_eq!(
        explain("object.status.on && (object.status.phase == 'Moving') && object.status.n > 5"),
        ["object.status.phase == 'Moving' = false [object.status.phase = \"Idle\"]"]
    );
    assert_eq!(
        explain("object.status.on && object.status.n * 2 > 3"),
        [
            "object.status.on = true []",
            "object.status.n * 2 > 3 = true [object.status.n * 2 = 4; object.status.n = 2]"
        ]
    );
    assert_eq!(
        explain("object.status.n == 3 || object.status.off"),
        [
            "object.status.n == 3 = false [object.status.n = 2]",
            "object.status.off = false []"
        ]
    );
    assert_eq!(
        explain("object.status.n == 3 || object.status.n == 2 || object.status.on"),
        ["object.status.n == 2 = true [object.status.n = 2]"]
    );
    assert_eq!(
        explain("!(object.status.on && object.status.n in [1, 2])"),
        [
            "object.status.on = true []",
            "object.status.n in [1, 2] = true [object.status.n = 2]"
        ]
    );
}

#[test]
fn missing_fields_and_failures_are_clauses() {
    assert_eq!(
        explain("object.status.on && object.spec.paused && object.status.n > 1"),
        ["object.spec.paused = no such key: spec []"]
    );
    assert_eq!(
        explain("object.status.n + object.status.phase == 'a'"),
        [
            "object.status.n + object.status.phase == 'a' = 1:17: no such overload: int + string \
             [object.status.n + object.status.phase = 1:17: no such overload: int + string; \
             object.status.n = 2; object.status.phase = \"Idle\"]"
        ]
    );
}

#[test]
fn calls_and_comprehensions_have_their_whole_text() {
    assert_eq!(
        explain("size(object.status.conditions) > 3"),
        [
            "size(object.status.conditions) > 3 = false [size(object.status.conditions) = 1; \
             object.status.conditions = [{\"status\":\"True\",\"type\":\"Ready\"}]]"
        ]
    );
    assert_eq!(
        explain("object.status.conditions.exists(c, c.type == 'Failed' && c.status == 'True')"),
        [
            "object.status.conditions.exists(c, c.type == 'Failed' && c.status == 'True') = false \
             [object.status.conditions = [{\"status\":\"True\",\"type\":\"Ready\"}]]"
        ]
    );
    assert_eq!(
        explain("object.?status.?mode.orValue('a)').startsWith('b')"),
        [
            "object.?status.?mode.orValue('a)').startsWith('b') = false \
             [object.?status.?mode.orValue('a)') = \"a)\"]"
        ]
    );
    assert_eq!(
        explain("now - timestamp(object.since) > duration('1h')"),
        ["now - timestamp(object.since) > duration('1h') = false \
             [now - timestamp(object.since) = \"-1767225600s\"; now = \"1970-01-01T00:00:00Z\"; \
             timestamp(object.since) = \"2026-01-01T00:00:00Z\"; object.since = \"2026-01-01T00:00:00Z\"]"]
    );
}

#[test]
fn the_clauses_of_a_variable_follow_it() {
    assert_eq!(
        explain("variables.idle && object.status.off"),
        ["object.status.off = false []"]
    );
    assert_eq!(
        explain("variables.idle"),
        [
            "variables.idle = true []",
            "idle: variables.phase == 'Idle' = true [variables.phase = \"Idle\"]",
            "idle: object.status.n > 1 = true [object.status.n = 2]",
        ]
    );
}
