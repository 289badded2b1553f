//! Tests of the kustomize components in `deploy/components`. Each combination of components must
//! render the expected objects, in the default namespace and in another namespace. One test
//! installs the server with all [`COMPONENTS`] in the other namespace, and removes it.

pub mod certificate_renewal;
mod olm;
mod self_registration;

use crate::harness::{CRD, Cluster, Kind, OPERATION, apart, crd, shared, text};
use serde_json::{Value, json};
use std::path::Path;
use tokio::sync::OnceCell;

pub const COMPONENTS: [&str; 8] = [
    "persistence",
    "network-policy",
    "replicas",
    "monitoring",
    COMPONENT_OWNERS,
    GATE_WEBHOOK,
    SUBJECT_VISIBILITY,
    REGISTER,
];

/// The component with the policy that gives components to groups of users.
pub const COMPONENT_OWNERS: &str = "component-owners";

/// The component with the admission webhook.
pub const GATE_WEBHOOK: &str = "gate-webhook";

/// The component with which each user sees the operations on the objects that the user may get.
pub const SUBJECT_VISIBILITY: &str = "subject-visibility";

/// The component with which the server creates its `APIService`.
pub const REGISTER: &str = "register";

/// The components that provide a serving certificate. An installation uses at most one of them.
/// `None` is an installation without such a component: the server issues its certificate with its
/// own CA.
pub const CERTIFICATES: [Option<&str>; 3] =
    [None, Some("cert-manager"), Some("openshift-service-ca")];

/// The namespace in which the tests install the server if they do not use the default namespace.
pub const NAMESPACE: &str = "operations";

/// A kustomization in a temporary folder, as an administrator would write it.
pub struct Overlay {
    folder: tempfile::TempDir,
}

impl Overlay {
    /// Writes a kustomization that uses `base` (`deploy` or `apiservice`) and these components. If
    /// `namespace` is set, the kustomization also moves the objects to this namespace.
    pub fn new(base: &str, components: &[&str], namespace: Option<&str>) -> Self {
        let folder = tempfile::tempdir().expect("temporary folders can be created");
        let root = folder.path().canonicalize().expect("the folder exists");
        // kustomize accepts only relative paths of folders.
        let up = "../".repeat(root.components().count() - 1);
        let repository = format!("{up}.{}", env!("CARGO_MANIFEST_DIR"));
        let components: Vec<_> = components
            .iter()
            .map(|name| format!("{repository}/{base}/components/{name}"))
            .collect();
        let mut kustomization = json!({
            "resources": [format!("{repository}/{base}")],
            "components": components,
        });
        if let Some(namespace) = namespace {
            kustomization["namespace"] = namespace.into();
            let transformers = format!("{repository}/{base}/transformers/namespace");
            kustomization["transformers"] = json!([transformers]);
        }
        let file = root.join("kustomization.yaml");
        std::fs::write(file, kustomization.to_string()).expect("the folder is writable");
        Self { folder }
    }

    pub fn path(&self) -> &str {
        let path = self.folder.path().to_str();
        path.expect("the path of a temporary folder is UTF-8")
    }
}

/// Returns the object of this kind and name. Fails if there is no such object, or more than one.
pub fn only_object<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut found = objects
        .iter()
        .filter(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    let object = found.next();
    let object = object.unwrap_or_else(|| panic!("there is no {kind} {name}"));
    assert!(found.next().is_none(), "there are several {kind} {name}");
    object
}

/// Returns all strings in a value.
fn strings(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(strings).collect(),
        Value::Object(members) => members.values().flat_map(strings).collect(),
        _ => Vec::new(),
    }
}

/// One combination of options that an administrator can choose.
pub struct Choice {
    /// The chosen components, including `certificate_source`.
    pub components: Vec<&'static str>,
    /// The component that provides the serving certificate, an element of [`CERTIFICATES`].
    pub certificate_source: Option<&'static str>,
    /// The namespace that the overlay sets. If it is None, the objects stay in the namespace of the
    /// manifests, `ifo-system`.
    pub namespace: Option<&'static str>,
}

