//! Tests of the installation with the real kubectl and the steps in `docs/installation.md`. Each
//! test has a new control plane. Without a kubelet, the Pods of the Deployment never run, so the
//! tests start the server as a process.

use crate::harness::{
    Caller, ControlPlane, Kind, OPERATION, RULE_SET, ServerProcess, administrator, apart,
    condition, crd, credentials, eventually, front_proxy, kubeconfig_of, kubectl, ok_if, rule_set,
    text,
};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// The user name of the server.
pub const ACCOUNT: &str = "system:serviceaccount:ifo-system:ifo-apiserver";

/// The kind that the rule sets in `rules/cert-manager` watch.
const CERTIFICATE: Kind = Kind {
    api_version: "cert-manager.io/v1",
    kind: "Certificate",
    plural: "certificates",
};
const POD: Kind = Kind {
    api_version: "v1",
    kind: "Pod",
    plural: "pods",
};

/// A new cluster, and the steps of an installation on it.
pub struct Cluster<'a> {
    pub control_plane: &'a ControlPlane,
    pub admin: Caller,
    /// The namespace of the server.
    pub namespace: &'static str,
}

impl<'a> Cluster<'a> {
    pub async fn of(control_plane: &'a ControlPlane) -> Self {
        let (_, admin) = administrator(control_plane).await;
        Self {
            control_plane,
            admin,
            namespace: "ifo-system",
        }
    }

    pub async fn kubectl(&self, args: &[&str]) -> Result<String, String> {
        kubectl(&self.control_plane.addresses.kubectl, args, None).await
    }

    /// Runs `kubectl apply -k` or `kubectl delete -k` with a folder. `verb` is `apply` or `delete`.
    /// `folder` is a path in the repository, or an absolute path. Returns the output of kubectl.
    /// Fails if kubectl fails.
    pub async fn kubectl_on_folder(&self, verb: &str, folder: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let folder = folder
            .to_str()
            .expect("the path of the repository is UTF-8");
        let output = self.kubectl(&[verb, "-k", folder]).await;
        output.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Applies objects with `kubectl apply --server-side`. Returns an error if kubectl fails.
    pub async fn try_apply(&self, objects: &[Value]) -> Result<(), String> {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        let args = ["apply", "--server-side", "-f", "-"];
        let applied = kubectl(&self.control_plane.addresses.kubectl, &args, Some(list));
        applied.await.map(|_| ())
    }

    /// Deletes objects, and waits until they are gone.
    pub async fn delete_all(&self, objects: &[Value]) {
        let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
        let args = ["delete", "-f", "-"];
        let deleted = kubectl(&self.control_plane.addresses.kubectl, &args, Some(list));
        deleted.await.expect("the objects must exist");
    }

    /// Returns the objects that `kubectl kustomize` renders for a folder of the repository.
    pub async fn rendered(&self, folder: &str) -> Vec<Value> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let folder = folder
            .to_str()
            .expect("the path of the repository is UTF-8");
        let yaml = self.kubectl(&["kustomize", folder]).await;
        let yaml = yaml.unwrap_or_else(|error| panic!("{error}"));
        serde_saphyr::from_multiple(&yaml).expect("kubectl must print YAML")
    }

    /// Starts the server as a process with the flags and rights of the installed Deployment.
    /// Changes the Service, so that the kube-apiserver connects to this process.
    pub async fn server(&self) -> ServerProcess {
        let server = self.unrouted_server().await;
        self.route_to(&server).await;
        server
    }

    /// Changes the Service, so that the kube-apiserver connects to `server`.
    pub async fn route_to(&self, server: &ServerProcess) {
        let loopback = json!({"spec": {
            "type": "ExternalName", "externalName": "localhost",
            "ports": [{"name": "https", "port": server.port()}],
        }});
        self.kubectl(&[
            "patch",
            "service",
            "ifo-apiserver",
            "-n",
            self.namespace,
            "--type=merge",
            "-p",
            &loopback.to_string(),
        ])
        .await
        .expect("an administrator may change the Service");
    }

    /// Starts the server as [`Self::server`] does, without a change of the Service.
    pub async fn unrouted_server(&self) -> ServerProcess {
        let args = ["get", "deployment", "-n", self.namespace, "-o", "json"];
        let found = self
            .kubectl(&[&args[..], &["ifo-apiserver"]].concat())
            .await;
        let deployment: Value =
            serde_json::from_str(&found.expect("the Deployment must be installed"))
                .expect("kubectl must print JSON");
        let account = text(&deployment, "/spec/template/spec/serviceAccountName");
        let dir = &self.control_plane.addresses.dir;
        let kubeconfig = dir.join("ifo-apiserver.kubeconfig");
        let account = (self.namespace, account);
        // An earlier server process may have left a file with its port.
        let _ = std::fs::remove_file(dir.join("port"));
        kubeconfig_of(self.control_plane, &self.admin, account, &kubeconfig).await;
        ServerProcess::start(dir, &deployment, &kubeconfig).await
    }

