use std::collections::BTreeSet;

use super::*;

/// Beginnings of syntax errors whose text or position differs from cel-go's.
const WORDED_OTHERWISE: [&str; 5] = [
    // The column of the dot, instead of the identifier.
    "object.`metadata`.name",
    "object.metadata.labels.`a/b`",
    // "no viable alternative" for "mismatched input".
    "object.null",
    // At the same position, but with all tokens that can follow an operand.
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
        "{} differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn compile_errors_have_the_text_and_position_of_cel_go() {
    let golden = Golden::load();
    let mut wrong = Vec::new();
    for (case, program) in golden.compiled() {
        if case.phase != "compile-err" || is_worded_otherwise(&case.expr) {
            continue;
        }
        let error = program.expect_err(&case.expr);
        // The golden file has only the first line.
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
        "{} differ\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn projected_and_whole_documents_give_the_same_values() {
    let golden = Golden::load();
    let whole = whole();
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
    let whole = whole();
    let programs: Vec<_> = golden
        .compiled()
        .into_iter()
        .filter_map(|(_, program)| program.ok())
        .collect();
    let mut merged = Projection::default();
    for program in &programs {
        // An expression that reads the whole object would hide the projections of the others.
        if program.projection != whole {
            merged.merge(&program.projection);
        }
    }
    for json in golden.objects.iter().filter(|json| !json.is_empty()) {
        let Ok(all) = Doc::parse(json.as_bytes(), &whole) else {
            continue;
        };
        for program in &programs {
            let expected = answer(program, &all, &mut full());
            let own = Doc::parse(json.as_bytes(), &program.projection).unwrap();
            assert_eq!(
                answer(program, &own, &mut full()),
                expected,
                "{}",
                program.source
            );
            if program.projection != whole {
                let shared = Doc::parse(json.as_bytes(), &merged).unwrap();
                assert_eq!(
                    answer(program, &shared, &mut full()),
                    expected,
                    "{}",
                    program.source
                );
            }
        }
    }
}

/// Evaluates with only the fields that `program` and its list of items need.
fn through(
    program: &Program,
    environment: &Environment,
    items: &Program,
    json: &[u8],
) -> Result<String, EvaluationFault> {
    let mut projection = items.items_projection(environment, [program]);
    projection.merge(program.projection());
    let doc = Doc::parse(json, &projection).unwrap();
    let mut budget = full();
    let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
    scope.set_variables(environment);
    let item = items.items(&mut scope)?.pop();
    scope.set_item(item);
    program.run(&mut scope).map(|value| print(&value))
}

#[test]
fn the_projection_includes_fields_read_through_variables_and_items() {
    let golden = Golden::load();
    let whole = whole();
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
        // They are equal if the expression does not name the replaced part.
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
        let programs: Vec<_> = all(&rewrites, &inner)
            .into_iter()
            .filter_map(|compiled| Some(Program(Arc::new(compiled.ok()?))))
            .collect();
        for (json, doc) in &docs {
            let expected = answer(&original, doc, &mut full());
            for program in &programs {
                let found = through(program, &environment, &items, json.as_bytes());
                assert_eq!(found, expected, "{}", program.source());
                compared += 1;
            }
        }
    }
    assert!(compared > 5_000, "{compared} compared");
}

fn is_worded_otherwise(source: &str) -> bool {
    WORDED_OTHERWISE
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
    match answer(program, &doc, &mut full()) {
        Ok(value) => ("ok".to_owned(), value),
        Err(EvaluationFault::Missing(what)) => ("missing".to_owned(), what.to_string()),
        Err(failure) => ("eval-err".to_owned(), failure.to_string()),
    }
}
