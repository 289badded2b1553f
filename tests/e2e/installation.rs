//! Tests of the steps in docs/installation.md with the real kubectl, each on a new control plane.
//! There is no kubelet, so no Pod of the Deployment runs, as with a missing image. The tests start
//! the server themselves.

use crate::harness::{
    Caller, ControlPlane, Kind, OPERATION, RULE_SET, Server, administrator, apart, condition, crd,
    eventually, kubeconfig_of, kubectl, rule_set, so, text,
};
use serde_json::{Value, json};
use std::path::Path;

const ACCOUNT: &str = "system:serviceaccount:ifo-system:ifo-apiserver";

/// The target of the pack `rules/cert-manager`.
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
        kubectl(&self.control_plane.state.kubectl, args, None).await
    }

    /// `kubectl apply -k` or `kubectl delete -k`.
    pub async fn with_folder(&self, verb: &str, folder: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
        let folder = folder.to_str().expect("the repository's path is UTF-8");
        let done = self.kubectl(&[verb, "-k", folder]).await;
        done.unwrap_or_else(|error| panic!("{error}"))
    }

    /// Starts the server with the flags and rights of the installed Deployment, at the address of
    /// the Service.
    pub async fn server(&self) -> Server {
        let args = ["get", "deployment", "-n", self.namespace, "-o", "json"];
        let found = self
            .kubectl(&[&args[..], &["ifo-apiserver"]].concat())
            .await;
        let deployment: Value =
            serde_json::from_str(&found.expect("it is installed")).expect("JSON");
        let account = text(&deployment, "/spec/template/spec/serviceAccountName");
        let dir = &self.control_plane.state.dir;
        let kubeconfig = dir.join("ifo-apiserver.kubeconfig");
        let account = (self.namespace, account);
        // Remains of an earlier server.
        let _ = std::fs::remove_file(dir.join("port"));
        kubeconfig_of(self.control_plane, &self.admin, account, &kubeconfig).await;
        let server = Server::start(dir, &deployment, &kubeconfig).await;
        let leads = json!({"spec": {
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
            &leads.to_string(),
        ])
        .await
        .expect("the Service can be changed");
        server
    }

    /// Registers the server with its port on this machine.
    pub async fn register(&self, server: &Server) {
        self.register_with("apiservice", server).await;
    }

    /// The same with another kustomization of the registration.
    pub async fn register_with(&self, folder: &str, server: &Server) {
        self.apply_registration(folder, server).await;
        self.until_served().await;
    }

    /// Applies a kustomization of the registration, with the port of the server on this machine.
    pub async fn apply_registration(&self, folder: &str, server: &Server) {
        self.with_folder("apply", folder).await;
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
        .expect("the APIService can be changed");
    }

    /// Waits until the kube-apiserver reaches the server.
    pub async fn until_served(&self) {
        eventually("operations are served", async || {
            let answer = self.admin.get(&OPERATION.path(None)).await;
            so(answer.code == 200, answer)
        })
        .await;
    }

    /// Creates and deletes a namespace. kubectl waits for the deletion.
    pub async fn a_namespace_can_be_deleted(&self, name: &str) {
        for args in [["create", "namespace", name], ["delete", "namespace", name]] {
            self.kubectl(&args).await.expect("it is not held up");
        }
    }

    async fn rule_sets(&self) -> Vec<String> {
        let list = self.admin.get(&RULE_SET.path(None)).await.ok();
        let items = list["items"].as_array().expect("a list has items");
        let name = |it: &Value| text(it, "/metadata/name").to_owned();
        items.iter().map(name).collect()
    }

    async fn rule_set_until(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        let path = format!("{}/{name}", RULE_SET.path(None));
        eventually(&format!("rule set {name}: {what}"), async || {
            let found = self.admin.get(&path).await.ok();
            so(is(&found), &found["status"])?;
            Ok(found)
        })
        .await
    }

    /// `kubectl auth can-i` for the server.
    async fn server_may(&self, verb: &str, resource: &str) -> bool {
        let args = ["auth", "can-i", verb, resource, "-A", "--as", ACCOUNT];
        let said = self.kubectl(&args).await;
        match &said {
            Ok(text) if text.trim() == "yes" => true,
            Err(text) if text.trim_end().ends_with("no") => false,
            other => panic!("{other:?}"),
        }
    }

    /// The rules of a ClusterRole.
    async fn rules_of(&self, role: &str) -> Value {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterroles/{role}");
        self.admin.get(&path).await.ok()["rules"].take()
    }

    pub async fn registration(&self) -> Option<Value> {
        let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1alpha1.live.ifo.kubevirt.io";
        let answer = self.admin.get(path).await;
        (answer.code != 404).then(|| answer.ok())
    }

    /// Errors and warnings in the server's log, except those about gaps of feeds.
    fn complaints(&self) -> Vec<String> {
        let log = self.control_plane.state.dir.join("ifo-apiserver.log");
        let log = std::fs::read_to_string(log).expect("the server has a log");
        let bad = |line: &&str| {
            (line.contains("ERROR") || line.contains("WARN")) && !line.contains(": gap source=")
        };
        log.lines().filter(bad).map(str::to_owned).collect()
    }
}