    /// Registers the server: applies the kustomization in `apiservice`, writes the port of the
    /// server process into the APIService, and waits until operations are served.
    pub async fn register(&self, server: &ServerProcess) {
        self.register_with("apiservice", server).await;
    }

    /// Registers the server as [`Self::register`] does, with the kustomization in another folder.
    pub async fn register_with(&self, folder: &str, server: &ServerProcess) {
        self.apply_registration(folder, server).await;
        self.wait_until_served().await;
    }

    /// Applies a kustomization with the APIService, and writes the port of the server process into
    /// the APIService.
    pub async fn apply_registration(&self, folder: &str, server: &ServerProcess) {
        self.kubectl_on_folder("apply", folder).await;
        self.write_registered_port(server).await;
    }

    /// Writes the port of the server process into the APIService.
    pub async fn write_registered_port(&self, server: &ServerProcess) {
        let port = json!({"spec": {"service": {"port": server.port()}}});
        self.kubectl(&[
            "patch",
            "apiservice",
            "v1alpha1.live.ifo.kubevirt.io",
            "--type=merge",
            "-p",
            &port.to_string(),
        ])
        .await
        .expect("an administrator may change the APIService");
    }

    /// Waits until the kube-apiserver returns operations from the server.
    pub async fn wait_until_served(&self) {
        eventually("operations are served", async || {
            let answer = self.admin.get(&OPERATION.path(None)).await;
            ok_if(answer.code == 200, answer)
        })
        .await;
    }

    /// Asserts that a namespace can be created and deleted. kubectl waits until the namespace is
    /// gone.
    pub async fn a_namespace_can_be_deleted(&self, name: &str) {
        for args in [["create", "namespace", name], ["delete", "namespace", name]] {
            self.kubectl(&args)
                .await
                .expect("the namespace must be created and deleted");
        }
    }

    /// Returns the names of all rule sets.
    pub async fn rule_sets(&self) -> Vec<String> {
        let list = self.admin.get(&RULE_SET.path(None)).await.ok();
        let items = list["items"].as_array().expect("a list has items");
        let name = |it: &Value| text(it, "/metadata/name").to_owned();
        items.iter().map(name).collect()
    }

    pub async fn rule_set_until(
        &self,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Value {
        let path = format!("{}/{name}", RULE_SET.path(None));
        eventually(&format!("rule set {name}: {what}"), async || {
            let found = self.admin.get(&path).await.ok();
            ok_if(is(&found), &found["status"])?;
            Ok(found)
        })
        .await
    }

    /// Returns true if the ServiceAccount of the server has this right in all namespaces.
    async fn server_may(&self, verb: &str, resource: &str) -> bool {
        let args = ["auth", "can-i", verb, resource, "-A", "--as", ACCOUNT];
        let output = self.kubectl(&args).await;
        match &output {
            Ok(text) if text.trim() == "yes" => true,
            Err(text) if text.trim_end().ends_with("no") => false,
            other => panic!("{other:?}"),
        }
    }

    /// Returns the rules of a ClusterRole.
    async fn rules_of(&self, role: &str) -> Value {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
        self.admin.get(&path).await.ok()["rules"].take()
    }

    /// Returns the APIService, or None if it does not exist.
    pub async fn registration(&self) -> Option<Value> {
        let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";
        let answer = self.admin.get(path).await;
        (answer.code != 404).then(|| answer.ok())
    }

    /// Returns the errors and warnings in the server's log. Leaves out warnings about interrupted
    /// watches, because they depend on the load of the machine.
    fn errors_and_warnings(&self) -> Vec<String> {
        let log = self.control_plane.addresses.dir.join("ifo-apiserver.log");
        let log = std::fs::read_to_string(log).expect("the server writes a log");
        let is_error = |line: &&str| {
            (line.contains("ERROR") || line.contains("WARN"))
                && !line.contains("the watch is interrupted")
        };
        log.lines().filter(is_error).map(str::to_owned).collect()
    }
}

#[test]
fn the_installation_blocks_no_namespace_and_its_removal_keeps_rule_sets() {
    apart("installation", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        cluster.kubectl_on_folder("apply", "deploy/crd").await;
        cluster.kubectl_on_folder("apply", "deploy").await;
        let wait = [
            "wait",
            "--for=condition=Available",
            "deployment/ifo-apiserver",
            "-n",
            "ifo-system",
            "--timeout=1s",
        ];
        let waited = cluster.kubectl(&wait).await;
        let why = waited.expect_err("no kubelet runs the Deployment");
        assert!(why.contains("timed out waiting"), "{why}");
        assert_eq!(cluster.registration().await, None);
        cluster.a_namespace_can_be_deleted("before").await;

        // The right to read Pods is installed together with the rule sets that watch Pods. No rule
        // set is installed yet, so the server must not have this right.
        assert!(!cluster.server_may("list", "pods").await);
        assert_eq!(cluster.rules_of("ifo-targets").await, Value::Null);
        let server = cluster.server().await;
        cluster.register(&server).await;
        cluster
            .kubectl(&["get", "ifos", "-A"])
            .await
            .expect("operations must be served");
        cluster.a_namespace_can_be_deleted("during").await;
        check_rights_of_a_pack(&cluster).await;

        // A running server must log no error or warning when its registration is deleted.
        let before = cluster.errors_and_warnings();
        cluster.kubectl_on_folder("delete", "apiservice").await;
        cluster.a_namespace_can_be_deleted("unregistered").await;
        cluster.register(&server).await;
        assert_eq!(cluster.errors_and_warnings(), before);

        // The removal has the steps of the installation in reverse order.
        let rule_sets = cluster.rule_sets().await;
        assert_eq!(rule_sets, ["certificate-rules", "own"]);
        cluster.kubectl_on_folder("delete", "apiservice").await;
        cluster.kubectl_on_folder("delete", "deploy").await;
        drop(server);
        cluster.a_namespace_can_be_deleted("after").await;
        assert_eq!(cluster.rule_sets().await, rule_sets);
        let left = cluster.kubectl(&["get", "namespace", "ifo-system"]).await;
        assert!(left.is_err_and(|why| why.contains("NotFound")));
    });
}

