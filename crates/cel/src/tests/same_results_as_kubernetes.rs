//! Tests that this crate evaluates CEL expressions with the same results as Kubernetes. The program
//! in `tests/cel-oracle` has recorded the answers of Kubernetes in
//! `tests/golden/kubernetes-cel/answers.jsonl`. An [`Answer`] contains an expression, the variables
//! that it can read, and its result: a value or an error.
//!
//! Other tests check that a result does not depend on the projection: the set of fields of the
//! object that are decoded.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::answers::{Answer, PolicyVariable, class, class_here, declare, has_same_text};
use super::differences::{DIFFERENCES, Difference, has_excluded_text};
use super::*;

/// The first line of the file of answers.
#[derive(Deserialize)]
struct Header {
    names: Vec<String>,
    /// JSON texts.
    objects: Vec<String>,
}

/// The recorded answers of Kubernetes, with their compiled expressions.
pub(super) struct Answers {
    names: Vec<String>,
    /// JSON texts.
    pub objects: Vec<String>,
    cases: Vec<Answer>,
    compiled: Vec<Result<Program, CompileError>>,
    /// The environment for each list of variables that occurs in an answer.
    environments: BTreeMap<Vec<PolicyVariable>, Environment>,
}

impl Answers {
    /// Returns the answers. Their expressions are compiled once for all tests.
    pub fn load() -> &'static Self {
        static ANSWERS: LazyLock<Answers> = LazyLock::new(Answers::compile);
        &ANSWERS
    }

    fn compile() -> Self {
        let text = include_str!("../../../../tests/golden/kubernetes-cel/answers.jsonl");
        let mut lines = text.lines();
        let header: Header = serde_json::from_str(lines.next().unwrap()).unwrap();
        let answers: Vec<Answer> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let mut environments = BTreeMap::new();
        for answer in &answers {
            if !environments.contains_key(&answer.variables) {
                environments.insert(answer.variables.clone(), declare(&answer.variables));
            }
        }
        let mut compiled: Vec<Option<Result<Program, CompileError>>> = Vec::new();
        compiled.resize_with(answers.len(), || None);
        for (variables, environment) in &environments {
            let of_environment = || {
                let all = answers.iter().enumerate();
                all.filter(|(_, answer)| answer.variables == *variables)
            };
            let sources: Vec<_> = of_environment().map(|(_, answer)| &answer.expr).collect();
            let programs = compile_all(&sources, environment);
            for ((index, _), program) in of_environment().zip(programs) {
                compiled[index] = Some(program.map(|program| Program(Arc::new(program))));
            }
        }
        Self {
            names: header.names,
            // A kube-apiserver decodes an object before it sends the object. Thereby it replaces a lone
            // surrogate by U+FFFD, so our decoder does not accept lone surrogates.
            objects: (header.objects.iter())
                .map(|object| object.replace(r#""\ud800""#, r#""\ufffd""#))
                .collect(),
            cases: answers,
            compiled: compiled.into_iter().flatten().collect(),
            environments,
        }
    }

    fn iter(&self) -> impl Iterator<Item = (&Answer, &Result<Program, CompileError>)> {
        self.cases.iter().zip(&self.compiled)
    }

    /// Returns the JSON text of an object.
    pub fn object_named(&self, name: &str) -> &str {
        let at = self.names.iter().position(|own| own == name).unwrap();
        &self.objects[at]
    }

    /// Evaluates the expression of an answer on the fields of the object that it reads.
    fn evaluate(&self, answer: &Answer, program: &Program) -> Result<String, EvaluationFault> {
        let json = answer.object.map_or("null", |at| &self.objects[at]);
        let doc = Doc::parse_value(json.as_bytes(), program.projection()).unwrap();
        let mut budget = full_budget();
        let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
        scope.set_variables(&self.environments[&answer.variables]);
        program.run(&mut scope).map(|value| format_value(&value))
    }
}

#[test]
fn answers_equal_those_of_kubernetes() {
    let answers = Answers::load();
    let mut wrong: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut intended: BTreeMap<&str, usize> = BTreeMap::new();
    let mut named_keys = 0;
    for (answer, program) in answers.iter() {
        let found = match program {
            Err(_) => "compile-err".to_owned(),
            Ok(program) => class_here(answers.evaluate(answer, program)),
        };
        let expected = class(answer);
        // A computed key can be a value of the object, so our answer does not contain the key.
        if found == expected || found == "missing" && expected.starts_with("missing") {
            named_keys += usize::from(found.starts_with("missing: "));
            continue;
        }
        let mut known = DIFFERENCES.iter();
        if let Some(difference) = known.find(|known| (known.applies)(answer, &found)) {
            *intended.entry(difference.reason).or_default() += 1;
        } else {
            let error = program.as_ref().err().map(ToString::to_string);
            wrong.entry(&answer.topic).or_default().push(format!(
                "{} [{:?}]\n  Kubernetes: {expected} ({})\n  here:       {found} {}",
                answer.expr,
                answer.object,
                answer.v,
                error.unwrap_or_default(),
            ));
        }
    }
    assert_none(&wrong, answers.cases.len());
    for Difference { reason, .. } in DIFFERENCES {
        assert!(
            intended.contains_key(reason),
            "known difference no longer occurs: {reason}"
        );
    }
    assert!(answers.cases.len() > 3_000);
    assert!(
        named_keys > 500,
        "only {named_keys} missing keys were compared"
    );
}

fn assert_none(wrong: &BTreeMap<&str, Vec<String>>, all: usize) {
    let report: Vec<_> = wrong
        .iter()
        .map(|(topic, cases)| format!("{topic}: {}\n{}", cases.len(), cases.join("\n")))
        .collect();
    let count: usize = wrong.values().map(Vec::len).sum();
    assert!(
        wrong.is_empty(),
        "{count} of {all} answers differ\n{}",
        report.join("\n\n")
    );
}

#[test]
fn compile_errors_have_the_text_and_position_of_cel_go() {
    let answers = Answers::load();
    let mut wrong: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    let mut compared = 0;
    for (answer, program) in answers.iter() {
        let Err(error) = program else { continue };
        if answer.phase != "compile-err"
            || !answer.v.starts_with("ERROR: <input>:")
            || has_excluded_text(answer)
        {
            continue;
        }
        compared += 1;
        if !has_same_text(answer, error) {
            wrong.entry(&answer.topic).or_default().push(format!(
                "{}\n  Kubernetes: {}\n  here:       {error}",
                answer.expr, answer.v
            ));
        }
    }
    assert_none(&wrong, compared);
    assert!(compared > 2_000, "only {compared} errors were compared");
}

/// Returns the expressions that read `object` and were recorded without declared variables. Each
/// expression occurs once.
pub(super) fn object_expressions(answers: &Answers) -> Vec<(&str, &Program)> {
    let mut seen = BTreeSet::new();
    let mut expressions = Vec::new();
    for (answer, program) in answers.iter() {
        if let Ok(program) = program
            && answer.variables.is_empty()
            && answer.expr.contains("object")
            && seen.insert(&answer.expr)
        {
            expressions.push((answer.expr.as_str(), program));
        }
    }
    expressions
}

#[test]
fn every_expression_has_the_same_value_on_projected_and_whole_objects() {
    let answers = Answers::load();
    let whole = whole_object();
    let expressions = object_expressions(answers);
    let mut merged = Projection::default();
    for (_, program) in &expressions {
        // This union of projections leaves out expressions that read the whole object. With them,
        // the union would be the whole object.
        if *program.projection() != whole {
            merged.merge(program.projection());
        }
    }
    let evaluate = |program: &Program, doc: &Doc<'_>| {
        let mut budget = full_budget();
        let mut scope = EvaluationScope::new(doc, Timestamp::UNIX_EPOCH, &mut budget);
        program.run(&mut scope).map(|value| format_value(&value))
    };
    for json in &answers.objects {
        let Ok(all) = Doc::parse(json.as_bytes(), &whole) else {
            continue;
        };
        let shared = Doc::parse(json.as_bytes(), &merged).unwrap();
        for (source, program) in &expressions {
            let expected = evaluate(program, &all);
            let own = Doc::parse(json.as_bytes(), program.projection()).unwrap();
            assert_eq!(evaluate(program, &own), expected, "{source}");
            if *program.projection() != whole {
                assert_eq!(evaluate(program, &shared), expected, "{source}");
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
    let answers = Answers::load();
    let whole = whole_object();
    let environment = environment(&[
        ("o", "object"),
        ("meta", "variables.o.metadata"),
        ("spec", "object.spec"),
        ("status", "variables.o.status"),
        ("list", "[variables.o, {'not': 'read'}]"),
    ]);
    let inner = environment.with_item();
    let items = "[object].filter(x, true)";
    let items = crate::compile(items, ResultKind::Any, &inner).unwrap();
    // A rewritten expression reads the same fields as its original, but through a variable or
    // through `item`. So both must have the same result.
    let mut rewritten = Vec::new();
    let mut originals = Vec::new();
    for (index, (source, program)) in object_expressions(answers).into_iter().enumerate() {
        // To save time, each expression is rewritten in two of four ways.
        let rewrites = if index % 2 == 0 {
            BTreeSet::from([
                source.replace("object", "variables.o"),
                source.replace("object", "variables.list[0]"),
            ])
        } else {
            BTreeSet::from([
                source.replace("object", "item"),
                source
                    .replace("object.metadata", "variables.meta")
                    .replace("object.spec", "variables.spec")
                    .replace("object.status", "variables.status"),
            ])
        };
        for rewrite in rewrites {
            // If the object has no `spec`, `has(object.spec)` is false, but `has(variables.spec)`
            // is an error. So the test leaves out rewritten expressions that contain
            // `has(variables.spec)` or similar texts.
            let is_test = |name| {
                let tests = [
                    format!("has(variables.{name})"),
                    format!("variables.?{name}"),
                ];
                tests.iter().any(|test| rewrite.contains(test))
            };
            if ["meta", "spec", "status"].into_iter().any(is_test) {
                continue;
            }
            rewritten.push(rewrite);
            originals.push(program);
        }
    }
    let programs: Vec<_> = compile_all(&rewritten, &inner)
        .into_iter()
        .map(|compiled| compiled.map(|compiled| Program(Arc::new(compiled))))
        .collect();
    let mut compared = 0;
    // Most expressions were recorded on one of these objects, so they find their fields there.
    for name in ["odd", "pod", "vm", "node", "custom"] {
        let json = answers.object_named(name);
        let doc = Doc::parse(json.as_bytes(), &whole).unwrap();
        for (original, program) in originals.iter().zip(&programs) {
            let Ok(program) = program else { continue };
            let mut budget = full_budget();
            let mut scope = EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
            let expected = original.run(&mut scope).map(|value| format_value(&value));
            let found = evaluate_with_item(program, &environment, &items, json.as_bytes());
            let (found, expected) = (without_place(found), without_place(expected));
            assert_eq!(found, expected, "{}", program.source());
            compared += 1;
        }
    }
    assert!(compared > 5_000, "only {compared} results were compared");
}

/// Removes the place from a failure, because equivalent expressions fail at different places.
fn without_place(outcome: Result<String, EvaluationFault>) -> Result<String, String> {
    let is_place = |part: &&str| {
        part.starts_with("variables.") || part.starts_with(|c: char| c.is_ascii_digit())
    };
    outcome.map_err(|fault| {
        let text = fault.to_string();
        let parts = text.split(": ").skip_while(is_place);
        parts.collect::<Vec<_>>().join(": ")
    })
}
