//! Checks the guarantees of this crate with one expression. Input: any bytes. Output: a panic that
//! names the violated guarantee, if there is one. It is compiled for the fuzz targets in `fuzz/`
//! and for the tests, which check their corpus.

use super::{
    Budget, Doc, Environment, EvaluationFault, EvaluationScope, NameOrigins, Program, Projection,
    ResultKind, STEPS_PER_OBJECT, TypedValue, compile, fields,
};
use jiff::Timestamp;

/// The value of `object`. It has a value of every JSON type that expressions read.
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
    static NAMES: Names = Names::new();
}

/// The environments of an expression.
struct Names {
    /// Two variables, one of which uses the other, and `item`.
    environment: Environment,
    /// The list of which `item` is the first element.
    list: Program,
}

impl Names {
    fn new() -> Self {
        let mut environment = Environment::default();
        for (name, source) in [
            ("conditions", "object.status.conditions"),
            (
                "ready",
                "variables.conditions.filter(c, c.type == 'Ready')[0]",
            ),
        ] {
            let program = compile(source, ResultKind::Any, &environment).expect("it is valid");
            let declared = environment.declare(name, program);
            declared.expect("both are identifiers");
        }
        let list = compile("variables.conditions", ResultKind::List, &environment);
        Self {
            list: list.expect("it is valid"),
            environment: environment.with_item(),
        }
    }

    /// Returns the fields that `program` can read.
    fn projection(&self, program: &Program) -> Projection {
        let items = self.list.items_projection(&self.environment, [program]);
        let mut projection = program.projection().clone();
        projection.merge(&items);
        projection
    }
}

/// Checks an expression that compiles. It has an answer or a failure within its budget, and always
/// the same. The answer equals the answer for the whole object, although only the projected fields
/// are decoded. `now` matters only for an expression that reads it.
pub fn expression(input: &[u8]) {
    let Ok(source) = std::str::from_utf8(input) else {
        return;
    };
    NAMES.with(|names| check(source, names));
}

fn check(source: &str, names: &Names) {
    let environment = &names.environment;
    // The search for names also works on a text that does not compile.
    let mentioned = fields(source, &NameOrigins::default());
    let any = match compile(source, ResultKind::Any, environment) {
        Ok(any) => any,
        Err(error) => {
            assert!(error.line > 0 && error.column > 0, "{error}");
            assert!(!error.message.is_empty());
            assert_ne!(error.message, "the compiler failed", "{source:?}");
            return;
        }
    };
    assert!(mentioned.is_ok(), "{source:?}");
    assert_eq!(any.source(), source);

    // The cost of an answer depends on the cache of patterns.
    let (first, _) = run(&any, names, &whole(), 0, STEPS_PER_OBJECT);
    let (answer, spent) = run(&any, names, &whole(), 0, STEPS_PER_OBJECT);
    assert!(
        first == answer || first == Err(EvaluationFault::Budget),
        "{source:?}"
    );
    let (projected, cost) = run(&any, names, &names.projection(&any), 0, STEPS_PER_OBJECT);
    assert_eq!(
        projected, answer,
        "{source:?} of the fields that it can read"
    );
    if answer != Err(EvaluationFault::Budget) && !source.contains("matches") {
        assert_eq!(cost, spent, "{source:?} of the fields that it can read");
        let enough = run(&any, names, &whole(), 0, spent);
        assert_eq!(enough, (answer.clone(), spent), "{source:?}");
        let (short, _) = run(&any, names, &whole(), 0, spent.saturating_sub(1));
        assert!(
            spent == 0 || short == Err(EvaluationFault::Budget),
            "{source:?}"
        );
    }
    if !any.reads_now() {
        let (later, _) = run(&any, names, &whole(), 86_400, STEPS_PER_OBJECT);
        assert_eq!(later, answer, "{source:?} reads the time");
    }
    if let Some(text) = any.literal() {
        assert_eq!(answer.expect("a literal has a value").value, text);
    }
    for kind in [
        ResultKind::Bool,
        ResultKind::String,
        ResultKind::Progress,
        ResultKind::Time,
        ResultKind::Key,
        ResultKind::List,
    ] {
        // Only the type of the result may be the cause.
        match compile(source, kind, environment) {
            Ok(program) => of_kind(&program, kind, names),
            Err(error) => assert!(error.message.starts_with("expected type"), "{error}"),
        }
    }
}

fn whole() -> Projection {
    let mut whole = Projection::default();
    whole.add(&[]);
    whole
}

/// Returns the answer and the number of steps.
fn run(
    program: &Program,
    names: &Names,
    projection: &Projection,
    seconds: i64,
    steps: u64,
) -> (Result<TypedValue, EvaluationFault>, u64) {
    in_scope(names, projection, seconds, steps, |scope| {
        program.value(scope)
    })
}

fn in_scope<T>(
    names: &Names,
    projection: &Projection,
    seconds: i64,
    steps: u64,
    work: impl FnOnce(&mut EvaluationScope<'_>) -> T,
) -> (T, u64) {
    let doc = Doc::parse(OBJECT, projection).expect("it is an object");
    let now = Timestamp::from_second(1_709_294_400 + seconds).expect("it is in 2024");
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    let mut scope = EvaluationScope::new(&doc, now, &mut budget);
    scope.set_variables(&names.environment);
    let items = names.list.items(&mut scope).expect("it is a list");
    scope.set_item(items.into_iter().next());
    scope.budget.left = steps;
    let outcome = work(&mut scope);
    assert!(budget.left <= steps);
    (outcome, steps - budget.left)
}

/// The conversions of answers accept any value.
fn of_kind(program: &Program, kind: ResultKind, names: &Names) {
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
            ResultKind::Key => drop(program.key(scope)),
            ResultKind::List | ResultKind::Any => {}
        },
    );
}