/// Returns combinations of components, sources of certificates and namespaces. To keep the number of
/// combinations small, the component [`REGISTER`] is in exactly those combinations that have an even
/// number of other components. [`COMPONENT_OWNERS`], [`GATE_WEBHOOK`] and [`SUBJECT_VISIBILITY`] are in
/// all others.
///
/// Unless `.ci/nightly` sets `IFO_FULL_SIZE`, there is one source of certificates and one namespace for each choice of
/// components. The 16 remaining combinations still contain each pair of two components, of a component
/// and a source or namespace, and of a source and a namespace.
fn choices() -> Vec<Choice> {
    let namespaces = [None, Some(NAMESPACE)];
    let is_full = std::env::var_os("IFO_FULL_SIZE").is_some();
    let mut choices = Vec::new();
    for chosen in 0..1_usize << (COMPONENTS.len() - 4) {
        let is_chosen = |(bit, name): &(usize, &str)| match *name {
            REGISTER => chosen.count_ones().is_multiple_of(2),
            COMPONENT_OWNERS | GATE_WEBHOOK | SUBJECT_VISIBILITY => {
                !chosen.count_ones().is_multiple_of(2)
            }
            _ => chosen >> bit & 1 == 1,
        };
        for (source, certificate_source) in CERTIFICATES.into_iter().enumerate() {
            for (which, namespace) in namespaces.into_iter().enumerate() {
                if !is_full && (source, which) != (chosen % 5 % 3, chosen % 3 % 2) {
                    continue;
                }
                let components = COMPONENTS.into_iter().enumerate().filter(is_chosen);
                let components = components.map(|(_, name)| name).chain(certificate_source);
                choices.push(Choice {
                    components: components.collect(),
                    certificate_source,
                    namespace,
                });
            }
        }
    }
    choices
}

/// A combination, the objects of the server, and the objects of its registration.
pub type RenderedChoice = (Choice, Vec<Value>, Vec<Value>);

/// Returns the combinations with their rendered objects. Two tests use the objects, and only the first
/// call renders them, because each rendering starts kubectl.
pub async fn rendered_choices(cluster: &Cluster) -> &'static [RenderedChoice] {
    static RENDERED: OnceCell<Vec<RenderedChoice>> = OnceCell::const_new();
    let render = async || {
        let mut rendered = Vec::new();
        for choice in choices() {
            let server = Overlay::new("deploy", &choice.components, choice.namespace);
            let source: Vec<&str> = choice.certificate_source.into_iter().collect();
            let registration = Overlay::new("apiservice", &source, choice.namespace);
            let server = cluster.kustomize(server.path()).await;
            let registration = cluster.kustomize(registration.path()).await;
            rendered.push((choice, server, registration));
        }
        rendered
    };
    RENDERED.get_or_init(render).await
}

#[test]
fn every_combination_of_components_renders_in_every_namespace() {
    shared(async |cluster| {
        for (choice, server, registration) in rendered_choices(cluster).await {
            let namespace = choice.namespace.unwrap_or("ifo-system");
            check_components(server, &choice.components);
            check_namespace(server, registration, namespace);
            check_certificates(server, registration, choice.certificate_source, namespace);
            if choice.components.contains(&"monitoring") {
                check_monitoring(server, choice.certificate_source, namespace);
            }
        }
    });
}

