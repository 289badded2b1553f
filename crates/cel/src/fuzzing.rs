//! The function [`check_expression`] compiles and evaluates one arbitrary expression, and panics if
//! the crate violates one of its guarantees. The fuzz target `expression` in `fuzz/` calls the
//! function with generated texts. The tests call the function with the texts of the fuzz corpus.

use super::{
    Budget, Doc, Environment, EvaluationFault, EvaluationScope, Program, Projection, ResultKind,
    STEPS_PER_OBJECT, TypedValue, compile,
};
use jiff::Timestamp;

/// The JSON of `object`. It contains values of all JSON types.
const OBJECT: &[u8] = br#"{
    "metadata": {
        "name": "vm", "namespace": "ns", "uid": "u", "generation": 3,
        "creationTimestamp": "2024-02-29T12:00:00Z", "deletionTimestamp": null,
        "labels": {"a": "1", "kubernetes.io/b": "x", "": "e"},
        "ownerReferences": [{"kind": "K", "name": "o", "controller": true}]
    },
    "spec": {
        "replicas": 3, "paused": false, "ratio": 0.5, "memory": "1.5Gi", "cpu": "250m",
        "big": 9223372036854775807, "text": "\u00e9\ud83d\ude00 45.20%", "none": null, "empty": {}
    },
    "status": {
        "phase": "Running", "progress": "45%", "observedGeneration": 2,
        "conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2024-03-01T00:00:00.5Z"},
            {"type": "Paused", "status": "False", "message": "", "count": 2},
            {"type": "Odd"}
        ],
        "nodes": [1, 2.5, "three", null, [4], {"five": 5}], "map": {"x": {"y": [{"z": "1"}]}}
    }
}"#;

thread_local! {
    static NAMES: FuzzNames = FuzzNames::new();
}

/// The names that the expression can use in addition to `object` and `now`.
struct FuzzNames {
    /// The variables `conditions` and `ready`, and `item`.
    environment: Environment,
    /// The expression of a list. The first element of this list is the value of `item`.
    list: Program,
}

impl FuzzNames {
    fn new() -> Self {
        let mut environment = Environment::default();
        for (name, source) in [
            ("conditions", "object.status.conditions"),
            (
                "ready",
                "variables.conditions.filter(c, c.type == 'Ready')[0]",
            ),
        ] {
            let program = compile(source, ResultKind::Any, &environment);
            let program = program.expect("the sources above are valid");
            let declared = environment.declare(name, program);
            declared.expect("the names above are different identifiers");
        }
        let list = compile("variables.conditions", ResultKind::List, &environment);
        Self {
            list: list.expect("the source above is valid"),
            environment: environment.with_item(),
        }
    }

    /// Returns the fields of the object that `program` can read, also through `item`.
    fn projection(&self, program: &Program) -> Projection {
        let items = self.list.items_projection(&self.environment, [program]);
        let mut projection = program.projection().clone();
        projection.merge(&items);
        projection
    }
}

/// Compiles `input` and evaluates it several times.
///
/// # Panics
/// One of these guarantees is violated:
///
/// - An evaluation ends within its budget, with a result or an error.
/// - Repeated evaluations have the same result. There is one exception: the first evaluation can
///   exhaust the budget, because it also compiles regular expressions.
/// - Repeated evaluations have the same cost, if the budget suffices and the expression does not
///   contain the text `matches`.
/// - The result is the same if only the fields of the projection are decoded.
/// - The result depends on the time only if the program reports that it reads `now`.
/// - If the expression compiles with [`ResultKind::Any`], it can fail to compile with another
///   [`ResultKind`] only because its result has the wrong type.
pub fn check_expression(input: &[u8]) {
    let Ok(source) = std::str::from_utf8(input) else {
        return;
    };
    NAMES.with(|names| check_guarantees(source, names));
}

