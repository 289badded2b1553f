//! Tests of the life of an installation with Helm: a failed installation, a successful
//! installation, `helm test`, an upgrade, a rollback and the removal. In other tests, Helm takes
//! over an installation by kustomize.

use super::kubelet::with_kubelet;
use super::{CHART, Helm, RULES_CHART};
use crate::deploy_manifests::NAMESPACE;
use crate::harness::{
    ControlPlane, OPERATION, ServerProcess, apart, condition, eventually, ok_if, text,
};
use crate::installation::Cluster;
use serde_json::{Value, json};
use std::path::Path;

const API_SERVICE: &str =
    "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";
const CRDS: [&str; 2] = [
    "operationrulesets.ifo.kubevirt.io",
    "inflightoperations.ifo.kubevirt.io",
];

/// The values of the installation.
const VALUES: [&str; 3] = [
    "--set=persistence.enabled=true",
    "--set=networkPolicy.enabled=true",
    "--set=replicas=3",
];

/// The values after the upgrade.
const OTHER_VALUES: [&str; 4] = [
    "--set=persistence.enabled=false",
    "--set=podAntiAffinity=hard",
    "--set=replicas=2",
    "--set=extraArgs={--max-watches=400}",
];

/// An installation with Helm.
pub struct Installation<'a> {
    pub helm: Helm,
    pub cluster: Cluster<'a>,
    /// The folder of a changed copy of the chart. In this copy, the Service and the APIService lead
    /// to a server process on this machine.
    routed: tempfile::TempDir,
}

impl<'a> Installation<'a> {
    pub async fn new(control_plane: &'a ControlPlane) -> Option<Self> {
        let mut cluster = Cluster::of(control_plane).await;
        cluster.namespace = NAMESPACE;
        Some(Self {
            helm: Helm::new(&control_plane.addresses.kubeconfig).await?,
            cluster,
            routed: tempfile::tempdir().expect("a temporary folder"),
        })
    }

    /// Runs Helm with the namespace of the installation.
    async fn try_helm(&self, args: &[&str]) -> Result<String, String> {
        self.helm
            .run(&[args, &["-n", self.cluster.namespace]].concat())
            .await
    }

    pub async fn helm(&self, args: &[&str]) -> String {
        let done = self.try_helm(args).await;
        done.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs kubectl with the namespace of the installation.
    async fn kubectl_in_namespace(&self, args: &[&str]) -> Result<String, String> {
        self.cluster
            .kubectl(&[args, &["-n", self.cluster.namespace]].concat())
            .await
    }

    /// Returns the flag that makes Helm remove a failed installation.
    fn atomic(&self) -> &'static str {
        if self.helm.major == 3 {
            "--atomic"
        } else {
            "--rollback-on-failure"
        }
    }

