//! Tests the feed of a folder, with real files and in real time. Each step waits for its event,
//! without fixed delays.

use super::*;
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

fn source(group: &str, resource: &str, namespace: Option<&str>) -> Source {
    Source {
        target: gvr(group, resource).into(),
        namespace: namespace.map(Into::into),
    }
}

fn pod(name: &str, phase: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {name}\n  namespace: shop\nstatus:\n  phase: {phase}\n---\n"
    )
}

async fn folder(files: &[(&str, &str)]) -> (TempDir, Folder) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let (folder, following) = Folder::open(dir.path(), Arc::new(Metrics::new()))
        .await
        .unwrap();
    tokio::spawn(following);
    (dir, folder)
}

/// Returns the next `n` events as texts, such as `+a Running` if the object `a` with the phase
/// `Running` was applied. `-a Running` means that the object was deleted. The phase is `-` if the
/// object has no phase.
async fn next_events(feed: &mut BoxStream<'static, Raw>, n: usize) -> Vec<String> {
    let mut words = Vec::new();
    for _ in 0..n {
        let raw = timeout(Duration::from_mins(1), feed.next())
            .await
            .expect("an event must arrive within a minute");
        let describe = |sign: char, json: &[u8]| {
            let value: serde_json::Value = serde_json::from_slice(json).unwrap();
            format!(
                "{sign}{} {}",
                value["metadata"]["name"].as_str().unwrap(),
                value["status"]["phase"].as_str().unwrap_or("-")
            )
        };
        words.push(match raw.expect("a feed never ends") {
            Raw::Reset => "reset".into(),
            Raw::Synced => "synced".into(),
            Raw::Applied(json) => describe('+', &json),
            Raw::Deleted(json) => describe('-', &json),
            Raw::TooLarge { .. } => panic!("no file of a test is too large"),
            Raw::Lost(lost) => format!("lost: {lost}"),
        });
    }
    words
}

#[tokio::test]
async fn objects_follow_their_files() {
    let text = [pod("a", "Running"), pod("b", "Running")].concat();
    let (dir, folder) = folder(&[
        ("pods.yaml", &text),
        ("deep/er/c.yml", &pod("c", "Pending")),
        ("notes.txt", "x"),
    ])
    .await;
    let mut feed = folder.follow(source("", "pods", None));
    assert_eq!(
        next_events(&mut feed, 5).await,
        ["reset", "+a Running", "+b Running", "+c Pending", "synced"]
    );
    fs::write(
        dir.path().join("pods.yaml"),
        [pod("a", "Failed"), pod("b", "Running")].concat(),
    )
    .unwrap();
    assert_eq!(next_events(&mut feed, 1).await, ["+a Failed"]);
    fs::write(dir.path().join("pods.yaml"), pod("a", "Failed")).unwrap();
    assert_eq!(next_events(&mut feed, 1).await, ["-b Running"]);
    fs::remove_dir_all(dir.path().join("deep")).unwrap();
    assert_eq!(next_events(&mut feed, 1).await, ["-c Pending"]);
    fs::create_dir(dir.path().join("new")).unwrap();
    fs::write(
        dir.path().join("new/d.json"),
        r#"{"apiVersion":"v1","kind":"Pod","metadata":{"name":"d"}}"#,
    )
    .unwrap();
    assert_eq!(next_events(&mut feed, 1).await, ["+d -"]);
}

#[tokio::test]
async fn an_invalid_file_keeps_its_last_valid_content() {
    let (dir, folder) = folder(&[("a.yaml", &pod("a", "Running")), ("bad.yaml", "kind: [")]).await;
    let mut feed = folder.follow(source("", "pods", None));
    assert_eq!(
        next_events(&mut feed, 3).await,
        ["reset", "+a Running", "synced"]
    );
    fs::write(dir.path().join("a.yaml"), "apiVersion: v1\nkind: [").unwrap();
    fs::write(dir.path().join("b.yaml"), pod("b", "Running")).unwrap();
    assert_eq!(next_events(&mut feed, 1).await, ["+b Running"]);
    fs::write(dir.path().join("a.yaml"), pod("a", "Failed")).unwrap();
    assert_eq!(
        next_events(&mut feed, 1).await,
        ["+a Failed"],
        "the object of the invalid file must not be deleted"
    );
}

