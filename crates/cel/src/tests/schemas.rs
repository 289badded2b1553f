//! Tests of the type check with a schema.

use super::*;
use crate::{FieldType, ObjectSchema, PathStep};

struct Pods;

impl ObjectSchema for Pods {
    fn type_at(&self, path: &[PathStep]) -> FieldType {
        let path: Vec<&str> = path
            .iter()
            .map(|step| match step {
                PathStep::Field(name) => name,
                PathStep::Index => "[]",
                PathStep::Each => "[*]",
            })
            .collect();
        let text = || FieldType::String { values: Vec::new() };
        match path.join(".").as_str() {
            "" | "spec" | "status" | "metadata" | "metadata.labels" | "status.conditions.[*]" => {
                FieldType::Object
            }
            "status.conditions" | "spec.names" => FieldType::List,
            "spec.replicas" => FieldType::Int,
            "spec.paused" => FieldType::Bool,
            "metadata.creationTimestamp"
            | "metadata.labels.[]"
            | "metadata.labels.app"
            | "spec.names.[*]"
            | "status.conditions.[*].type" => text(),
            "status.phase" => FieldType::String {
                values: vec!["Pending".to_owned(), "Running".to_owned()],
            },
            "status.conditions.[*].status" => FieldType::String {
                values: vec!["True".to_owned(), "False".to_owned()],
            },
            "status.phas" => FieldType::Missing {
                nearest: Some("phase".to_owned()),
            },
            "status.other" | "status.conditions.[*].other" => FieldType::Missing { nearest: None },
            // The empty value is not listed in errors.
            "status.sixteen" => numbered_values(16, [String::new()]),
            "status.seventeen" => numbered_values(17, []),
            _ => FieldType::Any,
        }
    }
}

/// Returns a string field with the values `v1`, `v2` and so on, and the `others`.
fn numbered_values<const N: usize>(count: usize, others: [String; N]) -> FieldType {
    let numbered = (1..=count).map(|number| format!("v{number}"));
    FieldType::String {
        values: numbered.chain(others).collect(),
    }
}

fn check(source: &str, kind: ResultKind) -> Result<Program, CompileError> {
    check_in(source, kind, &Environment::default())
}

fn check_in(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
) -> Result<Program, CompileError> {
    compile_with_all_errors(source, kind, environment, Some(&Pods)).map_err(first)
}

/// Each row has the error and a part of its hint, with ` | ` between them.
#[test]
fn types_and_values_that_contradict_the_schema_are_errors() {
    for (source, expected) in rows(
        "
        'replicas: ' + object.spec.replicas == '' => 1:14: found no matching overload for '_+_' applied to '(string, int)' | string(…)
        object.metadata.creationTimestamp < now => 1:35: found no matching overload for '_<_' applied to '(string, timestamp)' | timestamp(…)
        object.status.phase == 'Runing' => 1:24: 'Runing' is not a possible value of the field; possible are 'Pending', 'Running' | did you mean 'Running'?
        object.?status.?phase.orValue('None') in ['Pending', 'running'] => 1:54: 'running' is not a possible value of the field; possible are 'Pending', 'Running', 'None' | did you mean 'Running'?
        object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'true') => 1:69: 'true' is not a possible value of the field; possible are 'True', 'False' | did you mean 'True'?
        object.status.conditions.exists(c, c.type == 1) => 1:43: found no matching overload for '_==_' applied to '(string, int)' | int(…)
        object.spec.paused == 'true' => 1:20: found no matching overload for '_==_' applied to '(bool, string)' | without quotes
        object.metadata.labels['app'] == 1 || object.spec.names[0] == 'a' => 1:31: found no matching overload for '_==_' applied to '(string, int)' | int(…)
        object.metadata.labels.exists(k, k == 1) => 1:36: found no matching overload for '_==_' applied to '(string, int)' | int(…)
        object.spec.replicas => 1:12: expected type 'bool' but found 'int' | compare
        object.spec.replicas.startsWith('a') => 1:32: found no matching overload for 'startsWith' applied to 'int.(string)'
        has(object.status.phas) && object.status.phas == 'x' => 1:4: the schema has no field 'phas'; the nearest is 'phase'
        object.?status[?'other'].hasValue() => 1:15: the schema has no field 'other'
        object.status.conditions.exists(c, c.other.length == 1) => 1:37: the schema has no field 'other'
        object.status.phase.x == 1 => 1:20: type 'string' does not support field selection
        ",
    ) {
        let (expected, hint) = expected.split_once(" | ").unwrap_or((expected, ""));
        let error = check(&source, ResultKind::Bool).expect_err(&source);
        assert_eq!(error.to_string(), expected, "{source}");
        let found = error.hint.unwrap_or_default();
        assert!(found.contains(hint), "{source}: {found}");
        assert!(compile(&source, ResultKind::Bool).is_ok(), "{source}");
    }
}

#[test]
fn an_error_lists_at_most_sixteen_possible_values() {
    let error = |source: &str| {
        let error = check(source, ResultKind::Bool).expect_err(source);
        error.message
    };
    let message = error("object.status.sixteen == 'x'");
    assert!(message.ends_with("'v15', 'v16'"), "{message}");
    let message = error("object.status.seventeen == 'x'");
    assert!(message.ends_with("'v15', 'v16', …"), "{message}");
}

#[test]
fn expressions_that_fit_the_schema_have_no_errors() {
    for source in [
        "object.spec.unknown == 1 || object.spec.unknown == 'a'",
        "object.spec.replicas > 1.5 || object.spec.replicas == 1.0",
        "object.spec.replicas in [1.0, 2.0]",
        "object.status.phase == null || object.spec == null || object.spec.replicas != null",
        "object.status.phase == '' || object.status.phase != 'Running'",
        "string(object.spec.paused ? object.spec.replicas : object.status.phase) == '1'",
        "(object.spec.paused ? object.spec : object.status).replicas == 'x'",
        "(object.spec.paused ? object.status.conditions : []).exists(c, c.status == 'True')",
        "[object.spec, object.status].exists(x, x.replicas == 'x')",
        "[object.spec, {'replicas': 'x'}].exists(x, x.replicas == 'x')",
        "object.spec == {} || size(object.spec) == 2 || 'a' in object.metadata.labels",
        "object.status.conditions.filter(c, c.status == 'True').size() == object.spec.replicas",
        "object.status.conditions.map(c, c.type).exists(t, t == 'Ready')",
        "object.metadata.labels.exists(k, v, k == 'a' && v == 'b')",
        "timestamp(object.metadata.creationTimestamp) < now",
        "object.?status.?phase.orValue('None') == 'None'",
        "object.?spec.orValue({}) == {}",
        "object.?spec[?'replicas'].orValue(0) == 1",
        "quantity(object.spec.size).isGreaterThan(quantity('1Gi'))",
    ] {
        let checked = check(source, ResultKind::Bool);
        assert!(checked.is_ok(), "{source}: {checked:?}");
    }
}

#[test]
fn the_types_of_variables_and_items_are_known() {
    let mut environment = Environment::default();
    let variable = check("object.status.conditions", ResultKind::Any).unwrap();
    environment.declare("conditions", variable.clone()).unwrap();
    let error = |source: &str, environment: &Environment| {
        let checked = check_in(source, ResultKind::Bool, environment);
        checked.expect_err(source).to_string()
    };
    let expected = "is not a possible value of the field; possible are 'True', 'False'";
    assert!(error("variables.conditions[0].status == 'Tru'", &environment).ends_with(expected));
    let inner = environment.with_item_of(&variable);
    assert!(error("item.status == 'Tru'", &inner).ends_with(expected));
}