    /// Copies the chart, and returns the path of the copy. In the copy, only the Service and the
    /// APIService differ: they lead to `localhost` and the port of this server.
    pub fn chart_to(&self, server: &ServerProcess) -> String {
        let chart = self.routed.path().join("ifo");
        let _ = std::fs::remove_dir_all(&chart);
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(CHART), &chart);
        let port = format!("port: {}\n", server.port());
        for (file, old, new) in [
            ("base/service.yaml", "port: 443\n", port.as_str()),
            (
                "base/service.yaml",
                "spec:\n",
                "spec:\n  type: ExternalName\n  externalName: localhost\n",
            ),
            ("apiservice.yaml", "port: 443\n", port.as_str()),
        ] {
            let file = chart.join("templates").join(file);
            let text = std::fs::read_to_string(&file).expect("the chart must have this file");
            assert_eq!(text.matches(old).count(), 1, "{old}: {text}");
            std::fs::write(file, text.replace(old, new)).expect("the copy can be written");
        }
        let chart = chart.to_str().expect("the path is UTF-8");
        chart.to_owned()
    }

    async fn deployment(&self) -> Value {
        let path = format!(
            "/apis/apps/v1/namespaces/{}/deployments/ifo-apiserver",
            self.cluster.namespace
        );
        self.cluster.admin.get(&path).await.ok()
    }

    /// Returns the number of replicas in the Deployment, and true if the Deployment turns on
    /// persistence mode. In this mode, the server also writes operations as custom resources.
    async fn replicas_and_persistence(&self) -> (Value, bool) {
        let deployment = self.deployment().await;
        let env = deployment.pointer("/spec/template/spec/containers/0/env");
        let mut env = env.and_then(Value::as_array).expect("variables").iter();
        (
            deployment["spec"]["replicas"].clone(),
            env.any(|it| it["name"] == "PERSISTENCE"),
        )
    }

    /// Returns the fields that the server writes: `caBundle` and `ownerReferences` of its
    /// APIService, and `data` of its Secret.
    async fn written_by_the_server(&self) -> [Value; 3] {
        let mut registration = self.cluster.admin.get(API_SERVICE).await.ok();
        let secret = format!(
            "/api/v1/namespaces/{}/secrets/ifo-apiserver-serving-ca",
            self.cluster.namespace
        );
        let mut secret = self.cluster.admin.get(&secret).await.ok();
        [
            registration["spec"]["caBundle"].take(),
            registration["metadata"]["ownerReferences"].take(),
            secret["data"].take(),
        ]
    }

    async fn crds(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        for crd in CRDS {
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            let answer = self.cluster.admin.get(&format!("{path}/{crd}")).await;
            if answer.code != 404 {
                answer.ok();
                found.push(crd);
            }
        }
        found
    }

    /// Returns an error if objects of the installation remain in the cluster. An object of any kind
    /// belongs to the installation if its name contains `ifo`, or if it has a label of the
    /// installation. CRDs, their objects, objects of rule packs (folders with rule sets), and
    /// Events may remain.
    async fn remaining(&self) -> Result<(), String> {
        let kinds = ["api-resources", "--verbs=list", "-o", "name"];
        let kinds = self.cluster.kubectl(&kinds).await?;
        let kinds: Vec<&str> = kinds
            .lines()
            .filter(|kind| !kind.starts_with("events") && !kind.ends_with("ifo.kubevirt.io"))
            .collect();
        assert!(kinds.len() > 40, "{kinds:?}");
        let all = ["get", &kinds.join(","), "-A", "-o", "json"];
        let all: Value = serde_json::from_str(&self.cluster.kubectl(&all).await?).expect("JSON");
        let items = all["items"].as_array().expect("a list has items").iter();
        let ours = items.filter(|it| {
            let name = text(it, "/metadata/name");
            // Kubernetes creates the APIService `v1alpha1.ifo.kubevirt.io` for the API group of the
            // CRDs. So this APIService may remain, too.
            let crd = CRDS.contains(&name) || name == "v1alpha1.ifo.kubevirt.io";
            let of_a_pack = name.starts_with("ifo-rules-") || name.contains(".rules.v");
            let labels = &it["metadata"]["labels"];
            let labelled = labels["app.kubernetes.io/part-of"] == "ifo"
                || labels["app.kubernetes.io/name"] == "ifo-apiserver";
            !crd && !of_a_pack && (labelled || name.contains("ifo"))
        });
        let ours: Vec<String> = ours
            .map(|it| format!("{} {}", text(it, "/kind"), text(it, "/metadata/name")))
            .collect();
        ok_if(ours.is_empty(), &ours)
    }

    pub async fn nothing_is_left(&self, when: &str) {
        let what = format!("nothing is left {when}");
        eventually(&what, async || self.remaining().await).await;
        self.cluster.a_namespace_can_be_deleted("after").await;
    }
}

/// Copies a folder with all files.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("the folder is ours");
    for entry in std::fs::read_dir(from).expect("the folder must exist") {
        let entry = entry.expect("it can be read");
        let to = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &to);
        } else {
            std::fs::copy(entry.path(), to).expect("it can be copied");
        }
    }
}

#[test]
fn helm_installs_upgrades_and_removes_everything() {
    apart("helm", async |control_plane| {
        if let Some(installation) = Installation::new(control_plane).await {
            whole_life(installation).await;
        }
    });
}