/// Asserts that the objects of a component exist if and only if the component is chosen. Also
/// asserts that the Deployment still has its important flags and the variable `POD_UID`. A patch of
/// a component could remove them by mistake.
fn check_components(objects: &[Value], components: &[&str]) {
    let deployment = only_object(objects, "Deployment", "ifo-apiserver");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let args = strings(&container["args"]);
    for flag in [
        "--leader-elect",
        "--peer-token-file=/var/run/secrets/ifo-apiserver/token",
        "--namespace=$(POD_NAMESPACE)",
    ] {
        assert!(args.contains(&flag), "{components:?}: {args:?}");
    }
    let env = container["env"].as_array().expect("there are variables");
    let has_variable = |name: &str| env.iter().any(|it| it["name"] == name);
    assert!(has_variable("POD_UID"), "{components:?}");
    let has = |component: &str| components.contains(&component);
    assert_eq!(has_variable("PERSISTENCE"), has("persistence"));
    let kinds: Vec<_> = objects.iter().map(|it| text(it, "/kind")).collect();
    assert_eq!(kinds.contains(&"NetworkPolicy"), has("network-policy"));
    for kind in ["ServiceMonitor", "PrometheusRule"] {
        assert_eq!(kinds.contains(&kind), has("monitoring"), "{kind}");
    }
    let replicas = if has("replicas") { 3 } else { 2 };
    assert_eq!(deployment["spec"]["replicas"], replicas);
    for (flag, component) in [
        ("--register", REGISTER),
        ("--gate-webhook", GATE_WEBHOOK),
        ("--visibility=subject", SUBJECT_VISIBILITY),
    ] {
        assert_eq!(args.contains(&flag), has(component), "{flag}");
    }
    for (name, component) in [
        ("ifo-gate", GATE_WEBHOOK),
        ("ifo-apiserver-register", REGISTER),
        ("ifo-component-owners", COMPONENT_OWNERS),
        ("ifo-view-own", SUBJECT_VISIBILITY),
    ] {
        let mut names = objects.iter().map(|it| text(it, "/metadata/name"));
        assert_eq!(names.any(|it| it == name), has(component), "{name}");
    }
}

/// Asserts that each namespaced object is in `namespace`. One RoleBinding is an exception: it must
/// be in `kube-system`, because its role is there. If `namespace` is not the default namespace,
/// also asserts that no string contains the name of the default namespace.
fn check_namespace(server: &[Value], registration: &[Value], namespace: &str) {
    only_object(server, "Namespace", namespace);
    let binding = "ifo-apiserver-authentication-reader";
    for object in server {
        let expected = if object["metadata"]["name"] == binding {
            "kube-system"
        } else {
            namespace
        };
        let found = &object["metadata"]["namespace"];
        assert!(found.is_null() || found == expected, "{object}");
        let subjects = object["subjects"].as_array().into_iter().flatten();
        // A group is in no namespace. The ServiceAccount of Prometheus belongs to the installation of
        // Prometheus.
        let is_ours = |it: &&Value| it["kind"] != "Group" && it["name"] != "prometheus-k8s";
        for subject in subjects.filter(is_ours) {
            assert_eq!(subject["namespace"], namespace, "{object}");
        }
    }
    only_object(server, "RoleBinding", binding);
    let api_service = only_object(registration, "APIService", "v1alpha1.live.ifo.kubevirt.io");
    assert_eq!(api_service["spec"]["service"]["namespace"], namespace);
    if namespace != "ifo-system" {
        for object in server.iter().chain(registration) {
            for text in strings(object) {
                assert!(!text.contains("ifo-system"), "{text}: {object}");
            }
        }
    }
}

/// Asserts that the ServiceMonitor selects the Service, and that Prometheus verifies the server's
/// certificate with the right CA. `source` is the component that provides the certificate, an
/// element of [`CERTIFICATES`].
fn check_monitoring(server: &[Value], source: Option<&str>, namespace: &str) {
    let monitor = &only_object(server, "ServiceMonitor", "ifo-apiserver")["spec"];
    let service = only_object(server, "Service", "ifo-apiserver");
    let selected = monitor["selector"]["matchLabels"].as_object();
    for (key, value) in selected.expect("the ServiceMonitor must select by labels") {
        assert_eq!(&service["metadata"]["labels"][key], value);
    }
    let endpoint = &monitor["endpoints"][0];
    assert_eq!(endpoint["port"], service["spec"]["ports"][0]["name"]);
    let tls = &endpoint["tlsConfig"];
    assert_eq!(tls["serverName"], format!("ifo-apiserver.{namespace}.svc"));
    let ca = match source {
        None => json!({"secret": {"name": "ifo-apiserver-serving-ca", "key": "tls.crt"}}),
        Some("cert-manager") => {
            json!({"secret": {"name": "ifo-apiserver-serving", "key": "ca.crt"}})
        }
        Some(_) => {
            json!({"configMap": {"name": "openshift-service-ca.crt", "key": "service-ca.crt"}})
        }
    };
    assert_eq!(tls["ca"], ca);
    only_object(server, "PrometheusRule", "ifo-apiserver");
    let dashboard = only_object(server, "ConfigMap", "ifo-dashboard");
    assert_eq!(dashboard["metadata"]["labels"]["grafana_dashboard"], "1");
}

