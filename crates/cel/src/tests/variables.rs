//! Tests of the names `variables`, `item` and `now`, and of the budget that expressions share.

use super::*;

const JSON: &str = r#"{
    "metadata": {"name": "plan"},
    "spec": {"replicas": 2, "list": [1, 2]},
    "status": {
        "vms": [
            {"id": "a", "phase": "Done", "noise": [1, 2, 3]},
            {"id": "b", "phase": "Copy", "disks": [{"done": 5, "total": 10}], "noise": [4]},
            {"id": 3, "phase": "Copy", "disks": [], "noise": []}
        ],
        "percent": "45.20%",
        "started": "2026-11-21T07:59:46Z"
    }
}"#;

/// Evaluates the `sources` one after another in one scope. Returns the outcomes and the number of
/// steps.
fn evaluate_together(sources: &[&str], environment: &Environment) -> (Vec<String>, u64) {
    let compile = |source: &&str| crate::compile(source, ResultKind::Any, environment).unwrap();
    let programs: Vec<_> = sources.iter().map(compile).collect();
    let doc = Doc::parse(JSON.as_bytes(), &whole_object()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
    scope.set_variables(environment);
    let outcomes = programs
        .iter()
        .map(|program| match program.run(&mut scope) {
            Ok(value) => format_value(&value),
            Err(fault) => fault.to_string(),
        });
    let outcomes = outcomes.collect();
    (outcomes, STEPS_PER_OBJECT - scope.budget.left)
}

#[test]
fn unknown_names_are_rejected_with_their_position() {
    let environment = environment(&[("count", "1")]);
    for (source, expected) in rows(
        r"
        item.x == 1         => 1:1: undeclared reference to 'item' (in container '')
        true &&\n item      => 2:2: undeclared reference to 'item' (in container '')
        variables           => 1:1: 'variables' has no value; select one variable, as in variables.name
        variables['count']  => 1:1: 'variables' has no value; select one variable, as in variables.name
        variables.x         => 1:10: undefined field 'x'
        object.a ==         => 1:12: Syntax error
        \n\n  (1            => 3:5: Syntax error
        ",
    ) {
        let error = crate::compile(&source, ResultKind::Any, &environment).unwrap_err();
        assert!(error.to_string().starts_with(expected), "{source}: {error}");
    }
}

#[test]
fn variable_names_are_unique_identifiers() {
    let mut environment = environment(&[("a", "1")]);
    let one = crate::compile("1", ResultKind::Any, &environment).unwrap();
    for name in [
        "",
        "1",
        "1a",
        "a-b",
        "a.b",
        ".a",
        "é",
        "in",
        "null",
        "for",
        "namespace",
    ] {
        let refused = Err(DeclareError::Name(name.to_owned()));
        assert_eq!(environment.declare(name, one.clone()), refused);
    }
    let twice = Err(DeclareError::Twice("a".to_owned()));
    assert_eq!(environment.declare("a", one.clone()), twice);
    let of_item = crate::compile("item.x", ResultKind::Any, &environment.with_item()).unwrap();
    let reads_item = Err(DeclareError::Item("b".to_owned()));
    assert_eq!(environment.declare("b", of_item), reads_item);
    environment.declare("_b1", one).unwrap();
}

#[test]
fn a_variable_is_evaluated_once_and_every_expression_that_reads_it_has_its_error() {
    let environment = environment(&[
        ("costly", "object.status.vms.map(v, v.id)"),
        ("failing", "object.status.nowhere"),
        ("wrong", "object.status.percent + 1"),
    ]);
    let evaluate = |sources: &[&str]| evaluate_together(sources, &environment);
    // The program takes one step, the variable takes one step, and the three elements of the
    // variable's list take three steps.
    assert_eq!(evaluate(&["size(variables.costly)"]).1, 5);
    let twice = "size(variables.costly) == size(variables.costly)";
    assert_eq!(evaluate(&[twice, twice]).1, 6);
    let all = [
        "variables.failing",
        "variables.failing",
        "variables.wrong",
        "variables.failing == 1 || true",
    ];
    let missing = "no such key: nowhere";
    let wrong = "variables.wrong: 1:23: no such overload: string + int";
    let (outcomes, cost) = evaluate(&all);
    assert_eq!(outcomes, [missing, missing, wrong, "bool:true"]);
    assert_eq!(cost, 6);
}

#[test]
fn expressions_on_one_object_share_its_budget() {
    let program = compile("object.spec.list.all(x, x > 0)", ResultKind::Bool).unwrap();
    let doc = Doc::parse(JSON.as_bytes(), program.projection()).unwrap();
    let mut budget = Budget { left: 5 };
    let mut evaluate = || program.test(&mut EvaluationScope::new(&doc, now(), &mut budget));
    // An evaluation takes three steps: one for the program, and one for each of two elements.
    assert_eq!(evaluate(), Ok(true));
    assert_eq!(evaluate(), Err(EvaluationFault::Budget));
    assert_eq!(evaluate(), Err(EvaluationFault::Budget));
}

#[test]
fn a_new_environment_replaces_the_values_of_variables() {
    let [one, two] = ["1", "2"].map(|value| environment(&[("a", value)]));
    let program = crate::compile("variables.a", ResultKind::Any, &one).unwrap();
    let doc = Doc::parse(b"{}", program.projection()).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
    assert!(program.value(&mut scope).is_err());
    scope.set_variables(&one);
    assert_eq!(program.value(&mut scope).unwrap().value, 1);
    scope.set_variables(&two);
    assert_eq!(program.value(&mut scope).unwrap().value, 2);
}

/// Each expression is evaluated twice. The second evaluation reads the cached results of the
/// variables, which also counts as a read of `now`.
#[test]
fn an_evaluation_that_reads_now_directly_or_through_a_variable_is_recorded() {
    let environment = environment(&[
        ("fresh", "object.spec.replicas == 2 || now > timestamp(0)"),
        ("age", "now - timestamp(object.status.started)"),
        ("old", "variables.age > duration('10s')"),
    ]);
    for (source, expected) in rows(
        r#"
        string(now)                              => may read, read, "2026-11-21T08:00:00Z"
        now > timestamp(0) && object.nowhere == 1 => may read, read, no such key: nowhere
        object.spec.replicas == 2 || now > timestamp(0) => may read, not read, true
        object.spec.replicas                     => cannot read, not read, 2
        variables.fresh                          => may read, not read, true
        variables.old                            => may read, read, true
        "#,
    ) {
        let kind = ResultKind::Any;
        evaluate_in(JSON, &source, kind, &environment, |program, scope| {
            for _ in 0..2 {
                scope.read_now = false;
                let value = program.value(scope).map(|value| value.value.to_string());
                let value = value.unwrap_or_else(|fault| fault.to_string());
                let may = if program.reads_now() { "may" } else { "cannot" };
                let has = if scope.read_now { "" } else { "not " };
                assert_eq!(
                    format!("{may} read, {has}read, {value}"),
                    expected,
                    "{source}"
                );
            }
        });
    }
}

#[test]
fn each_item_is_visible_as_item_to_other_expressions() {
    let environment = environment(&[("copying", "object.status.vms.filter(v, v.phase == 'Copy')")]);
    let inner = environment.with_item();
    let compile = |source, kind| crate::compile(source, kind, &inner).unwrap();
    let each = crate::compile("variables.copying", ResultKind::List, &environment).unwrap();
    let key = compile("item.id", ResultKind::Key);
    let text = "'%s of %d'.format([item.id, size(variables.copying)])";
    let text = compile(text, ResultKind::String);
    let progress = "double(item.disks[0].done) * 100.0 / double(item.disks[0].total)";
    let progress = compile(progress, ResultKind::Progress);
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
        let doc = Doc::parse(JSON.as_bytes(), projection).unwrap();
        let mut budget = full_budget();
        let mut scope = EvaluationScope::new(&doc, now(), &mut budget);
        scope.set_variables(&environment);
        assert!(key.key(&mut scope).is_err());
        let mut seen = Vec::new();
        for item in each.items(&mut scope).unwrap() {
            scope.set_item(Some(item));
            let text = text.text(&mut scope).unwrap();
            let progress = match progress.progress(&mut scope) {
                Ok(progress) => format!("{progress:?}"),
                Err(fault) => fault.to_string(),
            };
            seen.push(format!(
                "{}: {text}, {progress}",
                key.key(&mut scope).unwrap()
            ));
        }
        assert_eq!(seen, ["b: b of 2, Some(50)", "3: 3 of 2, no such key: 0"]);
        scope.set_item(None);
        assert!(key.key(&mut scope).is_err());
    }
}

#[test]
fn a_read_of_a_field_of_item_is_known() {
    let environment = Environment::default().with_item();
    for (source, expected) in rows(
        "
        item                              => false
        item == 'a' && object.name == 'b' => false
        has(item.started)                 => true
        item['a-b'] == 1                  => true
        [item].exists(i, i.name == 'a')   => true
        ",
    ) {
        let program = crate::compile(&source, ResultKind::Any, &environment).unwrap();
        assert_eq!(
            program.reads_field_of_item().to_string(),
            expected,
            "{source}"
        );
    }
}
