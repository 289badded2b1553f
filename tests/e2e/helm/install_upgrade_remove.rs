//! Tests of the life of an installation with Helm: a failed installation, a successful
//! installation, `helm test`, an upgrade, a rollback and the removal. In other tests, Helm takes
//! over an installation by kustomize.

use super::kubelet::with_kubelet;
use super::{CHART, Helm, RULES_CHART};
use crate::deploy_manifests::{NAMESPACE, until_nothing_remains};
use crate::harness::{
    API_SERVICE, CRD, Cluster, OPERATION, ServerProcess, apart, eventually, ok_if,
};
use serde_json::{Value, json};
use std::path::Path;

const CRDS: [&str; 2] = [
    "operationrulesets.ifo.kubevirt.io",
    "inflightoperations.ifo.kubevirt.io",
];

/// The values of the installation.
const VALUES: &str =
    "--set=persistence.enabled=true --set=networkPolicy.enabled=true --set=replicas=3";

/// The values after the upgrade.
const OTHER_VALUES: &str = "--set=persistence.enabled=false --set=podAntiAffinity=hard \
                            --set=replicas=2 --set=extraArgs={--max-watches=400}";

/// An installation with Helm.
pub struct Installation<'a> {
    pub helm: Helm,
    pub cluster: &'a Cluster,
    /// The folder of a changed copy of the chart. In this copy, the Service and the APIService lead
    /// to a server process on this machine.
    routed: tempfile::TempDir,
}

impl<'a> Installation<'a> {
    pub async fn new(cluster: &'a Cluster) -> Option<Self> {
        Some(Self {
            helm: Helm::new(&cluster.control_plane.addresses.kubeconfig).await?,
            cluster,
            routed: tempfile::tempdir().expect("a temporary folder"),
        })
    }

    /// Runs Helm with the namespace of the installation, with arguments that single spaces separate.
    async fn try_helm(&self, line: &str) -> Result<String, String> {
        let args = line.split(' ').chain(["-n", self.cluster.namespace]);
        self.helm.run(&args.collect::<Vec<_>>()).await
    }

    pub async fn helm(&self, line: &str) -> String {
        let done = self.try_helm(line).await;
        done.unwrap_or_else(|error| panic!("{error}"))
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

    /// Returns the number of replicas in the Deployment, and true if the Deployment turns on
    /// persistence mode. In this mode, the server also writes operations as custom resources.
    async fn replicas_and_persistence(&self) -> (Value, bool) {
        let deployment = self.cluster.deployment().await;
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
        let secrets = format!("/api/v1/namespaces/{}/secrets", self.cluster.namespace);
        let secret = format!("{secrets}/ifo-apiserver-serving-ca");
        let mut secret = self.cluster.admin.get(&secret).await.ok();
        [
            registration["spec"]["caBundle"].take(),
            registration["metadata"]["ownerReferences"].take(),
            secret["data"].take(),
        ]
    }

    /// Waits until the server has written these fields, and returns them.
    async fn until_written(&self) -> [Value; 3] {
        eventually("the server has written all fields", async || {
            let written = self.written_by_the_server().await;
            ok_if(written.iter().all(|field| !field.is_null()), &written)?;
            Ok(written)
        })
        .await
    }

    async fn crds(&self) -> Vec<&'static str> {
        let mut found = Vec::new();
        for name in CRDS {
            let answer = self.cluster.admin.get(&CRD.one(None, name)).await;
            if answer.code != 404 {
                answer.ok();
                found.push(name);
            }
        }
        found
    }
}

/// Copies a folder with all files.
fn copy(from: &Path, to: &Path) {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.expect("the folder can be read");
        let below = entry.path().strip_prefix(from).expect("it is below");
        if entry.file_type().is_dir() {
            std::fs::create_dir_all(to.join(below)).expect("the folder is ours");
        } else {
            std::fs::copy(entry.path(), to.join(below)).expect("it can be copied");
        }
    }
}

#[test]
fn helm_installs_upgrades_and_removes_everything() {
    apart("helm", async |cluster| {
        cluster.namespace = NAMESPACE;
        if let Some(installation) = Installation::new(cluster).await {
            whole_life(installation).await;
        }
    });
}

