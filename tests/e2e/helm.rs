//! Tests of the Helm charts. The tests in this file compare the objects of
//! the charts with those of the kustomizations. The module `values` tests single values and their
//! schema. The module `install_upgrade_remove` installs the charts.

mod install_upgrade_remove;
mod kubelet;
mod values;

use crate::compare_with_custom_resource::differences;
use crate::deploy_manifests::{
    COMPONENT_OWNERS, COMPONENTS, GATE_WEBHOOK, NAMESPACE, Overlay, REGISTER, SUBJECT_VISIBILITY,
    only_object,
};
use crate::harness::{TestCluster, shared, skip};
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// The folders of two charts: the chart with the server, and the chart with the rule packs. A rule
/// pack contains the rule sets of one folder in `rules/`.
const CHART: &str = "deploy/helm/ifo";
const RULES_CHART: &str = "deploy/helm/ifo-rules";

/// The namespace of the kustomizations.
const DEFAULT_NAMESPACE: &str = "ifo-system";

/// One version of the program Helm, for use with one cluster.
struct Helm {
    program: PathBuf,
    major: u8,
    kubeconfig: PathBuf,
    /// The folder of Helm's configuration and caches.
    home: tempfile::TempDir,
}

impl Helm {
    /// Builds Helm 3 and Helm 4, and returns the version in the environment variable `IFO_HELM`, by
    /// default Helm 4. `.ci/nightly` runs these tests with Helm 3. If this machine cannot build Helm,
    /// prints that the test is skipped, and returns None.
    async fn new(kubeconfig: &Path) -> Option<Self> {
        let build = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/helm/build");
        let mut build = tokio::process::Command::new(build);
        let built = build.stdin(Stdio::null()).stderr(Stdio::inherit()).output();
        let built = built.await.expect("the script can be started");
        match built.status.code() {
            Some(0) => {}
            Some(3) => {
                skip("Go is needed to build Helm");
                return None;
            }
            _ => panic!("tests/helm/build failed: {}", built.status),
        }
        let folder = String::from_utf8(built.stdout).expect("the build prints a path");
        let major = std::env::var("IFO_HELM")
            .map_or(4, |major| major.parse().expect("IFO_HELM must be 3 or 4"));
        Some(Self {
            program: Path::new(folder.trim()).join(format!("helm{major}")),
            major,
            kubeconfig: kubeconfig.to_owned(),
            home: tempfile::tempdir().expect("a temporary folder"),
        })
    }

    /// Runs Helm in the folder of the repository. Returns Helm's output, or an error if Helm fails.
    async fn run(&self, args: &[&str]) -> Result<String, String> {
        let folders = ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"];
        let done = tokio::process::Command::new(&self.program)
            .args(args)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("KUBECONFIG", &self.kubeconfig)
            .envs(folders.map(|folder| (folder, self.home.path())))
            .kill_on_drop(true)
            .stdin(Stdio::null())
            .output()
            .await
            .expect("Helm can be started");
        let out = String::from_utf8_lossy(&done.stdout).into_owned();
        let err = String::from_utf8_lossy(&done.stderr);
        if done.status.success() {
            Ok(out)
        } else {
            Err(format!("helm{} {}: {err}{out}", self.major, args.join(" ")))
        }
    }

    /// Renders a chart. Each of `values` becomes the argument of a flag `--set`.
    async fn render(&self, chart: &str, namespace: &str, values: &[&str]) -> Vec<Value> {
        let mut args = vec!["template", "ifo", chart, "-n", namespace];
        args.extend(values.iter().flat_map(|value| ["--set", value]));
        let yaml = self.run(&args).await;
        let yaml = yaml.unwrap_or_else(|error| panic!("{error}"));
        // The parser returns null for a document that contains only comments. These documents are
        // left out.
        let objects: Vec<Value> = serde_saphyr::from_multiple(&yaml).expect("Helm prints YAML");
        objects.into_iter().filter(|it| !it.is_null()).collect()
    }
}