#[test]
fn the_installation_blocks_no_namespace_and_its_removal_keeps_rule_sets() {
    apart("installation", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        cluster.with_folder("apply", "deploy/crd").await;
        cluster.with_folder("apply", "deploy").await;
        let wait = [
            "wait",
            "--for=condition=Available",
            "deployment/ifo-apiserver",
            "-n",
            "ifo-system",
            "--timeout=1s",
        ];
        let waited = cluster.kubectl(&wait).await;
        let why = waited.expect_err("its image is missing");
        assert!(why.contains("timed out waiting"), "{why}");
        assert_eq!(cluster.registration().await, None);
        cluster.a_namespace_can_be_deleted("before").await;

        // No rule set has a target yet.
        assert!(!cluster.server_may("list", "pods").await);
        assert_eq!(cluster.rules_of("ifo-targets").await, Value::Null);
        let server = cluster.server().await;
        cluster.register(&server).await;
        cluster
            .kubectl(&["get", "ifos", "-A"])
            .await
            .expect("operations are served");
        cluster.a_namespace_can_be_deleted("during").await;
        one_pack_grants_its_targets_and_nothing_else(&cluster).await;

        // The registration is deleted and created while the server runs.
        let before = cluster.complaints();
        cluster.with_folder("delete", "apiservice").await;
        cluster.a_namespace_can_be_deleted("unregistered").await;
        cluster.register(&server).await;
        assert_eq!(cluster.complaints(), before);

        // The steps in reverse order.
        let rule_sets = cluster.rule_sets().await;
        assert_eq!(rule_sets, ["certificate-rules", "own"]);
        cluster.with_folder("delete", "apiservice").await;
        cluster.with_folder("delete", "deploy").await;
        drop(server);
        cluster.a_namespace_can_be_deleted("after").await;
        assert_eq!(cluster.rule_sets().await, rule_sets);
        let left = cluster.kubectl(&["get", "namespace", "ifo-system"]).await;
        assert!(left.is_err_and(|why| why.contains("NotFound")));
    });
}

/// With `rules/cert-manager`, and with a rule set for pods without the necessary right.
async fn one_pack_grants_its_targets_and_nothing_else(cluster: &Cluster<'_>) {
    let definition = crd(&CERTIFICATE, "Namespaced");
    let crds = crate::harness::CRD.path(None);
    cluster.admin.post(&crds, &definition).await.ok();
    cluster.with_folder("apply", "rules/cert-manager").await;
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
    for resource in ["pods", "secrets", "deployments.apps", "nodes"] {
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

/// The steps in a different order than documented.
async fn a_server_that_finds_everything_later(cluster: &Cluster<'_>) -> Server {
    cluster.with_folder("apply", "deploy/persistence").await;
    let server = cluster.server().await;
    let missing = "their CRD is not installed: kubectl apply -k deploy/crd";
    let said = |what: &str| {
        let all = cluster.complaints();
        all.iter().filter(|line| line.contains(what)).count()
    };
    eventually("the missing CRD is logged", async || {
        so(said(missing) > 0, cluster.complaints())
    })
    .await;
    cluster.a_namespace_can_be_deleted("unequipped").await;
    for folder in ["deploy/crd", "deploy/crd-persistence"] {
        cluster.with_folder("apply", folder).await;
    }
    cluster.register(&server).await;
    eventually("the registration has the condition", async || {
        let found = cluster.registration().await.unwrap_or_default();
        let kept = condition(&found, "OperationsPersisted");
        so(kept["status"] == "True", &found["status"])
    })
    .await;
    assert_eq!(said(missing), 1, "{:?}", cluster.complaints());
    assert_eq!(said("cannot be written"), 0, "{:?}", cluster.complaints());
    server
}

#[test]
fn deleting_the_server_first_also_deletes_only_its_registration() {
    apart("removal", async |control_plane| {
        let cluster = Cluster::of(control_plane).await;
        let mut server = a_server_that_finds_everything_later(&cluster).await;
        cluster.with_folder("apply", "rules/generic").await;
        let rule_sets = cluster.rule_sets().await;
        assert!(rule_sets.len() > 5, "{rule_sets:?}");
        // The Deployment of the server itself is an operation in flight, because no node runs it.
        let records = "/apis/ifo.kubevirt.io/v1alpha1/inflightoperations";
        let record = eventually("an operation is written", async || {
            let list = cluster.admin.get(records).await.ok();
            let first = list["items"][0]["metadata"]["uid"].clone();
            so(first.is_string(), &list)?;
            Ok(first)
        })
        .await;
        eventually("the registration has an owner", async || {
            let found = cluster.registration().await;
            let owner = found.map(|it| it["metadata"]["ownerReferences"][0]["name"].clone());
            so(owner == Some(json!("ifo-apiserver-registration")), &owner)
        })
        .await;

        // The obvious command without the step before it. The kubelet would end the server.
        server.kill().await;
        cluster.with_folder("delete", "deploy/persistence").await;
        assert_eq!(cluster.registration().await, None);
        cluster.a_namespace_can_be_deleted("after").await;
        assert_eq!(cluster.rule_sets().await, rule_sets);
        let kept = cluster.admin.get(records).await.ok();
        let mut kept = kept["items"].as_array().expect("a list").iter();
        assert!(kept.any(|it| it["metadata"]["uid"] == record));

        // The server can be installed again.
        cluster.with_folder("apply", "deploy").await;
        let server = cluster.server().await;
        cluster.register(&server).await;
        cluster
            .rule_set_until("deployment-rules", "Ready", |it| {
                condition(it, "Ready")["status"] == "True"
            })
            .await;
    });
}
