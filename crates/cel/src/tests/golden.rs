//! Tests that values and errors equal the recorded results of cel-go, and that the values do not
//! depend on the projection.

use std::collections::BTreeSet;

use super::*;

/// Beginnings of the expressions whose syntax error has another text or position than in cel-go.
const OTHER_SYNTAX_ERRORS: [&str; 5] = [
    // Our error has the column of the dot. cel-go's error has the column of the identifier.
    "object.`metadata`.name",
    "object.metadata.labels.`a/b`",
    // Our error is "no viable alternative". cel-go's error is "mismatched input".
    "object.null",
    // Our error has the same position as cel-go's error, but lists all tokens that can follow an
    // operand.
    "1 ? 2",
    "true ? true ? true ? ",
];

#[test]
fn values_equal_those_of_cel_go() {
    let golden = Golden::load();
    let mut wrong = Vec::new();
    for (case, program) in golden.compiled() {
        let (phase, value) = phase_and_value(&golden, case, &program, None);
        let same = match &*phase {
            "ok" => case.phase == "ok" && value == case.v,
            "missing" => case.phase == "eval-err" && is_missing(&case.v),
            "eval-err" => case.phase == "eval-err" && !is_missing(&case.v),
            _ => phase == case.phase,
        };
        if !same {
            wrong.push(format!(
                "{} [{}]\n  cel-go: {} {}\n  here:   {phase} {value}",
                case.expr, case.object, case.phase, case.v,
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn compile_errors_have_the_text_and_position_of_cel_go() {
    let golden = Golden::load();
    let mut wrong = Vec::new();
    for (case, program) in golden.compiled() {
        if case.phase != "compile-err" || has_other_syntax_error(&case.expr) {
            continue;
        }
        let error = program.expect_err(&case.expr);
        // The golden file has only the first line of an error.
        let text = format!("ERROR: <input>:{error}");
        if text.lines().next() != Some(&case.v) {
            wrong.push(format!(
                "{}\n  cel-go: {}\n  here:   {text}",
                case.expr, case.v
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} cases differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn projected_and_whole_documents_give_the_same_values() {
    let golden = Golden::load();
    let whole = whole_object();
    for (case, program) in golden.compiled() {
        if case.phase == "badobj" {
            continue;
        }
        assert_eq!(
            phase_and_value(&golden, case, &program, None),
            phase_and_value(&golden, case, &program, Some(&whole)),
            "{} [{}]",
            case.expr,
            case.object
        );
    }
}

#[test]
fn every_expression_has_the_same_value_on_projected_and_whole_objects() {
    let golden = Golden::load();
    let whole = whole_object();
    let programs: Vec<_> = golden
        .compiled()
        .into_iter()
        .filter_map(|(_, program)| program.ok())
        .collect();
    let mut merged = Projection::default();
    for program in &programs {
        // Expressions that read the whole object are left out. With them, the union of the
        // projections would be the whole object.
        if program.projection != whole {
            merged.merge(&program.projection);
        }
    }
    for json in golden.objects.iter().filter(|json| !json.is_empty()) {
        let Ok(all) = Doc::parse(json.as_bytes(), &whole) else {
            continue;
        };
        for program in &programs {
            let expected = evaluate(program, &all, &mut full_budget());
            let own = Doc::parse(json.as_bytes(), &program.projection).unwrap();
            assert_eq!(
                evaluate(program, &own, &mut full_budget()),
                expected,
                "{}",
                program.source
            );
            if program.projection != whole {
                let shared = Doc::parse(json.as_bytes(), &merged).unwrap();
                assert_eq!(
                    evaluate(program, &shared, &mut full_budget()),
                    expected,
                    "{}",
                    program.source
                );
            }
        }
    }
}

/// Evaluates `program` on only those fields of the object that `program` and `items` need. The
/// value of `item` is the last element of the list that `items` returns.
fn evaluate_with_item(
    program: &Program,
    environment: &Environment,
    items: &Program,
    json: &[u8],
) -> Result<String, EvaluationFault> {
    let mut projection = items.items_projection(environment, [program]);
    projection.merge(program.projection());
    let doc = Doc::parse(json, &projection).unwrap();
    let mut budget = full_budget();
    let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
    scope.set_variables(environment);
    let item = items.items(&mut scope)?.pop();
    scope.set_item(item);
    program.run(&mut scope).map(|value| format_value(&value))
}

#[test]
fn the_projection_includes_fields_read_through_variables_and_items() {
    let golden = Golden::load();
    let whole = whole_object();
    let mut environment = Environment::default();
    for (name, source) in [
        ("o", "object"),
        ("meta", "variables.o.metadata"),
        ("spec", "object.spec"),
        ("status", "variables.o.status"),
        ("list", "[variables.o, {'not': 'read'}]"),
    ] {
        let program = super::super::compile(source, ResultKind::Any, &environment).unwrap();
        environment.declare(name, program).unwrap();
    }
    let inner = environment.with_item();
    let items = "[object].filter(x, true)";
    let items = super::super::compile(items, ResultKind::Any, &inner).unwrap();
    let docs: Vec<_> = golden
        .objects
        .iter()
        .filter(|json| !json.is_empty())
        .filter_map(|json| Some((json, Doc::parse(json.as_bytes(), &whole).ok()?)))
        .collect();
    let mut compared = 0;
    for (case, original) in golden.compiled() {
        let Ok(original) = original else {
            continue;
        };
        // Each of these expressions reads the same fields as the original expression, but through a
        // variable or through `item`. So its result must be the same.
        let rewrites: Vec<_> = BTreeSet::from([
            case.expr.replace("object", "variables.o"),
            case.expr.replace("object", "item"),
            case.expr.replace("object", "variables.list[0]"),
            case.expr
                .replace("object.metadata", "variables.meta")
                .replace("object.spec", "variables.spec")
                .replace("object.status", "variables.status"),
        ])
        .into_iter()
        .collect();
        let programs: Vec<_> = compile_all(&rewrites, &inner)
            .into_iter()
            .filter_map(|compiled| Some(Program(Arc::new(compiled.ok()?))))
            .collect();
        for (json, doc) in &docs {
            let expected = evaluate(&original, doc, &mut full_budget());
            for program in &programs {
                let found = evaluate_with_item(program, &environment, &items, json.as_bytes());
                assert_eq!(found, expected, "{}", program.source());
                compared += 1;
            }
        }
    }
    assert!(compared > 5_000, "only {compared} results were compared");
}

fn has_other_syntax_error(source: &str) -> bool {
    OTHER_SYNTAX_ERRORS
        .iter()
        .any(|start| source.starts_with(start))
}

fn is_missing(message: &str) -> bool {
    message.starts_with("no such key") || message.starts_with("index out of bounds")
}

fn phase_and_value(
    golden: &Golden,
    case: &Case,
    program: &Result<Compiled, CompileError>,
    projection: Option<&Projection>,
) -> (String, String) {
    let program = match program {
        Ok(program) => program,
        Err(error) => return ("compile-err".to_owned(), error.to_string()),
    };
    let projection = projection.unwrap_or(&program.projection);
    let doc = match Doc::parse_value(golden.json(case), projection) {
        Ok(doc) => doc,
        Err(error) => return ("badobj".to_owned(), error.to_string()),
    };
    match evaluate(program, &doc, &mut full_budget()) {
        Ok(value) => ("ok".to_owned(), value),
        Err(EvaluationFault::Missing(what)) => ("missing".to_owned(), what.to_string()),
        Err(failure) => ("eval-err".to_owned(), failure.to_string()),
    }
}