/// Runs a test with Helm on the shared cluster.
fn with_helm(test: impl AsyncFnOnce(&'static TestCluster, &Helm)) {
    shared(async |cluster| {
        let addresses = &cluster.control_plane.addresses;
        if let Some(helm) = Helm::new(&addresses.kubeconfig).await {
            test(cluster, &helm).await;
        }
    });
}

/// Returns the objects by kind, namespace and name. Leaves out these parts, which only the charts
/// or only the kustomizations have:
///
/// - The Namespace. Helm installs into an existing namespace.
/// - The Pod of `helm test`.
/// - The annotation `helm.sh/resource-policy`, with which Helm keeps the CRDs.
fn comparable(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for mut object in objects {
        let metadata = object["metadata"]
            .as_object_mut()
            .expect("an object has metadata");
        if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
            if annotations
                .get("helm.sh/hook")
                .is_some_and(|hook| hook == "test")
            {
                continue;
            }
            annotations.remove("helm.sh/resource-policy");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        if object["kind"] == "Namespace" {
            continue;
        }
        let fields = ["/kind", "/metadata/namespace", "/metadata/name"];
        let field = |it| object.pointer(it).and_then(Value::as_str).unwrap_or("-");
        let key = fields.map(field).join(" ");
        let previous = found.insert(key.clone(), object);
        assert!(previous.is_none(), "two objects: {key}");
    }
    found
}

/// Asserts that the chart and the kustomizations contain the same objects.
fn assert_same(chart: Vec<Value>, kustomizations: Vec<Value>, choice: &str) {
    let sides = [chart, kustomizations].map(|objects| {
        let mut all = Value::Object(comparable(objects).into_iter().collect());
        numbers_as_floats(&mut all);
        all
    });
    let mut found = Vec::new();
    differences("", &sides[0], &sides[1], &mut found);
    assert!(found.is_empty(), "{choice}: {found:#?}");
}

/// kustomize writes 100.0 as 100. So the comparison needs numbers of one type.
fn numbers_as_floats(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(numbers_as_floats),
        Value::Array(all) => all.iter_mut().for_each(numbers_as_floats),
        Value::Number(number) => *value = number.as_f64().into(),
        _ => {}
    }
}

/// Returns the value of the chart with the same effect as a kustomize component.
fn value_of(component: &str) -> &'static str {
    match component {
        "persistence" => "persistence.enabled=true",
        "network-policy" => "networkPolicy.enabled=true",
        COMPONENT_OWNERS => "componentOwners.enabled=true",
        GATE_WEBHOOK => "gateWebhook.enabled=true",
        SUBJECT_VISIBILITY => "visibility=subject",
        "replicas" => "replicas=3",
        "monitoring" => "monitoring.enabled=true",
        REGISTER => "apiService.createdBy=server",
        "cert-manager" => "certificates.source=cert-manager",
        "openshift-service-ca" => "certificates.source=openshift",
        other => panic!("the chart has no value for the component {other}"),
    }
}

/// The components that provide a serving certificate. An installation uses at most one of them.
/// `None` is an installation without such a component: the server issues its certificate with its
/// own CA.
const CERTIFICATES: [Option<&str>; 3] = [None, Some("cert-manager"), Some("openshift-service-ca")];

