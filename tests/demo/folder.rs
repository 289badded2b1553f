//! Tests of a demo that reads its objects and rule sets from two folders of manifests. When a file
//! changes, the operations must change, too. The demo must report invalid files and invalid rule
//! sets.

use super::harness::{Demo, Folders, RULE_SETS, condition, eventually, rule_set, vm};
use serde_json::Value;

const STARTING: &str = "object.status.printableStatus == 'Starting'";

#[tokio::test(flavor = "multi_thread")]
async fn rule_sets_follow_the_files_of_a_folder() {
    let folders = Folders::new();
    folders.vm("web", "Starting");
    let demo = Demo::start(&folders.args()).await;
    demo.wait_for_operations(&[]).await;
    folders.rule_set("vms", "Starting", STARTING);
    demo.wait_for_operations(&["web Starting"]).await;
    folders.rule_set("vms", "Booting", STARTING);
    demo.wait_for_operations(&["web Booting"]).await;
    std::fs::remove_file(folders.rules.join("vms.json")).unwrap();
    demo.wait_for_operations(&[]).await;
    assert!(demo.items(RULE_SETS).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_file_is_reported_with_its_position_and_the_rest_continues() {
    let folders = Folders::new();
    folders.rule_set("vms", "Starting", STARTING);
    folders.vm("web", "Starting");
    folders.put(&folders.objects, "bad.yaml", "a: b\nc: [\n");
    folders.put(&folders.objects, "worse.json", "{\"a\": 1,\n]");
    std::fs::write(folders.objects.join("binary.yaml"), b"\xff\xfe\x00").unwrap();
    let half = format!("{}---\nkind: Pod\n", vm("half", "Starting"));
    folders.put(&folders.objects, "half.yaml", &half);
    let demo = Demo::start(&folders.args()).await;
    demo.wait_for_operations(&["web Starting"]).await;
    demo.wait_for_log(&["bad.yaml", "line "]).await;
    demo.wait_for_log(&["worse.json", "line 2"]).await;
    demo.wait_for_log(&["binary.yaml", "UTF-8"]).await;
    demo.wait_for_log(&["half.yaml", "document 2", "apiVersion"])
        .await;
    // While a file is invalid, the demo keeps the objects from the last valid content of the file.
    // The next valid content replaces them.
    folders.put(&folders.objects, "web.yaml", "- nonsense");
    demo.wait_for_log(&["web.yaml", "not an object"]).await;
    folders.vm("db", "Starting");
    demo.wait_for_operations(&["db Starting", "web Starting"])
        .await;
    folders.vm("web", "Running");
    demo.wait_for_operations(&["db Starting"]).await;
}

/// Waits until the condition of type `condition_type` of the rule set `name` has `status`.
/// Returns the rule set.
async fn wait_for_condition(demo: &Demo, name: &str, condition_type: &str, status: &str) -> Value {
    eventually(
        &format!("{condition_type}={status} of {name}"),
        async || {
            let all = demo.items(RULE_SETS).await;
            let own = all
                .into_iter()
                .find(|own| own["metadata"]["name"] == name)?;
            (condition(&own, condition_type)?["status"] == status).then_some(own)
        },
    )
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invalid_rule_set_is_reported_and_does_not_affect_the_others() {
    let folders = Folders::new();
    folders.vm("web", "Starting");
    folders.rule_set("good", "Starting", STARTING);
    folders.rule_set("syntax", "Broken", "object.status ==\n  1 +");
    let shapeless = "apiVersion: ifo.kubevirt.io/v1alpha1\nkind: OperationRuleSet\n\
                     metadata: {name: shapeless}\nspec: {rules: 7}\n";
    folders.put(&folders.rules, "shapeless.yaml", shapeless);
    let demo = Demo::start(&folders.args()).await;
    demo.wait_for_operations(&["web Starting"]).await;
    wait_for_condition(&demo, "good", "Ready", "True").await;
    let bad = wait_for_condition(&demo, "syntax", "InvalidRule", "True").await;
    let message = &condition(&bad, "InvalidRule").unwrap()["message"];
    for part in ["Broken", "2:6", "Syntax error"] {
        assert!(message.as_str().unwrap().contains(part), "{message}");
    }
    demo.wait_for_log(&["WARN", "rule set", "shapeless", "invalid type: integer `7`"])
        .await;

    // After the file of a rule set is corrected, the rule set becomes ready and detects operations,
    // without a restart of the demo.
    folders.rule_set("syntax", "Mended", STARTING);
    demo.wait_for_operations(&["web Mended", "web Starting"])
        .await;
    let mended = wait_for_condition(&demo, "syntax", "Ready", "True").await;
    assert!(condition(&mended, "InvalidRule").is_none(), "{mended}");
    assert_eq!(mended["status"]["observedGeneration"], 2);
    let text = rule_set("shapeless", "virtualmachines", "Shapely", STARTING);
    folders.put(&folders.rules, "shapeless.yaml", &text);
    demo.wait_for_operations(&["web Mended", "web Shapely", "web Starting"])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_set_with_a_wrong_kind_is_reported_once_for_each_change_of_its_file() {
    let folders = Folders::new();
    folders.vm("web", "Starting");
    let right = rule_set("vms", "virtualmachines", "Starting", STARTING);
    let wrong = right.replace("v1alpha1", "v1");
    folders.put(&folders.rules, "vms.json", &wrong);
    let broken = format!("{right} [");
    folders.put(&folders.rules, "broken.json", &broken);
    let demo = Demo::start(&folders.args()).await;
    let hint = "write ifo.kubevirt.io/v1alpha1 OperationRuleSet";
    demo.wait_for_log(&["ifo.kubevirt.io/v1 OperationRuleSet", "vms.json", hint])
        .await;
    demo.wait_for_log(&["the demo ignores the file", "broken.json"])
        .await;
    demo.wait_for_log(&["WARN", "no OperationRuleSet in", "rules"])
        .await;
    let wrong = right.replace("RuleSet", "Ruleset");
    folders.put(&folders.rules, "vms.json", &wrong);
    demo.wait_for_log(&["OperationRuleset", "vms.json", hint])
        .await;
    folders.put(&folders.rules, "vms.json", &right);
    demo.wait_for_operations(&["web Starting"]).await;
    folders.put(&folders.rules, "vms.json", &broken);
    demo.wait_for_log(&["the demo keeps the previous objects", "vms.json"])
        .await;
    let log = demo.log();
    let count = log.iter().filter(|line| line.contains(hint)).count();
    assert_eq!(count, 2, "{log:#?}");
}

const NAMESPACES: &str = "/api/v1/namespaces";

#[tokio::test(flavor = "multi_thread")]
async fn the_namespaces_are_those_of_the_objects() {
    let folders = Folders::new();
    folders.rule_set("vms", "Starting", STARTING);
    folders.vm("web", "Starting");
    let manifest = "{apiVersion: v1, kind: Namespace, metadata: {name: empty, labels: {a: b}}}";
    folders.put(&folders.objects, "empty.yaml", manifest);
    let demo = Demo::start(&folders.args()).await;
    demo.wait_for_operations(&["web Starting"]).await;
    let names = async || {
        let namespaces = demo.items(NAMESPACES).await.into_iter();
        let names = namespaces.map(|it| it["metadata"]["name"].as_str().unwrap().to_owned());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names().await, ["default", "empty", "ifo-system", "shop"]);
    let empty = demo.get(&format!("{NAMESPACES}/empty")).await.unwrap();
    assert_eq!(empty["metadata"]["labels"]["a"], "b");
    let shop = demo.get(&format!("{NAMESPACES}/shop")).await.unwrap();
    assert_eq!(shop["status"]["phase"], "Active");

    // If kubectl does not find an object, it reads the Namespace. If the Namespace exists, kubectl
    // prints the message about the object, and otherwise the message about the Namespace.
    let missing = demo.get(&format!("{NAMESPACES}/nowhere")).await;
    let Err(kube::Error::Api(status)) = missing else {
        panic!("the server must answer 404, because this namespace does not exist");
    };
    assert_eq!(status.message, "namespaces \"nowhere\" not found");
    let (code, err) = crate::run_plugin(&demo, &["list", "-n", "shpo"]).await;
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("there is no namespace \"shpo\""), "{err}");
    let (code, err) = crate::run_plugin(&demo, &["list", "-k", "vm"]).await;
    assert_eq!(code, Some(0), "{err}");
    let (code, err) = crate::run_plugin(&demo, &["wait", "-n", "empty", "--timeout=1m"]).await;
    assert_eq!(code, Some(0), "{err}");

    std::fs::remove_file(folders.objects.join("web.yaml")).unwrap();
    eventually("a list without the namespace shop", async || {
        (names().await == ["default", "empty", "ifo-system"]).then_some(())
    })
    .await;
}