async fn whole_life(it: Installation<'_>) {
    a_failed_installation_removes_itself(&it).await;
    an_installation_without_a_server_blocks_no_namespace(&it).await;

    // No server process runs during the installation. Later, the test starts a server process, and
    // an upgrade routes the Service to this process. The server creates its APIService.
    let install = ["install", "ifo", CHART, "--wait", it.atomic()];
    let install = [&install[..], &VALUES].concat();
    with_kubelet(&it.cluster, it.helm(&install)).await;
    assert_eq!(it.replicas_and_persistence().await, (json!(3), true));
    let mut server = it.cluster.unrouted_server().await;
    let chart = it.chart_to(&server);
    let upgrade = ["upgrade", "ifo", &chart];
    it.helm(&[&upgrade[..], &VALUES].concat()).await;
    it.cluster.wait_until_served().await;
    eventually("the server has written all fields", async || {
        let written = it.written_by_the_server().await;
        ok_if(written.iter().all(|field| !field.is_null()), &written)
    })
    .await;
    eventually("operations are persisted", async || {
        let found = it.cluster.registration().await.unwrap_or_default();
        let persisted = condition(&found, "OperationsPersisted");
        ok_if(persisted["status"] == "True", &found["status"])
    })
    .await;

    rule_packs_detect_an_operation(&it).await;
    let tested = with_kubelet(&it.cluster, it.helm(&["test", "ifo"])).await;
    assert!(tested.contains("Succeeded"), "{tested}");
    let test_pod = ["get", "pod", "ifo-apiserver-test"];
    let test_pod = it.kubectl_in_namespace(&test_pod).await;
    assert!(
        test_pod.as_ref().is_err_and(|why| why.contains("NotFound")),
        "{test_pod:?}"
    );

    upgrade_and_rollback(&it, &chart).await;

    // In a cluster, the kubelet would stop the server after `helm uninstall`. Here, the test stops
    // the server when the APIService has been deleted.
    let stop = async {
        let gone = async || {
            ok_if(
                it.cluster.registration().await.is_none(),
                "the server is still registered",
            )
        };
        eventually("the registration is removed", gone).await;
        assert!(server.terminate().await.success());
    };
    tokio::join!(it.helm(&["uninstall", "ifo"]), stop);
    it.nothing_is_left("after the removal").await;
    assert_eq!(it.crds().await, CRDS);
    let rule_sets = it.cluster.kubectl(&["get", "ors", "-o", "name"]).await;
    assert!(rule_sets.is_ok_and(|it| it.contains("deployment-rules")));

    // The CRDs of the first installation still exist, and no server runs. With `crds.keep=false`,
    // the next removal must delete the CRDs.
    let install = ["install", "ifo", CHART, "--set=crds.keep=false"];
    it.helm(&[&install[..], &["--set=persistence.enabled=true"]].concat())
        .await;
    it.helm(&["uninstall", "rules"]).await;
    it.helm(&[
        "upgrade",
        "ifo",
        CHART,
        "--reuse-values",
        "--set=replicas=1",
    ])
    .await;
    it.helm(&["uninstall", "ifo"]).await;
    it.nothing_is_left("after the removal with CRDs").await;
    eventually("the CRDs are deleted", async || {
        let crds = it.crds().await;
        ok_if(crds.is_empty(), &crds)
    })
    .await;
    let namespace = ["delete", "namespace", NAMESPACE];
    it.cluster
        .kubectl(&namespace)
        .await
        .expect("the namespace must be deleted");
}

/// Installs the chart while no Pod becomes ready, which happens in a cluster if the image is
/// missing. Helm must remove the failed installation.
async fn a_failed_installation_removes_itself(it: &Installation<'_>) {
    let install = [
        "install",
        "ifo",
        CHART,
        "--create-namespace",
        "--wait",
        "--timeout=5s",
        it.atomic(),
    ];
    let failed = it.try_helm(&install).await;
    let why = failed.expect_err("no Pod is ready");
    assert!(why.contains("ifo"), "{why}");
    it.nothing_is_left("after the failed installation").await;
}

/// Installs the chart with its default values, without `--wait`, while no Pod becomes ready. Then
/// removes it.
async fn an_installation_without_a_server_blocks_no_namespace(it: &Installation<'_>) {
    it.helm(&["install", "ifo", CHART]).await;
    it.cluster.a_namespace_can_be_deleted("during").await;
    it.helm(&["uninstall", "ifo"]).await;
    it.nothing_is_left("after an installation without a server")
        .await;
}

