//! Tests of a demo with its built-in scenes. A scene is a recording of changing objects, which the
//! demo replays in a loop. The tests read the operations as kubectl does. They also check the
//! rights of the users in the demo's kubeconfig.

use super::harness::{Demo, OPERATIONS, RULE_SETS, condition, eventually};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

#[tokio::test(flavor = "multi_thread")]
async fn the_demo_kubeconfig_can_read_operations_and_rule_sets() {
    let demo = Demo::start(&[]).await;
    let mode = std::fs::metadata(&demo.kubeconfig).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    eventually(
        "the command that sets KUBECONFIG in the output",
        async || {
            demo.stdout()
                .contains(&format!("export KUBECONFIG={}", demo.kubeconfig.display()))
                .then_some(())
        },
    )
    .await;

    eventually("operations of several kinds", async || {
        let operations = demo.operations().await;
        let names: BTreeSet<_> = operations
            .iter()
            .map(|operation| operation["spec"]["operation"].as_str().unwrap().to_owned())
            .collect();
        (names.len() >= 3).then_some(())
    })
    .await;
    eventually("every rule set to be ready", async || {
        let rule_sets = demo.items(RULE_SETS).await;
        let ready = |rule_set| condition(rule_set, "Ready").is_some_and(|c| c["status"] == "True");
        (!rule_sets.is_empty() && rule_sets.iter().all(ready)).then_some(())
    })
    .await;

    let apis = demo.client.list_api_groups().await.unwrap();
    let groups: BTreeSet<_> = apis
        .groups
        .iter()
        .map(|group| group.name.as_str())
        .collect();
    for group in ["ifo.kubevirt.io", "live.ifo.kubevirt.io", "kubevirt.io"] {
        assert!(groups.contains(group), "{groups:?}");
    }
    let live = demo
        .client
        .list_api_group_resources("live.ifo.kubevirt.io/v1alpha1")
        .await
        .unwrap();
    assert_eq!(live.resources[0].kind, "InFlightOperation");

    // `kubectl get ifos -A -w` sends this watch request. Each event contains a table with one row.
    let mut watch = demo.watch(&format!("{OPERATIONS}?watch=true"), TABLE).await;
    for n in 0..15 {
        let event = watch.next().await.expect("the watch must not end");
        let table = &event["object"];
        assert_eq!(table["kind"], "Table", "{event}");
        assert_eq!(table["rows"].as_array().unwrap().len(), 1);
        // Only the first table contains the columns.
        assert_eq!(table["columnDefinitions"].is_null(), n > 0, "{n}: {event}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_token_only_discovery_is_allowed() {
    let demo = Demo::start(&[]).await;
    let code = async |path: &str, token: Option<&str>| {
        let mut config = demo.config.clone();
        config.auth_info.token = token.map(Into::into);
        let client = kube::Client::try_from(config).unwrap();
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        match client.request_text(request).await {
            Ok(_) => 200,
            Err(kube::Error::Api(status)) => status.code,
            Err(error) => panic!("{path}: {error}"),
        }
    };
    for path in ["/apis", "/version", "/healthz", "/openapi/v2"] {
        assert_eq!(code(path, None).await, 200, "{path}");
    }
    for path in [
        OPERATIONS,
        RULE_SETS,
        "/api/v1/namespaces",
        "/api/v1/namespaces/default",
    ] {
        assert_eq!(code(path, None).await, 403, "{path}");
        assert_eq!(code(path, Some("guessed")).await, 401, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_objects_of_the_scenes_can_be_read() {
    let demo = Demo::start(&[]).await;
    let machines = "/apis/kubevirt.io/v1/namespaces/team-b/virtualmachines";
    let mail = demo.get(&format!("{machines}/mail")).await.unwrap();
    assert_eq!(mail["metadata"]["namespace"], "team-b");
    // The demo replays each scene in a loop. The VirtualMachine `mail` exists from the beginning of
    // its scene, so its UID stays the same in all rounds.
    let lists_mail = async |path: &str| {
        let items = demo.items(path).await;
        let uid = &mail["metadata"]["uid"];
        items.iter().any(|item| item["metadata"]["uid"] == *uid)
    };
    assert!(lists_mail(machines).await);
    assert!(lists_mail("/apis/kubevirt.io/v1/virtualmachines").await);
    for (include, kind) in [
        ("Metadata", "PartialObjectMetadata"),
        ("Object", "VirtualMachine"),
    ] {
        let request = http::Request::get(format!("{machines}/mail?includeObject={include}"));
        let request = request.header("accept", TABLE).body(Vec::new()).unwrap();
        let table: Value = demo.client.request(request).await.unwrap();
        assert_eq!(table["columnDefinitions"][1]["name"], "Age");
        assert_eq!(table["rows"][0]["cells"][0], "mail");
        assert_eq!(table["rows"][0]["object"]["kind"], kind);
        assert_eq!(
            table["rows"][0]["object"]["metadata"]["namespace"],
            "team-b"
        );
    }
    assert!(!lists_mail("/apis/kubevirt.io/v1/namespaces/team-a/virtualmachines").await);
    let mut watch = demo
        .watch("/api/v1/namespaces?watch=true", "application/json")
        .await;
    assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
}

#[tokio::test(flavor = "multi_thread")]
async fn reviews_tell_what_the_users_may_read() {
    let demo = Demo::start(&[]).await;
    assert!(demo.stdout().contains("--context ifo-demo-team-a"));
    let viewer = demo.client_of("ifo-demo-team-a").await;
    let code = async |path: &str| {
        let request = http::Request::get(path).body(Vec::new()).unwrap();
        eventually("an answer", async || {
            match viewer.request_text(request.clone()).await {
                Ok(_) => Some(200),
                // At its start, the server answers 429 until it has read all targets.
                Err(kube::Error::Api(status)) if status.code == 429 => None,
                Err(kube::Error::Api(status)) => Some(status.code),
                Err(error) => panic!("{path}: {error}"),
            }
        })
        .await
    };
    let live = "/apis/live.ifo.kubevirt.io/v1alpha1";
    for (path, expected) in [
        (
            &*format!("{live}/namespaces/team-a/inflightoperations"),
            200,
        ),
        (OPERATIONS, 403),
        ("/apis/apps/v1/namespaces/team-a/deployments", 200),
        ("/apis/apps/v1/namespaces/team-b/deployments", 403),
        ("/apis/ifo.kubevirt.io/v1alpha1/operationrulesets", 403),
        ("/metrics", 403),
    ] {
        assert_eq!(code(path).await, expected, "{path}");
    }
    // k9s and `kubectl auth can-i` ask what the user may do.
    for (client, verb, namespace, expected) in [
        (&viewer, "list", "team-a", true),
        (&viewer, "list", "", false),
        (&viewer, "delete", "team-a", false),
        (&demo.client, "list", "", true),
    ] {
        let attributes =
            json!({"verb": verb, "resource": "inflightoperations", "namespace": namespace});
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": attributes},
        });
        let request = http::Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header("content-type", "application/json")
            .body(review.to_string().into_bytes())
            .unwrap();
        let answer: Value = client.request(request).await.unwrap();
        let allowed = &answer["status"]["allowed"];
        assert_eq!(*allowed, expected, "{verb} in {namespace:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn selectors_select_pods_and_an_eviction_must_be_a_dry_run() {
    let demo = Demo::start(&[]).await;
    let pods = "/api/v1/namespaces/team-b/pods";
    let name = "virt-launcher-mail-z6snl";
    let names = async |query: &str| {
        let items = demo.items(&format!("{pods}?{query}")).await;
        let names = items.iter().map(|it| it["metadata"]["name"].to_string());
        names.collect::<BTreeSet<_>>()
    };
    let of_mail = names("labelSelector=vm.kubevirt.io/name%3Dmail").await;
    assert!(
        of_mail.iter().all(|it| it.contains("-mail-")),
        "{of_mail:?}"
    );
    for (query, is_selected) in [
        ("labelSelector=vm.kubevirt.io/name%3Dmail", true),
        ("labelSelector=vm.kubevirt.io/name%3Dnone", false),
        ("fieldSelector=spec.nodeName%3Dworker-2", true),
        ("fieldSelector=spec.nodeName%3Dworker-1", false),
    ] {
        let found = names(query).await.contains(&format!("\"{name}\""));
        assert_eq!(found, is_selected, "{query}");
    }

    let evict = async |client: &kube::Client, query: &str| {
        let request = http::Request::post(format!("{pods}/{name}/eviction{query}"));
        match client.request_text(request.body(Vec::new()).unwrap()).await {
            Err(kube::Error::Api(status)) => (status.code, status.message.clone()),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(evict(&demo.client, "").await.0, 405);
    let viewer = demo.client_of("ifo-demo-team-a").await;
    let (code, message) = evict(&viewer, "?dryRun=All").await;
    assert!(
        code == 403 && message.contains("cannot create resource \"pods/eviction\""),
        "{message}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signal_ends_the_demo_and_its_watches_cleanly() {
    for signal in ["INT", "TERM"] {
        let mut demo = Demo::start(&[]).await;
        let path = format!("{OPERATIONS}?watch=true");
        let mut watch = demo.watch(&path, "application/json").await;
        assert_eq!(watch.next().await.unwrap()["type"], "ADDED");
        // No operation has this label, so the watch sends no event.
        let mut without_events = demo
            .watch(&format!("{path}&labelSelector=none=such"), TABLE)
            .await;
        demo.signal(signal);
        // Each watch must end without an error event.
        while let Some(event) = watch.next().await {
            assert_ne!(event["type"], "ERROR", "{event}");
        }
        assert_eq!(without_events.next().await, None);
        assert_eq!(
            demo.wait_for_exit().await.code(),
            Some(0),
            "{:#?}",
            demo.log()
        );
        assert!(
            !demo.kubeconfig.exists(),
            "the demo must delete its kubeconfig, because the credential in it is no longer valid"
        );
        // A server behind a Service is unready for some seconds before it stops. The demo is not.
        let wrong = ["ERROR", "panicked", "is now unready"];
        let is_wrong = |line: &String| wrong.iter().any(|it| line.contains(it));
        assert!(!demo.log().iter().any(is_wrong), "{:#?}", demo.log());
    }
}