/// One combination of options that an administrator can choose.
struct Choice {
    /// The chosen components, including `certificate_source`.
    components: Vec<&'static str>,
    /// The component that provides the serving certificate, an element of [`CERTIFICATES`].
    certificate_source: Option<&'static str>,
    /// The namespace that the overlay sets. If it is None, the objects stay in the namespace of the
    /// manifests, `ifo-system`.
    namespace: Option<&'static str>,
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

#[test]
fn the_same_choices_give_the_same_objects_with_helm_and_kustomize() {
    with_helm(async |cluster, helm| {
        let mut crds = cluster.kustomize("deploy/crd").await;
        crds.extend(cluster.kustomize("deploy/crd-persistence").await);
        for choice in choices() {
            let server = Overlay::new("deploy", &choice.components, choice.namespace);
            let mut expected = cluster.kustomize(server.path()).await;
            expected.extend(crds.clone());
            let mut values: Vec<&str> = choice.components.iter().copied().map(value_of).collect();
            if !choice.components.contains(&REGISTER) {
                let source: Vec<&str> = choice.certificate_source.into_iter().collect();
                let registration = Overlay::new("apiservice", &source, choice.namespace);
                expected.extend(cluster.kustomize(registration.path()).await);
                values.push("apiService.createdBy=helm");
            }
            let namespace = choice.namespace.unwrap_or(DEFAULT_NAMESPACE);
            let chart = helm.render(CHART, namespace, &values).await;
            assert_same(chart, expected, &format!("{namespace} {values:?}"));
        }
        target_rights_and_omitted_parts(cluster, helm).await;
    });
}

/// Checks two groups of chart values that have no kustomize component:
///
/// - the rights to read targets, which are the resources that the server watches for rule sets
/// - the parts that an administrator can leave out, such as the CRDs
async fn target_rights_and_omitted_parts(cluster: &TestCluster, helm: &Helm) {
    let default = helm.render(CHART, NAMESPACE, &[]).await;
    let all = ["targetsDefault.enabled=true"];
    let all = helm.render(CHART, NAMESPACE, &all).await;
    let mut expected = default.clone();
    expected.extend(cluster.kustomize("deploy/targets-default").await);
    assert_same(all, expected, "targetsDefault");

    let default = helm
        .render(CHART, NAMESPACE, &["apiService.createdBy=helm"])
        .await;
    let values = [
        "crds.enabled=false",
        "apiService.enabled=false",
        "priorityClassName=other",
        "persistence.enabled=true",
    ];
    let fewer = comparable(helm.render(CHART, NAMESPACE, &values).await);
    let omitted = ["CustomResourceDefinition", "APIService", "PriorityClass"];
    for kind in omitted {
        let of_kind = |name: &&String| name.starts_with(kind);
        assert_eq!(fewer.keys().find(of_kind), None);
        assert!(comparable(default.clone()).keys().any(|it| of_kind(&it)));
    }
    let policy = |objects: &[Value]| {
        let (kind, name) = (omitted[0], "operationrulesets.ifo.kubevirt.io");
        let crd = only_object(objects, kind, name);
        crd["metadata"]["annotations"]["helm.sh/resource-policy"].clone()
    };
    assert_eq!(policy(&default), "keep");
    let deleted = helm.render(CHART, NAMESPACE, &["crds.keep=false"]).await;
    assert_eq!(policy(&deleted), Value::Null);
}

#[test]
fn the_rules_chart_has_the_rule_packs() {
    with_helm(async |cluster, helm| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rules");
        let packs = std::fs::read_dir(folder).expect("there are rule packs");
        let packs: Vec<String> = packs
            .map(|entry| entry.expect("the entry of the folder `rules` can be read"))
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().into_string().expect("UTF-8"))
            .collect();
        assert!(packs.len() > 10, "{packs:?}");
        let none: Vec<String> = packs.iter().map(|it| format!("packs.{it}=false")).collect();
        let none: Vec<&str> = none.iter().map(String::as_str).collect();
        let all = helm.render(RULES_CHART, NAMESPACE, &[]).await;
        assert_same(all, cluster.kustomize("rules").await, "all packs");
        let nothing = helm.render(RULES_CHART, NAMESPACE, &none).await;
        assert_eq!(nothing, [Value::Null; 0]);
        for pack in &packs {
            let one = format!("packs.{pack}=true");
            let values = [&none[..], &[one.as_str()]].concat();
            let one = helm.render(RULES_CHART, NAMESPACE, &values).await;
            let expected = cluster.kustomize(&format!("rules/{pack}")).await;
            assert_same(one, expected, pack);
        }
        let values = [&none[..], &["optional={generic/pods}"]].concat();
        let optional = helm.render(RULES_CHART, NAMESPACE, &values).await;
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/rules/generic/pods.yaml");
        let expected = std::fs::read_to_string(file).expect("the file must exist");
        let expected = serde_saphyr::from_multiple(&expected).expect("YAML");
        assert_same(optional, expected, "an optional rule set");
    });
}
