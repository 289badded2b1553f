use super::*;
use crate::demo::kinds::{CDI, NODE, VM, VMI};
use futures::FutureExt;
use std::time::Duration;

fn world() -> World {
    World::new(
        1,
        WorldTime::starting("2026-01-01T00:00:00Z".parse().unwrap()),
    )
}

fn vm(namespace: &str, name: &str, run: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"runStrategy": run},
    })
}

fn source(kind: &Kind, namespace: Option<&str>) -> Source {
    Source {
        target: kind.gvr().into(),
        namespace: namespace.map(Into::into),
    }
}

/// A step in short: `reset`, `synced`, `+name@version`, `-name@version`.
fn short(step: &Raw) -> String {
    let object = |bytes: &Bytes| {
        let object: Value = serde_json::from_slice(bytes).unwrap();
        let meta = &object["metadata"];
        format!(
            "{}@{}",
            meta["name"].as_str().unwrap(),
            meta["resourceVersion"].as_str().unwrap()
        )
    };
    match step {
        Raw::Reset => "reset".to_owned(),
        Raw::Synced => "synced".to_owned(),
        Raw::Applied(bytes) => format!("+{}", object(bytes)),
        Raw::Deleted(bytes) => format!("-{}", object(bytes)),
        Raw::TooLarge { .. } => "too large".to_owned(),
        Raw::Lost(_) => "lost".to_owned(),
    }
}

/// All steps that are there without waiting.
fn drain(stream: &mut BoxStream<'static, Raw>) -> Vec<String> {
    std::iter::from_fn(|| stream.next().now_or_never().flatten())
        .map(|step| short(&step))
        .collect()
}

fn version(world: &World, kind: &'static Kind, namespace: &str, name: &str) -> u64 {
    let object = world.get(kind, namespace, name).unwrap();
    object["metadata"]["resourceVersion"]
        .as_str()
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test]
async fn a_follower_gets_the_state_and_then_each_change_in_order() {
    let world = world();
    world.put(&VM, "m", vm("a", "one", "Always"));
    let first = version(&world, &VM, "a", "one");
    let mut stream = world.follow(source(&VM, None));
    assert_eq!(
        drain(&mut stream),
        ["reset", &format!("+one@{first}"), "synced"]
    );
    world.put(&VM, "m", vm("b", "two", "Always"));
    world.edit(&VM, "a", "one", "m", |vm| {
        vm["spec"]["runStrategy"] = json!("Halted");
    });
    world.delete(&VM, "b", "two");
    let expected = [
        format!("+two@{}", first + 1),
        format!("+one@{}", first + 2),
        format!("-two@{}", first + 3),
    ];
    assert_eq!(drain(&mut stream), expected);
}

#[tokio::test]
async fn a_follower_sees_only_its_resource_and_its_namespace() {
    let world = world();
    let mut stream = world.follow(source(&VM, Some("a")));
    world.put(&VM, "m", vm("a", "mine", "Always"));
    world.put(&VM, "m", vm("b", "other", "Always"));
    world.put(&VMI, "m", vm("a", "instance", "Always"));
    let at = version(&world, &VM, "a", "mine");
    assert_eq!(
        drain(&mut stream),
        ["reset", "synced", &format!("+mine@{at}")]
    );
    let mut late = world.follow(source(&VM, Some("a")));
    assert_eq!(
        drain(&mut late),
        ["reset", &format!("+mine@{at}"), "synced"]
    );
}

#[tokio::test]
async fn a_follower_that_lags_gets_the_whole_state_again_without_what_is_gone() {
    let world = World::with_backlog(
        1,
        WorldTime::starting("2026-01-01T00:00:00Z".parse().unwrap()),
        4,
    );
    world.put(&VM, "m", vm("a", "gone", "Always"));
    world.put(&VM, "m", vm("a", "stays", "Always"));
    let mut stream = world.follow(source(&VM, None));
    assert_eq!(drain(&mut stream).len(), 4);
    world.delete(&VM, "a", "gone");
    for turn in 0..20 {
        world.edit(&VM, "a", "stays", "m", |vm| {
            vm["spec"]["turn"] = json!(turn);
        });
    }
    let at = version(&world, &VM, "a", "stays");
    assert_eq!(
        drain(&mut stream),
        ["reset", &format!("+stays@{at}"), "synced"]
    );
    world.edit(&VM, "a", "stays", "m", |vm| {
        vm["spec"]["turn"] = json!("last");
    });
    assert_eq!(drain(&mut stream), [format!("+stays@{}", at + 1)]);
}