#[tokio::test]
async fn an_object_gets_a_stable_uid_and_a_namespace_if_namespaced() {
    let text = "{apiVersion: v1, kind: Pod, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Node, metadata: {name: a}}\n---\n{apiVersion: v1, kind: Pod, metadata: {name: own, uid: mine}}\n";
    let mut uids = Vec::new();
    for _ in 0..2 {
        let (_dir, folder) = folder(&[("a.yaml", text)]).await;
        for (resource, namespace) in [("pods", Some("default")), ("nodes", None)] {
            let mut feed = folder.follow(source("", resource, namespace));
            let Some(Raw::Reset) = feed.next().await else {
                panic!("no reset")
            };
            let Some(Raw::Applied(json)) = feed.next().await else {
                panic!("no object")
            };
            let value: serde_json::Value = serde_json::from_slice(&json).unwrap();
            assert_eq!(value["metadata"]["namespace"].as_str(), namespace);
            uids.push(value["metadata"]["uid"].as_str().unwrap().to_owned());
        }
        let mut feed = folder.follow(source("", "pods", Some("default")));
        let all: Vec<_> = feed.by_ref().take(3).collect().await;
        assert!(
            all.iter().any(
                |raw| matches!(raw, Raw::Applied(json) if json.windows(4).any(|w| w == b"mine"))
            )
        );
    }
    assert_eq!(uids[..2], uids[2..]);
    assert_ne!(uids[0], uids[1]);
}

#[tokio::test]
async fn a_namespaced_source_yields_only_its_namespace() {
    let (_dir, folder) = folder(&[("a.yaml", &pod("a", "Running"))]).await;
    let mut feed = folder.follow(source("", "pods", Some("other")));
    assert_eq!(next_events(&mut feed, 2).await, ["reset", "synced"]);
    let mut feed = folder.follow(source("", "pods", Some("shop")));
    assert_eq!(
        next_events(&mut feed, 3).await,
        ["reset", "+a Running", "synced"]
    );
}

#[tokio::test]
async fn a_kind_is_served_from_the_moment_it_appears() {
    let (dir, folder) = folder(&[("a.yaml", &pod("a", "Running"))]).await;
    let served = |kind: &str, namespaced| Resolution::Served {
        kind: kind.into(),
        namespaced,
    };
    assert_eq!(folder.resolve(&gvr("", "pods")).await, served("Pod", true));
    let kine = gvr("farm.io", "kine");
    assert!(matches!(
        folder.resolve(&kine).await,
        Resolution::NotServed { .. }
    ));
    let mut changes = folder.resolution_changes();
    let crd = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: kine.farm.io}\nspec: {group: farm.io, scope: Cluster, names: {kind: Cow, plural: kine}, versions: [{name: v1}]}\n";
    fs::write(dir.path().join("crd.yaml"), crd).unwrap();
    timeout(Duration::from_mins(1), changes.next())
        .await
        .expect("a new CRD must be reported within a minute");
    assert_eq!(folder.resolve(&kine).await, served("Cow", false));
    assert!(matches!(
        folder.resolve(&gvr("farm.io", "cows")).await,
        Resolution::NotServed { .. }
    ));
    fs::write(
        dir.path().join("cow.yaml"),
        "{apiVersion: farm.io/v1, kind: Cow, metadata: {name: berta}}",
    )
    .unwrap();
    let mut feed = folder.follow(Source {
        target: kine.into(),
        namespace: None,
    });
    assert_eq!(next_events(&mut feed, 2).await[0], "reset");
}

#[tokio::test]
async fn a_missing_folder_is_an_error_that_names_it() {
    let opened = Folder::open(Path::new("/no/such/folder"), Arc::new(Metrics::new())).await;
    let Err(error) = opened else {
        panic!("a missing folder must be an error");
    };
    assert!(
        error.to_string().starts_with("/no/such/folder: "),
        "{error}"
    );
}
