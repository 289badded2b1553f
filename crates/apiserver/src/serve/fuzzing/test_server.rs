//! The server that the fuzz targets check. Its store has a fixed history
//! of changes. The server has two routers: the first router allows all access, and the second
//! router denies all access.

use super::notes::{self, NoteModel, note};
use crate::auth::{
    AccessDecision, Attributes, Authenticate, Authorize, PeerCertificates, Unauthenticated,
    Undecided, User,
};
use crate::serve::{Readiness, Resource, ServerParameters, router};
use crate::store::{
    Bounds, Collection, Entry, Key, ReadVersion, Reader, Rv, Scope, VersionAssignment, Write,
    Writer, open_from,
};
use axum::Router;
use futures::future::BoxFuture;
use http::HeaderMap;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The resourceVersion of the store before the first change.
const START: u64 = 100;

/// The namespace, the name, the labels and the subject of each note. Some values contain
/// characters that JSON escapes.
///
/// The namespaces `a` and `a-b` test the order of lists. The server must sort a list by the text
/// `namespace/name`. So `a-b/z` comes before `a/x`, because `-` comes before `/`.
const NOTES: &[(&str, &str, &str, &str)] = &[
    ("b", "x", r#"{"name":"x","n":"3"}"#, "vm"),
    ("a", "y", r#"{"name":"y","n":"-7","empty":""}"#, "v,m=1"),
    ("a-b", "z", r#"{"a.b/c":"x","name":"z"}"#, ""),
    ("a", "x", "{}", "\"é\\"),
    (
        "b",
        "w",
        r#"{"n":"9223372036854775807","odd":"\"\\/é"}"#,
        "w",
    ),
    (
        "c",
        "long-name.with.dots",
        r#"{"in":"notin","notin":"in"}"#,
        "vm",
    ),
];

thread_local! {
    static WORLD: FuzzServer = FuzzServer::new();
}

/// A server, its stores, and a runtime with a simulated clock. This clock jumps to the next timer
/// when all tasks wait, so no test has to wait for a timer.
pub struct FuzzServer {
    pub runtime: Runtime,
    pub live: Arc<Resource<NoteModel>>,
    /// The router that allows all access.
    pub allowing: Router,
    /// The router that denies all access.
    pub denying: Router,
    /// All notes in the store, sorted by the text `namespace/name`.
    pub notes: Vec<Known>,
    /// The writers of the stores. A store is closed when its writer is dropped. So this field
    /// keeps the writers.
    _writers: [Writer<NoteModel>; 2],
}

/// A note in the store, and its decoded JSON.
pub struct Known {
    pub entry: Arc<Entry<NoteModel>>,
    pub object: Value,
}

impl FuzzServer {
    /// Calls `check` with this thread's server.
    pub fn with<T>(check: impl FnOnce(&Self) -> T) -> T {
        WORLD.with(check)
    }

    fn new() -> Self {
        let bounds = Bounds {
            bytes: 1 << 20,
            age: Duration::from_hours(24),
        };
        let (mut writer, live) = open_from(bounds, Rv(START));
        let (folders, folders_reader) = open_from(bounds, Rv(START));
        fill(&mut writer);
        Self {
            runtime: Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .expect("a runtime without I/O cannot fail to start"),
            allowing: routes(&live, &folders_reader, AccessDecision::Allow),
            denying: routes(
                &live,
                &folders_reader,
                AccessDecision::Deny {
                    reason: String::new(),
                },
            ),
            notes: all_notes(&live),
            live: Arc::new(notes::notes(live)),
            _writers: [writer, folders],
        }
    }
}

fn all_notes(reader: &Reader<NoteModel>) -> Vec<Known> {
    let (_, entries) = reader
        .list(&Scope::Collection(Collection::DEFAULT), ReadVersion::Latest)
        .expect("a list of the newest state cannot fail");
    let known = entries.into_iter().map(|entry| Known {
        object: serde_json::from_slice(&entry.json()).expect("the notes above are JSON"),
        entry,
    });
    known.collect()
}

/// Writes the history: adds all notes, changes the first note, deletes the second note and
/// adds it again, and deletes the last note.
fn fill(writer: &mut Writer<NoteModel>) {
    let mut rv = START;
    let mut commit = |write| {
        rv += 1;
        writer
            .commit(vec![write], VersionAssignment::Exact(Rv(rv)))
            .expect("versions increase, and the objects have metadata");
    };
    let key = |number: usize| Key::new(NOTES[number].0, NOTES[number].1);
    for number in 0..NOTES.len() {
        commit(put(number, "Active"));
    }
    commit(put(0, "Completed"));
    commit(Write::Delete { key: key(1) });
    commit(put(1, "Active"));
    commit(Write::Delete {
        key: key(NOTES.len() - 1),
    });
}

fn put(number: usize, phase: &str) -> Write<NoteModel> {
    let (namespace, name, labels, subject) = NOTES[number];
    let labels: Value = serde_json::from_str(labels).expect("the labels in `NOTES` are JSON");
    Write::Put {
        key: Key::new(namespace, name),
        object: note(&json!({
            "metadata": { "name": name, "namespace": namespace, "labels": labels },
            "spec": { "subject": { "name": subject } },
            "status": { "phase": phase, "message": "<moving>", "progress": 45 },
        })),
    }
}

fn routes(
    live: &Reader<NoteModel>,
    folders: &Reader<NoteModel>,
    decision: AccessDecision,
) -> Router {
    let readiness = Arc::new(Readiness::new());
    readiness.set_has_joined();
    readiness.set_synced();
    let resources = vec![notes::notes(live.clone()), notes::folders(folders.clone())];
    let server = ServerParameters {
        readiness,
        ..ServerParameters::new("notes", Arc::new(Anybody), Arc::new(Always(decision)))
    };
    router(server, resources)
}

struct Anybody;

impl Authenticate for Anybody {
    fn authenticate<'a>(
        &'a self,
        _: &'a PeerCertificates,
        _: &'a HeaderMap,
    ) -> BoxFuture<'a, Result<User, Unauthenticated>> {
        Box::pin(async {
            Ok(User {
                name: "anybody".to_owned(),
                ..User::default()
            })
        })
    }
}

struct Always(AccessDecision);

impl Authorize for Always {
    fn authorize<'a>(
        &'a self,
        _: &'a User,
        _: &'a Attributes,
    ) -> BoxFuture<'a, Result<AccessDecision, Undecided>> {
        let decision = self.0.clone();
        Box::pin(async { Ok(decision) })
    }
}