/// Installs the rule pack `rules/cert-manager`, which contains rule sets and a ClusterRole. Asserts
/// that the pack gives the server the right to read certificates, and no other right. Also creates
/// a rule set for Pods. Its status must report that the server may not read Pods.
async fn check_rights_of_a_pack(cluster: &Cluster<'_>) {
    let definition = crd(&CERTIFICATE, "Namespaced");
    let crds = crate::harness::CRD.path(None);
    cluster.admin.post(&crds, &definition).await.ok();
    cluster
        .kubectl_on_folder("apply", "rules/cert-manager")
        .await;
    let own = rule_set(
        "own",
        &POD,
        &[("Starting", "object.status.phase == 'Pending'")],
    );
    cluster.admin.post(&RULE_SET.path(None), &own).await.ok();
    cluster
        .rule_set_until("certificate-rules", "Ready", |it| {
            condition(it, "Ready")["status"] == "True"
        })
        .await;
    assert_eq!(
        cluster.rules_of("ifo-targets").await,
        cluster.rules_of("ifo-rules-cert-manager").await
    );
    let may = async |verb: &str, resource: &str| cluster.server_may(verb, resource).await;
    assert!(may("watch", "certificates.cert-manager.io").await);
    for resource in ["pods", "secrets", "deployments.apps"] {
        assert!(!may("list", resource).await, "{resource}");
    }
    let failed = cluster
        .rule_set_until("own", "WatchFailed", |it| {
            condition(it, "WatchFailed")["status"] == "True"
        })
        .await;
    let message = text(condition(&failed, "WatchFailed"), "/message");
    assert!(message.contains("`kubectl ifo rules roles`"), "{message}");
}

/// Installs the server before the CRDs that it needs. When the CRDs exist, the server must work
/// without a restart. Returns the server.
async fn install_in_another_order(cluster: &Cluster<'_>) -> ServerProcess {
    cluster
        .kubectl_on_folder("apply", "deploy/persistence")
        .await;
    let server = cluster.server().await;
    let missing = "their CRD is not installed: kubectl apply -k deploy/crd";
    let count = |text: &str| {
        let all = cluster.errors_and_warnings();
        all.iter().filter(|line| line.contains(text)).count()
    };
    eventually("the missing CRD is logged", async || {
        ok_if(count(missing) > 0, cluster.errors_and_warnings())
    })
    .await;
    cluster.a_namespace_can_be_deleted("unequipped").await;
    for folder in ["deploy/crd", "deploy/crd-persistence"] {
        cluster.kubectl_on_folder("apply", folder).await;
    }
    cluster.register(&server).await;
    eventually("the registration has the condition", async || {
        let found = cluster.registration().await.unwrap_or_default();
        let persisted = condition(&found, "OperationsPersisted");
        ok_if(persisted["status"] == "True", &found["status"])
    })
    .await;
    assert_eq!(count(missing), 1, "{:?}", cluster.errors_and_warnings());
    assert_eq!(
        count("cannot be written"),
        0,
        "{:?}",
        cluster.errors_and_warnings()
    );
    server
}

