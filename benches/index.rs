//! Measures the index, which has the operations in memory: lists and commits with 1,000 to 100,000
//! operations, and the delivery of changes to watches.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ifo::index::{
    Bounds, Cursor, IndexEntry, IndexReader, Key, OPERATIONS, Object, ReadVersion, Scope,
    VersionAssignment, Write, Writer, index,
};
use ifo_api::Collection;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The limits of the index's ring buffer of changes, as in the server.
const BOUNDS: Bounds = Bounds {
    bytes: 12 << 20,
    age: Duration::from_mins(5),
};
/// The measured numbers of operations, with their names.
const SIZES: [(&str, u64); 3] = [("1k", 1_000), ("10k", 10_000), ("100k", 100_000)];
/// Number of operations in one namespace, for all [`SIZES`].
const OPERATIONS_PER_NAMESPACE: u64 = 100;

/// Returns an operation, whose JSON has about 1.6 KB.
fn object(namespace: &str, name: &str, change: u64) -> Object {
    let progress = change % 101;
    let condition = |kind: &str| {
        format!(
            r#"{{"lastTransitionTime":"2026-01-02T03:04:05Z","message":"copying memory to node-17","observedGeneration":7,"reason":"Migrating","status":"True","type":"{kind}"}}"#
        )
    };
    let conditions = ["Progressing", "Detected", "Completed"]
        .map(condition)
        .join(",");
    let json = format!(
        r#"{{"apiVersion":"live.ifo.kubevirt.io/v1alpha1","kind":"InFlightOperation","metadata":{{"creationTimestamp":"2026-01-02T03:04:05Z","generation":1,"labels":{{"ifo.kubevirt.io/component":"kubevirt","ifo.kubevirt.io/operation":"Migrating","ifo.kubevirt.io/subject-kind":"VirtualMachine"}},"name":"{name}","namespace":"{namespace}","ownerReferences":[{{"apiVersion":"kubevirt.io/v1","blockOwnerDeletion":false,"controller":true,"kind":"VirtualMachine","name":"{name}","uid":"6f1de7a0-5f8f-4b0e-a7f0-3a0f5f4f9d61"}}],"uid":"6f1de7a0-5f8f-4b0e-a7f0-3a0f5f4f9d62"}},"spec":{{"operation":"Migrating","ruleSet":"vm-lifecycle-rules","component":"kubevirt","subject":{{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","name":"{name}","namespace":"{namespace}","uid":"6f1de7a0-5f8f-4b0e-a7f0-3a0f5f4f9d61"}}}},"status":{{"phase":"Active","state":"Progressing","reason":"Migrating","message":"copying memory to node-17","progress":{progress},"startTimeSource":"Expression","lastDetected":"2026-01-02T03:04:05Z","detectedBy":["vm-lifecycle-rules"],"subjectGeneration":7,"conditions":[{conditions}]}}}}"#
    );
    Object::decode(json.as_bytes(), Collection::Operations).expect("the JSON is an operation")
}

fn key(n: u64) -> Key {
    Key::new(
        format!("team-{}", n / OPERATIONS_PER_NAMESPACE),
        format!("my-vm-{n}-migrating-3f9c2a1b5e6d7f80"),
    )
}

fn put(n: u64, progress: u64) -> Write {
    let key = key(n);
    let object = object(&key.namespace, &key.name, progress);
    Write::Put { key, object }
}

/// Returns an index with `size` operations.
fn filled_index(size: u64) -> (Writer, IndexReader) {
    let (mut writer, reader) = index(BOUNDS);
    let batch: Vec<Write> = (0..size).map(|n| put(n, 0)).collect();
    writer
        .commit(batch, VersionAssignment::Mint)
        .expect("the objects are well formed");
    (writer, reader)
}