async fn whole_life(it: Installation<'_>) {
    // No Pod becomes ready, which happens in a cluster if the image is missing. Helm must remove the
    // failed installation.
    let wait = format!("--wait --timeout=5s {}", it.atomic());
    let install = format!("install ifo {CHART} --create-namespace {wait}");
    let why = it.try_helm(&install).await.expect_err("no Pod is ready");
    assert!(why.contains("ifo"), "{why}");
    until_nothing_remains(it.cluster).await;
    // Without `--wait`, the installation succeeds. It must not block other namespaces.
    it.helm(&format!("install ifo {CHART}")).await;
    it.cluster.a_namespace_can_be_deleted().await;
    it.helm("uninstall ifo").await;
    until_nothing_remains(it.cluster).await;

    // No server process runs during the installation. Later, the test starts a server process, and
    // an upgrade routes the Service to this process. The server creates its APIService.
    let install = format!("install ifo {CHART} --wait {} {VALUES}", it.atomic());
    with_kubelet(it.cluster, it.helm(&install)).await;
    assert_eq!(it.replicas_and_persistence().await, (json!(3), true));
    let mut server = it.cluster.unrouted_server().await;
    let chart = it.chart_to(&server);
    it.helm(&format!("upgrade ifo {chart} {VALUES}")).await;
    it.cluster.until_served().await;
    let written = it.until_written().await;
    it.cluster.until_persisted().await;

    it.helm(&format!("install rules {RULES_CHART}")).await;
    it.cluster
        .kubectl("create deployment shop --image=missing")
        .await;
    eventually("its rollout is an operation", async || {
        let listed = it.cluster.try_kubectl("get ifos -o name").await?;
        ok_if(listed.contains("shop-rollout"), &listed)
    })
    .await;
    let tested = with_kubelet(it.cluster, it.helm("test ifo")).await;
    assert!(tested.contains("Succeeded"), "{tested}");
    let test_pod = format!("get pod ifo-apiserver-test -n {NAMESPACE}");
    let gone = it.cluster.try_kubectl(&test_pod).await;
    assert!(gone.is_err_and(|why| why.contains("NotFound")));

    upgrade_and_rollback(&it, &chart, written).await;

    // In a cluster, the kubelet would stop the server after `helm uninstall`. Here, the test stops
    // the server when the APIService has been deleted.
    let stop = async {
        it.cluster.admin.until_code(API_SERVICE, 404).await;
        assert!(server.terminate().await.success());
    };
    tokio::join!(it.helm("uninstall ifo"), stop);
    until_nothing_remains(it.cluster).await;
    assert_eq!(it.crds().await, CRDS);
    let rule_sets = it.cluster.rule_sets().await;
    assert!(
        rule_sets.iter().any(|it| it == "deployment-rules"),
        "{rule_sets:?}"
    );

    // The CRDs of the first installation still exist, and no server runs. With `crds.keep=false`,
    // the next removal must delete the CRDs.
    let values = "--set=crds.keep=false --set=persistence.enabled=true";
    it.helm(&format!("install ifo {CHART} {values}")).await;
    it.helm("uninstall rules").await;
    it.helm(&format!(
        "upgrade ifo {CHART} --reuse-values --set=replicas=1"
    ))
    .await;
    it.helm("uninstall ifo").await;
    until_nothing_remains(it.cluster).await;
    eventually("the CRDs are deleted", async || {
        let crds = it.crds().await;
        ok_if(crds.is_empty(), &crds)
    })
    .await;
    it.cluster
        .kubectl(&format!("delete namespace {NAMESPACE}"))
        .await;
}

async fn upgrade_and_rollback(it: &Installation<'_>, chart: &str, written: [Value; 3]) {
    it.helm(&format!("upgrade ifo {chart} {OTHER_VALUES}"))
        .await;
    assert_eq!(it.replicas_and_persistence().await, (json!(2), false));
    // The kube-apiserver has accepted all fields of the rule about different nodes.
    let deployment = it.cluster.deployment().await;
    let affinity = &deployment["spec"]["template"]["spec"]["affinity"]["podAntiAffinity"];
    let rule = &affinity["requiredDuringSchedulingIgnoredDuringExecution"][0];
    assert_eq!(rule["matchLabelKeys"], json!(["pod-template-hash"]));
    assert_eq!(it.written_by_the_server().await, written);
    // The new values turn persistence mode off, but the CRD of the custom resources must still
    // exist.
    assert_eq!(it.crds().await, CRDS);

    let wrong = format!("upgrade ifo {chart} --set=replica=5");
    let why = it.try_helm(&wrong).await.expect_err("a misspelt value");
    assert!(why.contains("'replica' not allowed"), "{why}");
    assert_eq!(it.replicas_and_persistence().await, (json!(2), false));

    it.helm("rollback ifo 2").await;
    assert_eq!(it.replicas_and_persistence().await, (json!(3), true));
    assert_eq!(it.written_by_the_server().await, written);
    it.cluster.admin.get(&OPERATION.path(None)).await.ok();
}

/// Installs the server with kustomize. Then Helm takes over this installation. The UID of the
/// Deployment and the fields that the server has written must stay the same.
async fn take_over(it: Installation<'_>) {
    it.cluster
        .apply_folders(&["deploy/crd", "deploy", "rules/generic"])
        .await;
    let mut server = it.cluster.server().await;
    it.cluster.register_server(&server).await;
    let written = it.until_written().await;
    let uid = it.cluster.deployment().await["metadata"]["uid"].take();

    let chart = it.chart_to(&server);
    for (release, chart) in [("ifo", chart.as_str()), ("rules", RULES_CHART)] {
        let install = format!("install {release} {chart}");
        let refused = it.try_helm(&install).await;
        let why = refused.expect_err("Helm does not own the existing objects");
        assert!(why.contains("invalid ownership metadata"), "{why}");
        // Helm 4 uses server-side apply, but the field manager of `kubectl apply` owns the fields.
        // Without this flag, Helm fails because of conflicts.
        let force = if it.helm.major == 4 {
            " --force-conflicts"
        } else {
            ""
        };
        it.helm(&format!("{install} --take-ownership{force}")).await;
    }
    assert_eq!(it.cluster.deployment().await["metadata"]["uid"], uid);
    assert_eq!(it.written_by_the_server().await, written);
    it.cluster.until_served().await;

    let (stopped, _) = tokio::join!(server.terminate(), it.helm("uninstall ifo"));
    assert!(stopped.success());
    it.helm("uninstall rules").await;
    it.cluster.kubectl("delete namespace ifo-system").await;
    until_nothing_remains(it.cluster).await;
}

#[test]
fn an_installation_by_kustomize_is_taken_over() {
    apart("helm-takes-over", async |cluster| {
        if let Some(installation) = Installation::new(cluster).await {
            take_over(installation).await;
        }
    });
}
