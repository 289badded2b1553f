//! Tests the objects from a folder, with real files and in real time. Each step waits for its event,
//! without fixed delays.

use super::*;
use futures::StreamExt as _;
use futures::stream::BoxStream;
use ifo_api::{Gvr, Resolution, Source};
use ifo_observe::{Feed as _, Raw, Resolve as _};
use serde_json::Value;
use std::fs;
use tempfile::TempDir;
use tokio::time::timeout;

fn gvr(group: &str, resource: &str) -> Gvr {
    Gvr {
        group: group.into(),
        version: "v1".into(),
        resource: resource.into(),
    }
}

fn follow(store: &ObjectStore, target: Gvr) -> BoxStream<'static, Raw> {
    let target = target.into();
    let namespace = None;
    store.follow(Source { target, namespace }, None)
}

fn pod(name: &str, phase: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop}}, status: {{phase: {phase}}}}}\n---\n"
    )
}

fn folder(files: &[(&str, &str)]) -> (TempDir, ObjectStore) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        write(&dir, name, text);
    }
    let (store, following) = open(dir.path(), &["own"]).unwrap();
    tokio::spawn(following);
    (dir, store)
}

fn write(dir: &TempDir, name: &str, text: &str) {
    let path = dir.path().join(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Asserts the next events as texts, such as `+a Running` if the object `a` with the phase `Running` was
/// applied. `-a Running` means that the object was deleted. The phase is `-` if the object has no phase.
async fn expect(feed: &mut BoxStream<'static, Raw>, expected: &[&str]) {
    let mut words = Vec::new();
    for _ in expected {
        let raw = timeout(Duration::from_mins(1), feed.next()).await;
        let describe = |sign: char, json: &[u8]| {
            let value: Value = serde_json::from_slice(json).unwrap();
            let phase = value["status"]["phase"].as_str().unwrap_or("-");
            format!(
                "{sign}{} {phase}",
                value["metadata"]["name"].as_str().unwrap()
            )
        };
        words.push(
            match raw.expect("an event must arrive within a minute").unwrap() {
                Raw::Reset => "reset".into(),
                Raw::Synced => "synced".into(),
                Raw::Applied(json) => describe('+', &json),
                Raw::Deleted(json) => describe('-', &json),
                Raw::Lost(lost) => panic!("{lost:?}"),
            },
        );
    }
    assert_eq!(words, expected);
}

#[test]
fn a_missing_folder_is_an_error_that_names_it() {
    let error = open(Path::new("/missing/folder"), &[]).map(drop);
    let error = error.unwrap_err().to_string();
    assert_eq!(
        error,
        "/missing/folder: No such file or directory (os error 2)"
    );
}

#[tokio::test]
async fn objects_follow_their_files() {
    let both = [pod("a", "Running"), pod("b", "Running")].concat();
    let (dir, store) = folder(&[
        ("pods.yaml", &both),
        ("deep/er/c.YML", &pod("c", "Pending")),
        ("notes.txt", &pod("ignored", "Running")),
        ("bad.yaml", "kind: ["),
    ]);
    let mut feed = follow(&store, gvr("", "pods"));
    let all = ["reset", "+a Running", "+b Running", "+c Pending", "synced"];
    expect(&mut feed, &all).await;
    write(
        &dir,
        "pods.yaml",
        &[pod("a", "Failed"), pod("b", "Running")].concat(),
    );
    expect(&mut feed, &["+a Failed"]).await;
    // The objects of an invalid file stay.
    write(&dir, "pods.yaml", "kind: [");
    let item = r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"d","namespace":"shop"}}"#;
    let list = format!(r#"{{"apiVersion":"v1","kind":"List","items":[{item}]}}"#);
    write(&dir, "new/d.json", &list);
    expect(&mut feed, &["+d -"]).await;
    write(&dir, "pods.yaml", &pod("a", "Failed"));
    expect(&mut feed, &["-b Running"]).await;
    fs::remove_dir_all(dir.path().join("deep")).unwrap();
    expect(&mut feed, &["-c Pending"]).await;
    // An object with another UID is another object.
    write(&dir, "pods.yaml", &pod("a, uid: new", "Failed"));
    expect(&mut feed, &["-a Failed", "+a Failed"]).await;
}

#[tokio::test]
async fn an_object_is_completed_as_in_a_cluster() {
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: own, uid: mine}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: empty, uid: theirs}}\n";
    let read = || {
        let (_dir, store) = folder(&[("a.yaml", text)]);
        let of = |kind, namespace| store.in_namespace("v1", kind, namespace);
        [of("Pod", "default"), of("Node", ""), of("Namespace", "")].concat()
    };
    let objects = read();
    let names: Vec<_> = objects
        .iter()
        .map(|it| it["metadata"]["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["a", "own", "a", "default", "empty", "own"]);
    let uid = |number: usize| &objects[number]["metadata"]["uid"];
    assert!(uid(0).is_string() && uid(2).is_string() && uid(0) != uid(2));
    assert_eq!((uid(1), uid(4)), (&"mine".into(), &"theirs".into()));
    assert_eq!(objects[5]["status"]["phase"], "Active");
    assert_eq!(read(), objects, "the UIDs are stable");
}

#[tokio::test]
async fn a_kind_is_served_from_the_moment_it_appears() {
    let (dir, store) = folder(&[("a.yaml", &pod("a", "Running"))]);
    let served = |kind: &str, namespaced| Resolution::Served {
        kind: kind.into(),
        namespaced,
    };
    assert_eq!(store.kind_of(&gvr("", "pods")), served("Pod", true));
    let is_missing = |resource| {
        let resolution = store.kind_of(&gvr("farm.io", resource));
        matches!(resolution, Resolution::NotServed { .. })
    };
    assert!(is_missing("kine"));
    let mut changes = store.resolution_changes();
    let mut feed = follow(&store, gvr("farm.io", "kine"));
    expect(&mut feed, &["reset", "synced"]).await;
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: kine.farm.io}\nspec: {group: farm.io, scope: Cluster, names: {kind: Cow, plural: kine}, versions: [{name: v1}]}\n";
    write(&dir, "crd.yaml", crd);
    let changed = timeout(Duration::from_mins(1), changes.next());
    changed
        .await
        .expect("a new CRD must be reported within a minute");
    assert_eq!(store.kind_of(&gvr("farm.io", "kine")), served("Cow", false));
    assert!(is_missing("cows"));
    write(
        &dir,
        "cow.yaml",
        "{apiVersion: farm.io/v1, kind: Cow, metadata: {name: berta}}",
    );
    expect(&mut feed, &["+berta -"]).await;
    fs::remove_file(dir.path().join("crd.yaml")).unwrap();
    fs::remove_file(dir.path().join("cow.yaml")).unwrap();
    expect(&mut feed, &["-berta -"]).await;
}