/// Asserts that the Deployment mounts the Secret with the certificate that `source` provides. Also
/// asserts that an annotation of the APIService requests the CA from `source`. For cert-manager,
/// also checks the names in the certificate. If `source` is None, the Deployment must not mount a
/// Secret, and the APIService must not have annotations.
fn check_certificates(
    server: &[Value],
    registration: &[Value],
    source: Option<&str>,
    namespace: &str,
) {
    let pod = &only_object(server, "Deployment", "ifo-apiserver")["spec"]["template"]["spec"];
    let volumes = pod["volumes"].as_array().expect("there are volumes");
    let secret = volumes
        .iter()
        .find_map(|it| it["secret"]["secretName"].as_str());
    let api_service = &registration[0]["metadata"]["annotations"];
    match source {
        None => {
            assert_eq!(secret, None);
            assert!(api_service.is_null(), "{api_service}");
            return;
        }
        Some("cert-manager") => {
            let leaf = &only_object(server, "Certificate", "ifo-apiserver-serving")["spec"];
            assert_eq!(leaf["secretName"].as_str(), secret);
            let name = format!("ifo-apiserver.{namespace}.svc");
            let names = json!([name, format!("{name}.cluster.local")]);
            assert_eq!(leaf["dnsNames"], names);
            // The Certificate names an Issuer. The Issuer names the Secret with its CA. A second
            // Certificate has the same name as this Secret, and describes the CA.
            let issuer = only_object(server, "Issuer", text(leaf, "/issuerRef/name"));
            let ca = only_object(server, "Certificate", text(issuer, "/spec/ca/secretName"));
            assert_eq!(ca["spec"]["isCA"], true);
            only_object(server, "Issuer", text(ca, "/spec/issuerRef/name"));
            assert_eq!(
                api_service["cert-manager.io/inject-ca-from"],
                format!("{namespace}/ifo-apiserver-serving")
            );
        }
        Some(_) => {
            let service = only_object(server, "Service", "ifo-apiserver");
            let annotations = &service["metadata"]["annotations"];
            let name = &annotations["service.beta.openshift.io/serving-cert-secret-name"];
            assert_eq!(name.as_str(), secret);
            let inject = &api_service["service.beta.openshift.io/inject-cabundle"];
            assert_eq!(inject, "true");
        }
    }
    let args = strings(&pod["containers"][0]["args"]);
    // With the component `register`, the server sets the same annotation as the component of
    // `apiservice`.
    let flag = |flag: &str| {
        let value = args.iter().find_map(|arg| arg.strip_prefix(flag));
        value.expect("the Deployment must set this flag")
    };
    let annotation = flag("--register-annotation=");
    let (key, value) = annotation
        .split_once('=')
        .expect("it has a key and a value");
    assert_eq!(
        api_service[key],
        value.replace("$(POD_NAMESPACE)", namespace)
    );
    for name in ["--tls-cert-file=", "--tls-private-key-file="] {
        let mounts = pod["containers"][0]["volumeMounts"].as_array().unwrap();
        let folder = Path::new(flag(name)).parent().and_then(Path::to_str);
        assert!(mounts.iter().any(|it| it["mountPath"].as_str() == folder));
    }
}

/// Returns the names of the installed objects that still exist: the objects of the server, and the
/// ClusterRoles of rule packs (the folders in `rules`). Searches all kinds, except CRDs and the
/// kinds of this project.
async fn remaining(cluster: &Cluster) -> String {
    let kinds = cluster.kubectl("api-resources --verbs=list -o name").await;
    let kinds: Vec<&str> = kinds
        .lines()
        .filter(|kind| !kind.starts_with("customresourcedefinitions"))
        .filter(|kind| !kind.ends_with("ifo.kubevirt.io"))
        .collect();
    assert!(kinds.len() > 40, "{kinds:?}");
    let kinds = kinds.join(",");
    let mut found = String::new();
    for label in [
        "app.kubernetes.io/part-of=ifo",
        "app.kubernetes.io/name=ifo-apiserver",
        "ifo.kubevirt.io/aggregate-to-targets",
    ] {
        let line = format!("get {kinds} -A -o name -l {label}");
        found += &cluster.kubectl(&line).await;
    }
    found
}

