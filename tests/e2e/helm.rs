//! Tests of the Helm charts. The tests in this file compare the objects of
//! the charts with those of the kustomizations. The module `values` tests single values and their
//! schema. The module `install_upgrade_remove` installs the charts.

mod install_upgrade_remove;
mod kubelet;
mod values;

use crate::deploy_manifests::{
    COMPONENT_OWNERS, GATE_WEBHOOK, NAMESPACE, REGISTER, SUBJECT_VISIBILITY, only_object,
    rendered_choices,
};
use crate::harness::{TestCluster, kubectl, shared, skip};
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
        let mut command = tokio::process::Command::new(&self.program);
        command
            .args(args)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .env("KUBECONFIG", &self.kubeconfig)
            .kill_on_drop(true)
            .stdin(Stdio::null());
        for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(folder, self.home.path());
        }
        let done = command.output().await.expect("Helm can be started");
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

/// Returns the objects by kind, namespace and name. Leaves out these parts, which only the charts
/// or only the kustomizations have:
///
/// - The Namespace. Helm installs into an existing namespace.
/// - The Pod of `helm test`.
/// - The annotation `helm.sh/resource-policy`, with which Helm keeps the CRDs.
fn comparable(objects: Vec<Value>) -> BTreeMap<String, Value> {
    let mut found = BTreeMap::new();
    for mut object in objects {
        let metadata = &mut object["metadata"];
        if metadata["annotations"]["helm.sh/hook"] == "test" {
            continue;
        }
        if let Some(annotations) = metadata["annotations"].as_object_mut() {
            annotations.remove("helm.sh/resource-policy");
        }
        // If an object has no annotations, the mutable access `metadata["annotations"]` above adds
        // null as their value. This code removes null and an empty map.
        if metadata["annotations"]
            .as_object()
            .is_none_or(serde_json::Map::is_empty)
            && let Some(metadata) = metadata.as_object_mut()
        {
            metadata.remove("annotations");
        }
        if object["kind"] == "Namespace" {
            continue;
        }
        let field = |pointer| {
            object
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or("-")
        };
        let key = format!(
            "{} {} {}",
            field("/kind"),
            field("/metadata/namespace"),
            field("/metadata/name")
        );
        let previous = found.insert(key, object);
        assert!(
            previous.is_none(),
            "two objects have the same kind, namespace and name: {previous:?}"
        );
    }
    found
}

/// Asserts that the chart and the kustomizations contain the same objects. The error message
/// contains the first difference.
fn assert_same(chart: Vec<Value>, kustomizations: Vec<Value>, choice: &str) {
    let (chart, kustomizations) = (comparable(chart), comparable(kustomizations));
    let names =
        |objects: &BTreeMap<String, Value>| -> Vec<String> { objects.keys().cloned().collect() };
    assert_eq!(names(&chart), names(&kustomizations), "{choice}");
    for (name, object) in &kustomizations {
        let differs = difference(&chart[name], object);
        assert_eq!(differs, None, "{name}: {choice}");
    }
}

/// Describes the first field that differs, such as `/spec/replicas: 2 in the chart, 3 in the
/// kustomizations`. Returns None if both values are equal.
fn difference(chart: &Value, kustomization: &Value) -> Option<String> {
    // kustomize writes 100.0 as 100. So this function compares numbers by value.
    let number = |value: &Value| value.as_f64();
    if chart == kustomization || number(chart).is_some() && number(chart) == number(kustomization) {
        return None;
    }
    let fields = |value: &Value| -> Vec<String> {
        match value {
            Value::Object(members) => members.keys().cloned().collect(),
            Value::Array(items) => (0..items.len()).map(|at| at.to_string()).collect(),
            _ => Vec::new(),
        }
    };
    if !fields(chart).is_empty() && fields(chart) == fields(kustomization) {
        return fields(chart).into_iter().find_map(|field| {
            let pointer = format!("/{}", field.replace('~', "~0").replace('/', "~1"));
            let values = chart.pointer(&pointer).zip(kustomization.pointer(&pointer));
            let (chart, kustomization) = values.expect("both have the field");
            let found = difference(chart, kustomization)?;
            Some(format!("{pointer}{found}"))
        });
    }
    Some(format!(
        ": {chart} in the chart, {kustomization} in the kustomizations"
    ))
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

#[test]
fn the_same_choices_give_the_same_objects_with_helm_and_kustomize() {
    shared(async |cluster| {
        let addresses = &cluster.control_plane.addresses;
        let Some(helm) = Helm::new(&addresses.kubeconfig).await else {
            return;
        };
        let mut crds = cluster.kustomize("deploy/crd").await;
        crds.extend(cluster.kustomize("deploy/crd-persistence").await);
        for (choice, server, registration) in rendered_choices(&addresses.kubectl).await {
            let mut expected = [&server[..], &crds].concat();
            let mut values: Vec<&str> = choice.components.iter().copied().map(value_of).collect();
            if !choice.components.contains(&REGISTER) {
                expected.extend(registration.clone());
                values.push("apiService.createdBy=helm");
            }
            let namespace = choice.namespace.unwrap_or(DEFAULT_NAMESPACE);
            let chart = helm.render(CHART, namespace, &values).await;
            assert_same(chart, expected, &format!("{namespace} {values:?}"));
        }
        target_rights_and_omitted_parts(cluster, &helm).await;
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
        let crd = only_object(
            objects,
            "CustomResourceDefinition",
            "operationrulesets.ifo.kubevirt.io",
        );
        crd["metadata"]["annotations"]["helm.sh/resource-policy"].clone()
    };
    assert_eq!(policy(&default), "keep");
    let deleted = helm.render(CHART, NAMESPACE, &["crds.keep=false"]).await;
    assert_eq!(policy(&deleted), Value::Null);
}

#[test]
fn the_rules_chart_has_the_rule_packs() {
    shared(async |cluster| {
        let addresses = &cluster.control_plane.addresses;
        let Some(helm) = Helm::new(&addresses.kubeconfig).await else {
            return;
        };
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
        assert_eq!(
            helm.render(RULES_CHART, NAMESPACE, &none).await,
            [Value::Null; 0]
        );
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

/// Runs kubectl with this kubeconfig, which contains the credentials of a ServiceAccount.
async fn kubectl_as(program: &Path, kubeconfig: &Path, args: &[&str]) -> Result<String, String> {
    let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
    kubectl(program, &[&[kubeconfig.as_str()], args].concat(), None).await
}