async fn rule_packs_detect_an_operation(it: &Installation<'_>) {
    it.helm(&["install", "rules", RULES_CHART]).await;
    let create = ["create", "deployment", "shop", "--image=missing"];
    it.cluster
        .kubectl(&create)
        .await
        .expect("the Deployment must be created");
    eventually("its rollout is an operation", async || {
        let listed = it.cluster.kubectl(&["get", "ifos", "-o", "name"]).await?;
        ok_if(listed.contains("shop-rollout"), &listed)
    })
    .await;
}

async fn upgrade_and_rollback(it: &Installation<'_>, chart: &str) {
    let written = it.written_by_the_server().await;
    let upgrade = ["upgrade", "ifo", chart];
    it.helm(&[&upgrade[..], &OTHER_VALUES].concat()).await;
    assert_eq!(it.replicas_and_persistence().await, (json!(2), false));
    // The kube-apiserver has accepted all fields of the rule about different nodes.
    let deployment = it.deployment().await;
    let rules = "/spec/template/spec/affinity/podAntiAffinity/\
                 requiredDuringSchedulingIgnoredDuringExecution";
    let rules = deployment.pointer(rules).expect("the value is `hard`");
    assert_eq!(rules[0]["matchLabelKeys"], json!(["pod-template-hash"]));
    assert_eq!(it.written_by_the_server().await, written);
    // The new values turn persistence mode off, but the CRD of the custom resources must still
    // exist.
    assert_eq!(it.crds().await, CRDS);

    let wrong = ["upgrade", "ifo", chart, "--set=replica=5"];
    let why = it.try_helm(&wrong).await.expect_err("a misspelt value");
    assert!(why.contains("'replica' not allowed"), "{why}");
    assert_eq!(it.replicas_and_persistence().await, (json!(2), false));

    it.helm(&["rollback", "ifo", "2"]).await;
    assert_eq!(it.replicas_and_persistence().await, (json!(3), true));
    assert_eq!(it.written_by_the_server().await, written);
    let answer = it.cluster.admin.get(&OPERATION.path(None)).await;
    assert_eq!(answer.code, 200, "{answer:?}");
}

/// Installs the server with kustomize. Then Helm takes over this installation. The UID of the
/// Deployment and the fields that the server has written must stay the same.
async fn take_over(mut it: Installation<'_>) {
    it.cluster.namespace = "ifo-system";
    for folder in ["deploy/crd", "deploy", "rules/generic"] {
        it.cluster.kubectl_on_folder("apply", folder).await;
    }
    let mut server = it.cluster.server().await;
    it.cluster.register(&server).await;
    eventually("the server has written all fields", async || {
        let written = it.written_by_the_server().await;
        ok_if(written.iter().all(|field| !field.is_null()), &written)
    })
    .await;
    let written = it.written_by_the_server().await;
    let uid = it.deployment().await["metadata"]["uid"].take();

    let chart = it.chart_to(&server);
    for (release, chart) in [("ifo", chart.as_str()), ("rules", RULES_CHART)] {
        let install = ["install", release, chart];
        let refused = it.try_helm(&install).await;
        let why = refused.expect_err("Helm does not own the existing objects");
        assert!(why.contains("invalid ownership metadata"), "{why}");
        let mut take = [&install[..], &["--take-ownership"]].concat();
        if it.helm.major == 4 {
            // Helm 4 uses server-side apply, but the field manager of `kubectl apply` owns the
            // fields. Without this flag, Helm fails because of conflicts.
            take.push("--force-conflicts");
        }
        it.helm(&take).await;
    }
    assert_eq!(it.deployment().await["metadata"]["uid"], uid);
    assert_eq!(it.written_by_the_server().await, written);
    it.cluster.wait_until_served().await;

    let (stopped, _) = tokio::join!(server.terminate(), it.helm(&["uninstall", "ifo"]));
    assert!(stopped.success());
    it.helm(&["uninstall", "rules"]).await;
    let namespace = ["delete", "namespace", "ifo-system"];
    it.cluster
        .kubectl(&namespace)
        .await
        .expect("the namespace must be deleted");
    it.nothing_is_left("after the removal").await;
}

#[test]
fn an_installation_by_kustomize_is_taken_over() {
    apart("helm-takes-over", async |control_plane| {
        if let Some(installation) = Installation::new(control_plane).await {
            take_over(installation).await;
        }
    });
}