#[test]
fn both_replicas_are_ready_before_the_server_is_registered() {
    apart("unregistered", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        cluster.kubectl_on_folder("apply", "deploy/crd").await;
        cluster.kubectl_on_folder("apply", "deploy").await;
        let path = "/apis/apps/v1/namespaces/ifo-system/deployments/ifo-apiserver";
        let deployment = cluster.admin.get(path).await.ok();
        let mut replicas = Vec::new();
        for name in ["a", "b"] {
            let dir = control_plane.addresses.dir.join(name);
            std::fs::create_dir_all(&dir).expect("the run's folder is ours");
            let kubeconfig = dir.join("kubeconfig");
            let url = &control_plane.addresses.apiserver_url;
            let account = ("ifo-system", "ifo-apiserver");
            credentials(control_plane, url, &cluster.admin, account, &kubeconfig).await;
            let mut replica = ServerProcess::start_unready(&dir, &deployment, &kubeconfig);
            replica.until_ready().await;
            replicas.push((dir, replica));
        }
        let (dir, follower) = &replicas[1];
        eventually("the follower cannot verify the leader", async || {
            let log = std::fs::read_to_string(dir.join("ifo-apiserver.log"));
            ok_if(
                log.unwrap_or_default().contains("not registered"),
                "the log does not contain the expected line",
            )
        })
        .await;
        // The Deployment is available only if both replicas stay ready. A follower copies the
        // operations of the leader. It usually becomes unready if it has not reached the leader for
        // 10 s. Before the registration, the follower cannot verify the leader's certificate, so it
        // cannot reach the leader. In spite of this, it must stay ready.
        let probe = Caller::new(follower.stranger());
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(13) {
            let answer = probe.get("/readyz?exclude=informer-sync").await;
            assert_eq!(answer.code, 200, "{answer:?}");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        // The follower has not copied the operations yet, so an empty list would be wrong. The
        // follower must answer with 429.
        let client = front_proxy(control_plane, follower.stranger());
        let admin = [
            ("X-Remote-User", "admin"),
            ("X-Remote-Group", "system:masters"),
        ];
        let answer = client.get_with(&OPERATION.path(None), &admin).await;
        assert_eq!(answer.code, 429, "{answer:?}");

        cluster.kubectl_on_folder("apply", "apiservice").await;
        eventually("the follower has the operations", async || {
            let answer = client.get_with(&OPERATION.path(None), &admin).await;
            ok_if(answer.code == 200, answer)
        })
        .await;
    });
}

#[test]
fn deleting_the_server_first_deletes_its_registration_and_keeps_rule_sets_and_history() {
    apart("removal", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        let mut server = install_in_another_order(&cluster).await;
        cluster.kubectl_on_folder("apply", "rules/generic").await;
        let rule_sets = cluster.rule_sets().await;
        assert!(rule_sets.len() > 5, "{rule_sets:?}");
        // The rule sets in `rules/generic` detect the rollout of the server's own Deployment. No
        // node runs the Pods of the Deployment, so this operation stays in flight.
        let records = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";
        let operation_uid =
            eventually("an operation is written as a custom resource", async || {
                let list = cluster.admin.get(records).await.ok();
                let first = list["items"][0]["metadata"]["uid"].clone();
                ok_if(first.is_string(), &list)?;
                Ok(first)
            })
            .await;
        eventually("the registration has an owner", async || {
            let found = cluster.registration().await;
            let owner = found.map(|it| it["metadata"]["ownerReferences"][0]["name"].clone());
            ok_if(owner == Some(json!("ifo-apiserver-registration")), &owner)
        })
        .await;

        // An administrator may forget to delete the APIService first. Then `kubectl delete -k
        // deploy/persistence` must also delete the APIService. No kubelet stops the server, so the
        // test kills it.
        server.kill().await;
        cluster
            .kubectl_on_folder("delete", "deploy/persistence")
            .await;
        assert_eq!(cluster.registration().await, None);
        cluster.a_namespace_can_be_deleted("after").await;
        assert_eq!(cluster.rule_sets().await, rule_sets);
        let kept = cluster.admin.get(records).await.ok();
        let mut kept = kept["items"].as_array().expect("a list has items").iter();
        assert!(kept.any(|it| it["metadata"]["uid"] == operation_uid));

        cluster.kubectl_on_folder("apply", "deploy").await;
        let server = cluster.server().await;
        cluster.register(&server).await;
        cluster
            .rule_set_until("deployment-rules", "Ready", |it| {
                condition(it, "Ready")["status"] == "True"
            })
            .await;
    });
}
