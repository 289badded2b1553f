//! Tests of the names `variables` and `item`, and of the conversion of results.

use super::*;

const JSON: &[u8] = br#"{
    "metadata": {"name": "plan"},
    "spec": {"replicas": 2},
    "status": {
        "vms": [
            {"id": "a", "phase": "Done", "noise": [1, 2, 3]},
            {"id": "b", "phase": "Copy", "disks": [{"done": 5, "total": 10}], "noise": [4]},
            {"id": 3, "phase": "Copy", "disks": [], "noise": []}
        ],
        "percent": "45.20%",
        "started": "2026-11-21T07:59:46+01:00",
        "empty": "",
        "zero": null
    }
}"#;

fn now() -> Timestamp {
    "2026-11-21T08:00:00Z".parse().unwrap()
}

/// Returns an environment with these variables. Each variable is a pair of a name and an
/// expression.
fn environment(variables: &[(&str, &str)]) -> Environment {
    let mut environment = Environment::default();
    for (name, source) in variables {
        let program = crate::compile(source, ResultKind::Any, &environment)
            .unwrap_or_else(|error| panic!("{source}: {error}"));
        environment.declare(name, program).unwrap();
    }
    environment
}

/// Compiles `source` with the names in `environment`.
fn compile_with(
    source: &str,
    kind: ResultKind,
    environment: &Environment,
) -> Result<Program, CompileError> {
    crate::compile(source, kind, environment)
}