/// Creates CRDs with the kinds of prometheus-operator that the component `monitoring` uses.
async fn define_monitoring_kinds(cluster: &Cluster) {
    let group = "monitoring.coreos.com";
    let monitor = Kind::new(
        "monitoring.coreos.com/v1",
        "ServiceMonitor",
        "servicemonitors",
    );
    let rule = Kind::new(
        "monitoring.coreos.com/v1",
        "PrometheusRule",
        "prometheusrules",
    );
    for kind in [monitor, rule] {
        cluster.create(&CRD, None, &crd(&kind, "Namespaced")).await;
        let name = format!("{}.{group}", kind.plural);
        let line = format!("wait --for=condition=Established --timeout=1m crd/{name}");
        cluster.kubectl(&line).await;
    }
}

/// Asserts that Prometheus may find the replicas and read their metrics. Checks the rights of two
/// ServiceAccounts: the one of kube-prometheus, and the one of OpenShift's monitoring.
async fn check_rights_of_prometheus(cluster: &Cluster) {
    for installation in ["monitoring", "openshift-monitoring"] {
        let account = format!("system:serviceaccount:{installation}:prometheus-k8s");
        for right in [
            "get /metrics",
            "watch services",
            "watch endpoints",
            "watch endpointslices.discovery.k8s.io",
            "watch pods",
        ] {
            let line = format!("auth can-i {right} -n {NAMESPACE} --as {account}");
            let answer = cluster.kubectl(&line).await;
            assert_eq!(answer.trim(), "yes", "{account}: {right}");
        }
    }
}

/// Waits until the server lists the rollout of its own Deployment, which the rule sets in
/// `rules/generic` detect. The rollout never completes here, because the cluster has no node that runs
/// Pods.
async fn until_rollout_is_listed(cluster: &Cluster) {
    cluster.apply_folders(&["rules/generic"]).await;
    let path = OPERATION.path(Some(cluster.namespace));
    let is_listed = |list: &Value| list.to_string().contains("ifo-apiserver-rollout");
    let what = "the rollout of the Deployment is listed";
    cluster.admin.until_object(what, &path, is_listed).await;
}

#[test]
fn a_server_in_another_namespace_runs_with_all_components_and_is_removed_completely() {
    apart("overlay", async |cluster| {
        cluster.namespace = NAMESPACE;
        cluster
            .apply_folders(&["deploy/crd", "deploy/crd-persistence"])
            .await;
        define_monitoring_kinds(cluster).await;
        let overlay = Overlay::new("deploy", &COMPONENTS, Some(NAMESPACE));
        cluster.apply_folders(&[overlay.path()]).await;
        check_rights_of_prometheus(cluster).await;
        let server = cluster.server().await;
        cluster.until_served().await;
        self_registration::check(cluster).await;
        cluster.until_persisted().await;
        until_rollout_is_listed(cluster).await;

        // Before the removal, `remaining` must find these objects. Otherwise, its empty result
        // after the removal would prove nothing.
        let installed = remaining(cluster).await;
        for object in [
            "clusterrole.rbac.authorization.k8s.io/ifo-rules-generic",
            "configmap/ifo-dashboard",
            "priorityclass.scheduling.k8s.io/",
            "prometheusrule.monitoring.coreos.com/",
            "servicemonitor.monitoring.coreos.com/",
            "validatingadmissionpolicy.admissionregistration.k8s.io/",
            "validatingadmissionpolicybinding.admissionregistration.k8s.io/",
        ] {
            assert!(installed.contains(object), "{object}: {installed}");
        }

        // The server is still running. It must not create its APIService again.
        cluster
            .kubectl(&format!("delete -k {}", overlay.path()))
            .await;
        let gone = cluster
            .try_kubectl(&format!("get namespace {NAMESPACE}"))
            .await;
        assert!(gone.is_err_and(|why| why.contains("NotFound")));
        assert_eq!(cluster.registration().await, None);
        drop(server);
        cluster.a_namespace_can_be_deleted().await;
        // The removal of the server keeps the rule sets and their ClusterRoles. The administrator
        // can delete these objects without the server.
        cluster.kubectl("delete -k rules/generic").await;
        assert_eq!(remaining(cluster).await, "");
    });
}