#[tokio::test]
async fn a_resource_that_is_not_served_is_unresolved_and_empty() {
    let world = world();
    let pods = Gvr {
        group: String::new(),
        version: "v1".to_owned(),
        resource: "pods".to_owned(),
    };
    let served = |kind: &str, namespaced| Resolution::Served {
        kind: kind.to_owned(),
        namespaced,
    };
    let not_served = |resolution| matches!(resolution, Resolution::NotServed { .. });
    assert!(not_served(world.resolve(&pods).await));
    assert_eq!(world.resolve(&NODE.gvr()).await, served("Node", false));
    assert_eq!(
        world.resolve(&VM.gvr()).await,
        served("VirtualMachine", true)
    );
    let mut other = VM.gvr();
    other.version = "v1alpha3".to_owned();
    assert!(not_served(world.resolve(&other).await));
    let mut stream = world.follow(Source {
        target: pods.into(),
        namespace: None,
    });
    assert_eq!(drain(&mut stream), ["reset", "synced"]);
}

#[tokio::test]
async fn the_generation_rises_with_the_spec_and_with_a_deletion_and_not_with_the_status() {
    let world = world();
    world.put(&VM, "m", vm("a", "one", "Always"));
    let generation = || world.get(&VM, "a", "one").unwrap()["metadata"]["generation"].clone();
    assert_eq!(generation(), 1);
    world.edit(&VM, "a", "one", "m", |vm| {
        vm["status"] = json!({"ready": true});
    });
    assert_eq!(generation(), 1);
    world.edit(&VM, "a", "one", "m", |vm| {
        vm["spec"]["runStrategy"] = json!("Halted");
    });
    assert_eq!(generation(), 2);
    world.edit(&VM, "a", "one", "m", |vm| {
        vm["metadata"]["deletionTimestamp"] = json!("x");
    });
    assert_eq!(generation(), 3);
}

#[tokio::test]
async fn without_a_status_subresource_the_generation_rises_with_every_write() {
    let world = world();
    world.put(&CDI, "m", json!({"metadata": {"name": "cdi"}}));
    world.edit(&CDI, "", "cdi", "m", |cdi| {
        cdi["status"] = json!({"phase": "Deployed"});
    });
    assert_eq!(
        world.get(&CDI, "", "cdi").unwrap()["metadata"]["generation"],
        2
    );
    world.put(&NODE, "m", json!({"metadata": {"name": "node"}}));
    assert!(
        world.get(&NODE, "", "node").unwrap()["metadata"]
            .get("generation")
            .is_none()
    );
}

#[tokio::test]
async fn an_edit_that_changes_nothing_is_no_change() {
    let world = world();
    world.put(&VM, "m", vm("a", "one", "Always"));
    let mut stream = world.follow(source(&VM, None));
    drain(&mut stream);
    assert!(
        world.edit(&VM, "a", "one", "m", |vm| vm["spec"]["runStrategy"] =
            json!("Always"))
    );
    assert!(drain(&mut stream).is_empty());
    assert!(!world.edit(&VM, "a", "missing", "m", |_| ()));
    assert!(!world.delete(&VM, "a", "missing"));
}

#[tokio::test(start_paused = true)]
async fn metadata_looks_as_an_api_server_fills_it_in() {
    let world = world();
    world.put(&VM, "kubectl", vm("a", "one", "Always"));
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.edit(&VM, "a", "one", "virt-controller", |vm| {
        vm["status"]["ready"] = json!(true);
    });
    let object = world.get(&VM, "a", "one").unwrap();
    assert_eq!(object["apiVersion"], "kubevirt.io/v1");
    assert_eq!(object["kind"], "VirtualMachine");
    let meta = &object["metadata"];
    assert_eq!(meta["creationTimestamp"], "2026-01-01T00:00:00Z");
    uuid::Uuid::parse_str(meta["uid"].as_str().unwrap()).unwrap();
    let fields = meta["managedFields"].as_array().unwrap();
    assert_eq!(fields.len(), 2);
    assert_eq!(fields[0]["manager"], "kubectl");
    assert_eq!(fields[0]["time"], "2026-01-01T00:00:00Z");
    assert_eq!(
        fields[0]["fieldsV1"],
        json!({"f:spec": {"f:runStrategy": {}}})
    );
    assert_eq!(fields[1]["manager"], "virt-controller");
    assert_eq!(fields[1]["subresource"], "status");
    assert_eq!(fields[1]["time"], "2026-01-01T00:00:05Z");
}

#[tokio::test]
async fn an_object_that_is_created_again_is_another_one() {
    let world = world();
    let uid = || world.get(&VM, "a", "one").unwrap()["metadata"]["uid"].clone();
    world.put(&VM, "m", vm("a", "one", "Always"));
    let first = uid();
    world.put(&VM, "m", vm("a", "one", "Halted"));
    assert_eq!(uid(), first);
    world.delete(&VM, "a", "one");
    world.put(&VM, "m", vm("a", "one", "Always"));
    assert_ne!(uid(), first);
}