/// Compiles and evaluates an expression on [`JSON`]. Returns the value as JSON.
fn evaluate_to_json(source: &str, environment: &Environment) -> Result<String, EvaluationFault> {
    let program = compile_with(source, ResultKind::Any, environment).unwrap();
    let doc = Doc::parse(JSON, program.projection()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
    scope.set_variables(environment);
    program
        .value(&mut scope)
        .map(|answer| answer.value.to_string())
}

#[test]
fn variables_have_their_values_and_later_ones_use_earlier_ones() {
    let environment = environment(&[
        ("vms", "object.status.vms"),
        ("copying", "variables.vms.filter(v, v.phase == 'Copy')"),
        ("count", "size(variables.copying)"),
    ]);
    for (source, expected) in [
        ("variables.count", "2"),
        ("variables.count + variables.count", "4"),
        ("variables.copying.map(v, v.id)", "[\"b\",3]"),
        ("variables.vms[0].id", "\"a\""),
        (".variables.count == 2", "true"),
        ("has(variables.count)", "true"),
        ("variables.?count.orValue(0)", "2"),
        ("[1].map(variables, variables)", "[1]"),
        ("[{'count': 7}].map(variables, variables.count)", "[7]"),
        // As in cel-go, the name with a leading dot also means the variable of the comprehension.
        ("[{'count': 7}].map(variables, .variables.count)", "[7]"),
    ] {
        assert_eq!(
            evaluate_to_json(source, &environment),
            Ok(expected.to_owned()),
            "{source}"
        );
    }
}

#[test]
fn unknown_names_are_rejected_with_their_position() {
    let environment = environment(&[("count", "1"), ("name", "object.metadata.name")]);
    for (source, expected) in [
        ("variables.x", "1:10: undefined field 'x'"),
        (
            "item.x == 1",
            "1:1: undeclared reference to 'item' (in container '')",
        ),
        (
            "true &&\n item",
            "2:2: undeclared reference to 'item' (in container '')",
        ),
        (
            "variables",
            "1:1: 'variables' has no value; select one variable, as in variables.name",
        ),
        ("has(variables.other)", "1:4: undefined field 'other'"),
        ("variables.?other", "1:10: undefined field 'other'"),
        (
            "variables['count']",
            "1:1: 'variables' has no value; select one variable, as in variables.name",
        ),
        (
            "variables.count + 'a'",
            "1:17: found no matching overload for '_+_' applied to '(int, string)'",
        ),
        (
            "variables.count.x",
            "1:16: type 'int' does not support field selection",
        ),
    ] {
        let error = compile_with(source, ResultKind::Any, &environment).unwrap_err();
        assert_eq!(error.to_string(), expected, "{source}");
    }
    // The error is the same if no variable is declared.
    let error = compile_with("variables.x", ResultKind::Any, &Environment::default()).unwrap_err();
    assert_eq!(error.message, "undefined field 'x'");
    assert!(compile_with("variables.count", ResultKind::Bool, &environment).is_err());
    assert!(compile_with("variables.name", ResultKind::Bool, &environment).is_ok());
}

#[test]
fn variable_names_are_unique_identifiers() {
    let mut environment = environment(&[("a", "1")]);
    let one = compile_with("1", ResultKind::Any, &environment).unwrap();
    for name in ["", "1a", "a-b", "a.b", "é", "in", "null", "for"] {
        assert_eq!(
            environment.declare(name, one.clone()),
            Err(DeclareError::Name(name.to_owned()))
        );
    }
    assert_eq!(
        environment.declare("a", one.clone()),
        Err(DeclareError::Twice("a".to_owned()))
    );
    let of_item = compile_with("item.x", ResultKind::Any, &environment.with_item()).unwrap();
    assert_eq!(
        environment.declare("b", of_item),
        Err(DeclareError::Item("b".to_owned()))
    );
    environment.declare("_b1", one).unwrap();
}

#[test]
fn a_variable_is_evaluated_once_and_every_expression_that_reads_it_has_its_error() {
    let environment = environment(&[
        ("costly", "object.status.vms.map(v, v.id)"),
        ("failing", "object.status.nowhere"),
        ("wrong", "object.status.percent + 1"),
    ]);
    let spent = |sources: &[&str]| {
        let programs: Vec<_> = sources
            .iter()
            .map(|source| compile_with(source, ResultKind::Any, &environment).unwrap())
            .collect();
        let mut projection = Projection::default();
        for program in &programs {
            projection.merge(program.projection());
        }
        let doc = Doc::parse(JSON, &projection).unwrap();
        let mut budget = full_budget();
        let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
        scope.set_variables(&environment);
        let outcomes: Vec<_> = programs
            .iter()
            .map(|program| program.run(&mut scope).map(|value| format_value(&value)))
            .collect();
        (outcomes, STEPS_PER_OBJECT - scope.budget.left)
    };
    // The program takes one step, the variable takes one step, and the three elements of the
    // variable's list take three steps.
    assert_eq!(spent(&["size(variables.costly)"]).1, 5);
    let twice = "size(variables.costly) == size(variables.costly)";
    assert_eq!(spent(&[twice, twice]).1, 6);
    let (outcomes, cost) = spent(&["variables.failing", "variables.failing", "variables.wrong"]);
    let missing = Err(EvaluationFault::Missing(MissingKey::spelled("nowhere")));
    assert_eq!(outcomes[0], missing);
    assert_eq!(outcomes[1], missing);
    assert!(matches!(outcomes[2], Err(EvaluationFault::Error(_))));
    assert_eq!(cost, 5);
    let (outcomes, _) = spent(&["variables.failing == 1 || true"]);
    assert_eq!(outcomes[0], Ok("bool:true".to_owned()));
}

#[test]
fn a_new_environment_replaces_the_values_of_variables() {
    let one = environment(&[("a", "1")]);
    let two = environment(&[("a", "2")]);
    let program = compile_with("variables.a", ResultKind::Any, &one).unwrap();
    let doc = Doc::parse(JSON, program.projection()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
    assert!(program.value(&mut scope).is_err());
    scope.set_variables(&one);
    assert_eq!(program.value(&mut scope).unwrap().value, 1);
    scope.set_variables(&two);
    assert_eq!(program.value(&mut scope).unwrap().value, 2);
}

#[test]
fn every_expression_that_uses_a_variable_that_reads_now_depends_on_time() {
    let environment = environment(&[
        ("fresh", "object.spec.replicas == 2 || now > timestamp(0)"),
        ("age", "now - timestamp(object.status.started)"),
        ("old", "variables.age > duration('1m')"),
    ]);
    let reads = |source: &str| {
        let program = compile_with(source, ResultKind::Any, &environment).unwrap();
        (program.reads_now(), program)
    };
    assert!(!reads("object.spec.replicas").0);
    assert!(reads("variables.fresh").0);
    assert!(reads("variables.old").0);
    let old = reads("variables.old").1;
    let fresh = reads("variables.fresh").1;
    let mut projection = old.projection().clone();
    projection.merge(fresh.projection());
    let doc = Doc::parse(JSON, &projection).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
    scope.set_variables(&environment);
    assert_eq!(fresh.value(&mut scope).unwrap().value, true);
    assert!(!scope.read_now);
    assert_eq!(old.value(&mut scope).unwrap().value, true);
    assert!(scope.read_now);
    // If an expression reads the cached result of a variable, this also counts as a read of `now`.
    scope.read_now = false;
    assert_eq!(old.value(&mut scope).unwrap().value, true);
    assert!(scope.read_now);
}

#[test]
fn the_projection_has_exactly_the_fields_that_used_variables_read() {
    let environment = environment(&[
        ("status", "object.status"),
        ("vms", "variables.status.vms"),
        ("unused", "object"),
    ]);
    let projection = |source: &str| {
        compile_with(source, ResultKind::Any, &environment)
            .unwrap()
            .projection()
            .clone()
    };
    let mut expected = Projection::default();
    expected.add(&["status", "vms", "*", "id"]);
    assert_eq!(projection("variables.vms.exists(v, v.id == 'a')"), expected);
    // This expression reads two variables.
    let mut expected = Projection::default();
    expected.add(&["status", "percent"]);
    expected.add(&["status", "vms", "*", "id"]);
    assert_eq!(
        projection("variables.vms.exists(v, v.id == variables.status.percent)"),
        expected
    );
}

#[test]
fn each_item_is_visible_as_item_to_other_expressions() {
    let environment = environment(&[("copying", "object.status.vms.filter(v, v.phase == 'Copy')")]);
    let inner = environment.with_item();
    let each = compile_with("variables.copying", ResultKind::List, &environment).unwrap();
    let key = compile_with("item.id", ResultKind::Key, &inner).unwrap();
    let text = "'%s of %d'.format([item.id, size(variables.copying)])";
    let text = compile_with(text, ResultKind::String, &inner).unwrap();
    let progress = "double(item.disks[0].done) * 100.0 / double(item.disks[0].total)";
    let progress = compile_with(progress, ResultKind::Progress, &inner).unwrap();
    let readers = [&key, &text, &progress];
    let narrow = each.items_projection(&environment, readers);
    let mut expected = Projection::default();
    for field in ["phase", "id"] {
        expected.add(&["status", "vms", "*", field]);
    }
    for field in ["done", "total"] {
        expected.add(&["status", "vms", "*", "disks", "*", field]);
    }
    assert_eq!(narrow, expected);
    let mut projections = [narrow, each.projection().clone()];
    for projection in &mut projections {
        for reader in readers {
            projection.merge(reader.projection());
        }
        let doc = Doc::parse(JSON, projection).unwrap();
        let mut budget = full_budget();
        let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
        scope.set_variables(&environment);
        assert!(key.key(&mut scope).is_err());
        let mut seen = Vec::new();
        for item in each.items(&mut scope).unwrap() {
            scope.set_item(Some(item));
            seen.push((
                key.key(&mut scope).unwrap(),
                text.text(&mut scope).unwrap(),
                progress.progress(&mut scope),
            ));
        }
        let of = |id: &str, progress| (id.to_owned(), format!("{id} of 2"), progress);
        assert_eq!(
            seen,
            [
                of("b", Ok(Some(50))),
                of("3", Err(EvaluationFault::Missing(MissingKey::spelled("0"))))
            ]
        );
        scope.set_item(None);
        assert!(key.key(&mut scope).is_err());
    }
}

#[test]
fn items_come_from_lists_only_and_are_limited_by_the_budget() {
    let program = compile_with("object.l", ResultKind::List, &Environment::default()).unwrap();
    let items = |json: &str, left: u64| {
        let doc = Doc::parse(json.as_bytes(), program.projection()).unwrap();
        let mut budget = Budget { left };
        let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
        program.items(&mut scope).map(|items| items.len())
    };
    assert_eq!(items(r#"{"l":[1,2,3]}"#, 4), Ok(3));
    assert_eq!(items(r#"{"l":[1,2,3]}"#, 3), Err(EvaluationFault::Budget));
    let failure = items(r#"{"l":{"a":1}}"#, 9).unwrap_err().to_string();
    assert_eq!(failure, "1:7: expected type 'list' but found 'map'");
}

#[test]
fn each_result_kind_accepts_only_the_types_it_can_use() {
    let all = [
        "true", "'a'", "1", "1u", "1.5", "now", "[1]", "{'a': 1}", "b'x'", "object.x",
    ];
    for (kind, accepted) in [
        (ResultKind::Bool, &["true", "object.x"][..]),
        (ResultKind::String, &["'a'", "object.x"]),
        (ResultKind::Progress, &["'a'", "1", "1u", "1.5", "object.x"]),
        (ResultKind::Time, &["'a'", "now", "object.x"]),
        (ResultKind::List, &["[1]", "object.x"]),
        (ResultKind::Key, &["'a'", "1", "1u", "object.x"]),
        (ResultKind::Any, &all),
    ] {
        for source in all {
            let compiled = compile(source, kind);
            assert_eq!(
                compiled.is_ok(),
                accepted.contains(&source),
                "{source} as {kind:?}"
            );
        }
    }
    assert_eq!(
        compile("[1]", ResultKind::Progress)
            .unwrap_err()
            .to_string(),
        "1:1: expected type 'number or string' but found 'list(int)'"
    );
}

/// Evaluates an expression on [`JSON`] with `method`, which converts the result to `kind`.
fn evaluate_as<T>(
    source: &str,
    kind: ResultKind,
    method: impl FnOnce(&Program, &mut EvaluationScope<'_>) -> Result<T, EvaluationFault>,
) -> Result<T, EvaluationFault> {
    let program = compile(source, kind).unwrap();
    let doc = Doc::parse(JSON, program.projection()).unwrap();
    let mut budget = full_budget();
    method(
        &program,
        &mut EvaluationScope::new(&doc, now(), &mut budget),
    )
}

#[test]
fn progress_is_a_whole_number_of_percent_if_it_is_a_number() {
    for (source, expected) in [
        ("object.status.percent", Some(45)),
        ("'45.99'", Some(45)),
        ("' 45 % '", Some(45)),
        ("'100%'", Some(100)),
        ("'+7'", Some(7)),
        ("7", Some(7)),
        ("7u", Some(7)),
        ("99.999", Some(99)),
        ("-5", Some(0)),
        ("-0.5", Some(0)),
        ("'-5%'", Some(0)),
        ("1000", Some(100)),
        ("9223372036854775807", Some(100)),
        ("'N/A'", None),
        ("'%'", None),
        ("'NaN'", None),
        ("'inf'", None),
        ("'1e1'", None),
        ("'45%%'", None),
        ("object.status.empty", None),
        ("object.status.zero", None),
    ] {
        let progress = evaluate_as(source, ResultKind::Progress, Program::progress);
        assert_eq!(progress, Ok(expected), "{source}");
    }
    for source in ["0.0 / 0.0", "1.0 / 0.0", "object.status", "dyn(true)"] {
        let progress = evaluate_as(source, ResultKind::Progress, Program::progress);
        assert!(
            matches!(progress, Err(EvaluationFault::Error(_))),
            "{source}"
        );
    }
}

#[test]
fn times_are_timestamps_or_rfc_3339() {
    let started: Timestamp = "2026-11-21T06:59:46Z".parse().unwrap();
    for (source, expected) in [
        ("object.status.started", Some(started)),
        ("timestamp(object.status.started)", Some(started)),
        ("now", Some(now())),
        ("object.status.empty", None),
        ("object.status.zero", None),
    ] {
        let time = evaluate_as(source, ResultKind::Time, Program::time);
        assert_eq!(time, Ok(expected), "{source}");
    }
    for source in [
        "object.status.percent",
        "'2026-11-21'",
        "object.spec.replicas",
        "'9999-12-31T23:59:59Z'",
    ] {
        let time = evaluate_as(source, ResultKind::Time, Program::time);
        assert!(matches!(time, Err(EvaluationFault::Error(_))), "{source}");
    }
    let missing = evaluate_as("object.status.nowhere", ResultKind::Time, Program::time);
    assert!(matches!(missing, Err(EvaluationFault::Missing(_))));
}

#[test]
fn values_are_displayed_as_json_with_their_type() {
    for (source, name, json) in [
        ("object.spec", "map", r#"{"replicas":2}"#),
        ("1u", "uint", "1"),
        ("1.5", "double", "1.5"),
        ("0.0 / 0.0", "double", r#""NaN""#),
        ("b'abc'", "bytes", r#""YWJj""#),
        ("null", "null_type", "null"),
        ("int", "type", r#""int""#),
        (
            "now",
            "google.protobuf.Timestamp",
            r#""2026-11-21T08:00:00Z""#,
        ),
        ("duration('90s')", "google.protobuf.Duration", r#""90s""#),
        (
            "quantity('1.5Gi')",
            "kubernetes.Quantity",
            r#""1610612736""#,
        ),
        ("quantity('-250m')", "kubernetes.Quantity", r#""-0.25""#),
        ("quantity('1e2000')", "kubernetes.Quantity", r#""1e2000""#),
        ("{1: [true, 'x']}", "map", r#"{"1":[true,"x"]}"#),
    ] {
        let answer = evaluate_as(source, ResultKind::Any, Program::value).unwrap();
        assert_eq!(answer.type_name, name, "{source}");
        assert_eq!(answer.value.to_string(), json, "{source}");
    }
}

#[test]
fn only_a_single_string_is_a_literal() {
    let literal = |source: &str| {
        let program = compile(source, ResultKind::Any).unwrap();
        program.literal().map(str::to_owned)
    };
    assert_eq!(literal("'Blocked'"), Some("Blocked".to_owned()));
    assert_eq!(literal("('Blocked')"), Some("Blocked".to_owned()));
    assert_eq!(literal("'a' + 'b'"), None);
    assert_eq!(literal("1"), None);
    assert_eq!(literal("object.x"), None);
}