fn list(c: &mut Criterion) {
    let mut group = c.benchmark_group("list");
    for (name, size) in SIZES {
        let (_writer, reader) = filled_index(size);
        group.throughput(Throughput::Elements(size));
        group.bench_function(BenchmarkId::new("all", name), |b| {
            b.iter(|| reader.list(&OPERATIONS, ReadVersion::Latest));
        });
        let scope = Scope::Namespace("team-3".into());
        group.throughput(Throughput::Elements(OPERATIONS_PER_NAMESPACE));
        group.bench_function(BenchmarkId::new("namespace of 100", name), |b| {
            b.iter(|| reader.list(&scope, ReadVersion::Latest));
        });
    }
    group.finish();
}

/// Measures a list at the oldest resourceVersion in the ring buffer. For this list, the index must
/// undo all newer changes. A client requests such a list if many changes happen after it has read
/// the first page of a list, and before it reads the next page.
fn list_exact(c: &mut Criterion) {
    let mut group = c.benchmark_group("list of the oldest version in the ring");
    for (name, size) in SIZES {
        let (mut writer, reader) = filled_index(size);
        for n in 0..5_000 {
            let write = put(n % size, 1 + n);
            writer
                .commit(vec![write], VersionAssignment::Mint)
                .expect("the object is well formed");
        }
        group.bench_function(name, |b| {
            b.iter(|| reader.list(&OPERATIONS, ReadVersion::Exact(reader.oldest())));
        });
    }
    group.finish();
}

fn commit(c: &mut Criterion) {
    let mut group = c.benchmark_group("commit");
    for (name, size) in SIZES {
        let (mut writer, _reader) = filled_index(size);
        let mut n = 0;
        group.bench_function(BenchmarkId::new("one", name), |b| {
            b.iter_batched(
                || {
                    n += 1;
                    vec![put(n % size, n)]
                },
                |batch| writer.commit(batch, VersionAssignment::Mint),
                BatchSize::SmallInput,
            );
        });
        group.bench_function(BenchmarkId::new("one that changes nothing", name), |b| {
            let existing = writer.get(&key(7)).expect("operation 7 exists");
            b.iter_batched(
                || {
                    let (key, object) = (existing.key().clone(), existing.object().clone());
                    vec![Write::Put { key, object }]
                },
                |batch| writer.commit(batch, VersionAssignment::Mint),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

/// Measures the time from a commit until the last cursor has returned the change, with one cursor
/// and with 1,000 cursors. A cursor reads the changes of the index for one watch.
fn fan_out(c: &mut Criterion) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("the runtime can start threads");
    let mut group = c.benchmark_group("fan-out");
    for (name, watchers) in [("1 cursor", 1_usize), ("1k cursors", 1_000)] {
        let (mut writer, reader) = filled_index(1_000);
        let (sender, mut receiver) = tokio::sync::mpsc::channel::<Arc<IndexEntry>>(watchers);
        for _ in 0..watchers {
            let cursor = reader
                .follow(reader.head(), OPERATIONS)
                .expect("the latest version can always be followed");
            runtime.spawn(forward(cursor, sender.clone()));
        }
        let mut n = 0;
        group.bench_function(name, |b| {
            b.iter_custom(|times| {
                let mut took = Duration::ZERO;
                for _ in 0..times {
                    n += 1;
                    let batch = vec![put(n % 1_000, n)];
                    let start = Instant::now();
                    writer
                        .commit(batch, VersionAssignment::Mint)
                        .expect("the object is well formed");
                    for _ in 0..watchers {
                        black_box(receiver.blocking_recv());
                    }
                    took += start.elapsed();
                }
                took
            });
        });
    }
    group.finish();
}

/// Sends the operation of each change to `sender`.
async fn forward(mut cursor: Cursor, sender: tokio::sync::mpsc::Sender<Arc<IndexEntry>>) {
    while let Ok(changes) = cursor.next().await {
        for entry in changes.into_iter().filter_map(|change| change.after) {
            if sender.send(entry).await.is_err() {
                return;
            }
        }
    }
}

criterion_group!(benches, list, list_exact, commit, fan_out);
criterion_main!(benches);
