//! A folder of manifests in place of a cluster.

use super::harness::{Demo, Folders, RULE_SETS, vm};

const STARTING: &str = "object.status.printableStatus == 'Starting'";

#[tokio::test(flavor = "multi_thread")]
async fn operations_follow_the_files_of_a_folder() {
    let folders = Folders::new();
    folders.rule_set("vms", "Starting", STARTING);
    folders.vm("web", "Running");
    let demo = Demo::start(&folders.args()).await;
    demo.shows(&[]).await;
    // Replaced at once, as editors do.
    folders.vm("web", "Starting");
    demo.shows(&["web Starting"]).await;
    // Written in place, in two steps, the first of which is no whole object.
    let file = folders.objects.join("db.yaml");
    std::fs::write(&file, "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\n").unwrap();
    std::fs::write(&file, vm("db", "Starting")).unwrap();
    demo.shows(&["db Starting", "web Starting"]).await;
    std::fs::write(&file, vm("db", "Running")).unwrap();
    demo.shows(&["web Starting"]).await;
    // Gone with its file.
    std::fs::remove_file(folders.objects.join("web.yaml")).unwrap();
    demo.shows(&[]).await;
    // A folder within, with a list.
    std::fs::create_dir(folders.objects.join("more")).unwrap();
    let list = r#"{"apiVersion":"v1","kind":"List","items":[
        {"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"a"},"status":{"printableStatus":"Starting"}},
        {"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"name":"b"},"status":{"printableStatus":"Stopped"}}]}"#;
    folders.put(&folders.objects.join("more"), "list.json", list);
    demo.shows(&["a Starting"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rule_sets_follow_the_files_of_a_folder() {
    let folders = Folders::new();
    folders.vm("web", "Starting");
    let demo = Demo::start(&folders.args()).await;
    demo.shows(&[]).await;
    folders.rule_set("vms", "Starting", STARTING);
    demo.shows(&["web Starting"]).await;
    folders.rule_set("vms", "Booting", STARTING);
    demo.shows(&["web Booting"]).await;
    std::fs::remove_file(folders.rules.join("vms.json")).unwrap();
    demo.shows(&[]).await;
    assert!(demo.items(RULE_SETS).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_is_named_with_its_place_and_the_rest_goes_on() {
    let folders = Folders::new();
    folders.rule_set("vms", "Starting", STARTING);
    folders.vm("web", "Starting");
    folders.put(&folders.objects, "bad.yaml", "a: b\nc: [\n");
    folders.put(&folders.objects, "worse.json", "{\"a\": 1,\n]");
    std::fs::write(folders.objects.join("binary.yaml"), b"\xff\xfe\x00").unwrap();
    let half = format!("{}---\nkind: Pod\n", vm("half", "Starting"));
    folders.put(&folders.objects, "half.yaml", &half);
    let demo = Demo::start(&folders.args()).await;
    demo.shows(&["web Starting"]).await;
    demo.logged(&["bad.yaml", "line "]).await;
    demo.logged(&["worse.json", "line 2"]).await;
    demo.logged(&["binary.yaml", "UTF-8"]).await;
    demo.logged(&["half.yaml", "document 2", "apiVersion"])
        .await;
    // An object whose file becomes bad stays as it was, and is back with it.
    folders.put(&folders.objects, "web.yaml", "- nonsense");
    demo.logged(&["web.yaml", "not an object"]).await;
    folders.vm("db", "Starting");
    demo.shows(&["db Starting", "web Starting"]).await;
    folders.vm("web", "Running");
    demo.shows(&["db Starting"]).await;
}