fn check_guarantees(source: &str, names: &FuzzNames) {
    let environment = &names.environment;
    let any = match compile(source, ResultKind::Any, environment) {
        Ok(any) => any,
        Err(error) => {
            assert!(error.line > 0 && error.column > 0, "{error}");
            assert!(!error.message.is_empty());
            assert_ne!(error.message, "the compiler failed", "{source:?}");
            return;
        }
    };
    assert_eq!(any.source(), source);

    // The first evaluation can cost more than later ones, because it compiles the regular
    // expressions that are not in the cache.
    let (first, _) = evaluate(&any, names, &whole(), 0, STEPS_PER_OBJECT);
    let (answer, spent) = evaluate(&any, names, &whole(), 0, STEPS_PER_OBJECT);
    assert!(
        first == answer || first == Err(EvaluationFault::Budget),
        "{source:?} must have the same result again"
    );
    let (projected, cost) = evaluate(&any, names, &names.projection(&any), 0, STEPS_PER_OBJECT);
    assert_eq!(
        projected, answer,
        "{source:?} must have the same result on the projected fields"
    );
    if answer != Err(EvaluationFault::Budget) && !source.contains("matches") {
        assert_eq!(
            cost, spent,
            "{source:?} must have the same cost on the projected fields"
        );
        let enough = evaluate(&any, names, &whole(), 0, spent);
        assert_eq!(
            enough,
            (answer.clone(), spent),
            "{source:?} must have the same result with a budget of {spent} steps"
        );
        let (short, _) = evaluate(&any, names, &whole(), 0, spent.saturating_sub(1));
        assert!(
            spent == 0 || short == Err(EvaluationFault::Budget),
            "{source:?} must exhaust a budget of {spent} - 1 steps"
        );
    }
    if !any.reads_now() {
        let (later, _) = evaluate(&any, names, &whole(), 86_400, STEPS_PER_OBJECT);
        assert_eq!(
            later, answer,
            "{source:?} must have the same result a day later"
        );
    }
    if let Some(text) = any.literal() {
        assert_eq!(answer.expect("a literal has a value").value, text);
    }
    for kind in [
        ResultKind::Bool,
        ResultKind::String,
        ResultKind::Progress,
        ResultKind::Time,
        ResultKind::Duration,
        ResultKind::Amount,
        ResultKind::Key,
        ResultKind::List,
        ResultKind::Strings,
    ] {
        // The source compiles, so the only possible error is the type of the result.
        match compile(source, kind, environment) {
            Ok(program) => evaluate_as(&program, kind, names),
            Err(error) => assert!(error.message.starts_with("expected type"), "{error}"),
        }
    }
}

/// Returns the projection of the whole object.
fn whole() -> Projection {
    let mut projection = Projection::default();
    projection.add(&[]);
    projection
}

/// Evaluates `program` on the fields of [`OBJECT`] that `projection` selects. The value of `now` is
/// `seconds` after a fixed time. `steps` is the budget. Returns the result and the number of steps
/// that the evaluation took.
fn evaluate(
    program: &Program,
    names: &FuzzNames,
    projection: &Projection,
    seconds: i64,
    steps: u64,
) -> (Result<TypedValue, EvaluationFault>, u64) {
    in_scope(names, projection, seconds, steps, |scope| {
        program.value(scope)
    })
}

/// Calls `work` with a scope that has `object`, `now` and all `names`. Returns the result of
/// `work`, and the number of steps that `work` took. `steps` is the budget of `work`.
fn in_scope<T>(
    names: &FuzzNames,
    projection: &Projection,
    seconds: i64,
    steps: u64,
    work: impl FnOnce(&mut EvaluationScope<'_>) -> T,
) -> (T, u64) {
    let doc = Doc::parse(OBJECT, projection).expect("OBJECT is a JSON object");
    let now = Timestamp::from_second(1_709_294_400 + seconds).expect("the time is in 2024");
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    let mut scope = EvaluationScope::new(&doc, now, &mut budget);
    scope.set_variables(&names.environment);
    let items = names.list.items(&mut scope);
    let items = items.expect("`conditions` is a list");
    scope.set_item(items.into_iter().next());
    scope.budget.left = steps;
    let outcome = work(&mut scope);
    assert!(budget.left <= steps);
    (outcome, steps - budget.left)
}

/// Evaluates `program` and converts the result to `kind`. The conversion must not panic for any
/// value.
fn evaluate_as(program: &Program, kind: ResultKind, names: &FuzzNames) {
    in_scope(
        names,
        &names.projection(program),
        0,
        STEPS_PER_OBJECT,
        |scope| match kind {
            ResultKind::Bool => drop(program.test(scope)),
            ResultKind::String => drop(program.text(scope)),
            ResultKind::Progress => {
                let progress = program.progress(scope).unwrap_or_default();
                assert!(progress.is_none_or(|percent| percent <= 100));
            }
            ResultKind::Time => drop(program.time(scope)),
            ResultKind::Duration => drop(program.duration(scope)),
            ResultKind::Amount => {
                let amount = program.amount(scope).unwrap_or_default();
                assert!(amount.is_finite());
            }
            ResultKind::Key => drop(program.key(scope)),
            ResultKind::Strings => drop(program.strings::<String>(scope)),
            ResultKind::List | ResultKind::Any => {}
        },
    );
}
