//! Measures the time for decoding one object and for evaluating expressions on it. For a
//! `VirtualMachine` of 5 KB and six expressions, the goal is at most 6 µs in total.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ifo_cel::{
    Budget, Doc, Environment, EvaluationScope, Program, Projection, ResultKind, STEPS_PER_OBJECT,
    compile,
};
use jiff::Timestamp;

/// Six expressions like those in the rules for a `VirtualMachine`.
const RULES: [&str; 6] = [
    "has(object.status.printableStatus) && object.status.printableStatus == 'Starting'",
    "has(object.status.printableStatus) && object.status.printableStatus in ['Stopping', 'Terminating']",
    "object.status.printableStatus == 'Migrating' || (has(object.status.conditions) && \
     object.status.conditions.exists(c, c.type == 'LiveMigrating' && c.status == 'True'))",
    "has(object.metadata.deletionTimestamp)",
    "has(object.status.snapshotInProgress) && object.status.snapshotInProgress != ''",
    "has(object.status.volumeRequests) && size(object.status.volumeRequests) > 0",
];

/// Returns the compiled expressions, and the projection: the set of all fields that they read. The
/// projection also has the name, the namespace and the UID, which the crate `ifo-engine` reads from
/// each object.
fn programs() -> (Vec<Program>, Projection) {
    let programs: Vec<_> = RULES
        .iter()
        .map(|rule| {
            compile(rule, ResultKind::Bool, &Environment::default())
                .expect("the expressions are valid")
        })
        .collect();
    let mut projection = Projection::default();
    for path in [
        ["metadata", "name"],
        ["metadata", "namespace"],
        ["metadata", "uid"],
    ] {
        projection.add(&path);
    }
    for program in &programs {
        projection.merge(program.projection());
    }
    (programs, projection)
}

/// Returns the JSON of a `VirtualMachine`, with a long annotation that extends it to 5 KB.
fn object() -> String {
    let json = include_str!("../../../tests/golden/kubernetes-cel/objects/annotated.json").trim();
    let padding = "x".repeat(5_134_usize.saturating_sub(json.len() + 15));
    json.replacen(
        "\"annotations\":{",
        &format!("\"annotations\":{{\"padding\":\"{padding}\","),
        1,
    )
}

/// Returns the number of expressions that are true.
fn evaluate(programs: &[Program], doc: &Doc<'_>) -> usize {
    let mut budget = Budget {
        left: STEPS_PER_OBJECT,
    };
    let mut scope = EvaluationScope::new(doc, Timestamp::UNIX_EPOCH, &mut budget);
    programs
        .iter()
        .filter(|program| program.test(&mut scope) == Ok(true))
        .count()
}

fn benches(c: &mut Criterion) {
    let (programs, projection) = programs();
    let json = object();
    let mut group = c.benchmark_group("vm-5k");
    group.throughput(Throughput::Bytes(json.len() as u64));
    group.bench_function("decode", |b| {
        b.iter(|| Doc::parse(black_box(json.as_bytes()), &projection));
    });
    let doc = Doc::parse(json.as_bytes(), &projection).expect("the fixture is an object");
    group.bench_function("evaluate-6-rules", |b| {
        b.iter(|| evaluate(&programs, black_box(&doc)));
    });
    group.bench_function("decode-and-evaluate", |b| {
        b.iter(|| {
            let doc = Doc::parse(black_box(json.as_bytes()), &projection);
            let doc = doc.expect("the fixture is an object");
            evaluate(&programs, &doc)
        });
    });
    group.finish();
    c.bench_function("compile", |b| {
        b.iter(|| {
            compile(
                black_box(RULES[2]),
                ResultKind::Bool,
                &Environment::default(),
            )
        });
    });
}

criterion_group!(expression, benches);
criterion_main!(expression);
