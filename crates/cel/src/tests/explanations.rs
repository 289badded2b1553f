//! Tests that an explanation has the clauses that decided a result, with their operands.

use super::*;

const OBJECT: &str = r#"{"status": {"phase": "Idle", "n": 2, "on": true, "off": false,
    "conditions": [{"type": "Ready", "status": "True"}]}, "since": "2026-01-01T00:00:00Z"}"#;

/// Returns the clauses of an explanation, each as `text = result [operand = value; …]`, with ` | `
/// between them.
fn explain(source: &str) -> String {
    let environment = environment(&[
        ("phase", "object.status.phase"),
        ("idle", "variables.phase == 'Idle' && object.status.n > 1"),
    ]);
    let text = |result: &Result<TypedValue, EvaluationFault>| match result {
        Ok(value) => value.value.to_string(),
        Err(failure) => failure.to_string(),
    };
    let program = crate::compile(source, ResultKind::Any, &environment).expect(source);
    let doc = Doc::parse(OBJECT.as_bytes(), &whole_object()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
    scope.set_variables(&environment);
    let explanation = program.explain(&mut scope);
    assert_eq!(explanation.result, program.value(&mut scope));
    let clauses = explanation.clauses.iter().map(|clause| {
        let operands = clause.operands.iter();
        let operands = operands.map(|(name, value)| format!("{name} = {}", text(value)));
        let operands = operands.collect::<Vec<_>>().join("; ");
        let variable = clause.variable.iter().map(|name| format!("{name}: "));
        let variable: String = variable.collect();
        let result = text(&clause.result);
        format!("{variable}{} = {result} [{operands}]", clause.text)
    });
    clauses.collect::<Vec<_>>().join(" | ")
}

#[test]
fn an_explanation_has_the_clauses_that_decided_the_result() {
    for (source, expected) in rows(
        r#"
        object.status.on && (object.status.phase == 'Moving') && object.status.n > 5 => object.status.phase == 'Moving' = false [object.status.phase = "Idle"]
        object.status.on && object.status.n * 2 > 3 => object.status.on = true [] | object.status.n * 2 > 3 = true [object.status.n * 2 = 4; object.status.n = 2]
        object.status.n == 3 || object.status.off => object.status.n == 3 = false [object.status.n = 2] | object.status.off = false []
        object.status.n == 3 || object.status.n == 2 || object.status.on => object.status.n == 2 = true [object.status.n = 2]
        !(object.status.on && object.status.n in [1, 2]) => object.status.on = true [] | object.status.n in [1, 2] = true [object.status.n = 2]
        object.status.on && object.spec.paused && object.status.n > 1 => object.spec.paused = no such key: spec []
        object.status.n + object.status.phase == 'a' => object.status.n + object.status.phase == 'a' = 1:17: no such overload: int + string [object.status.n + object.status.phase = 1:17: no such overload: int + string; object.status.n = 2; object.status.phase = "Idle"]
        size(object.status.conditions) > 3 => size(object.status.conditions) > 3 = false [size(object.status.conditions) = 1; object.status.conditions = [{"status":"True","type":"Ready"}]]
        object.status.conditions.exists(c, c.type == 'Failed' && c.status == 'True') => object.status.conditions.exists(c, c.type == 'Failed' && c.status == 'True') = false [object.status.conditions = [{"status":"True","type":"Ready"}]]
        object.?status.?mode.orValue('a)').startsWith('b') => object.?status.?mode.orValue('a)').startsWith('b') = false [object.?status.?mode.orValue('a)') = "a)"]
        now - timestamp(object.since) < duration('1h') => now - timestamp(object.since) < duration('1h') = false [now - timestamp(object.since) = "28022400s"; now = "2026-11-21T08:00:00Z"; timestamp(object.since) = "2026-01-01T00:00:00Z"; object.since = "2026-01-01T00:00:00Z"]
        variables.idle && object.status.off => object.status.off = false []
        variables.idle => variables.idle = true [] | idle: variables.phase == 'Idle' = true [variables.phase = "Idle"] | idle: object.status.n > 1 = true [object.status.n = 2]
        "#,
    ) {
        assert_eq!(explain(&source), expected, "{source}");
    }
}
