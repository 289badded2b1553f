//! Tests of the manifests in `deploy/`, `apiservice/` and `rules/`. Generated files must be up to
//! date. Hand-written files must be complete, and must grant only the necessary rights.
//!
//! A target is the resource that the server watches for a rule set.

use ifo_api::ruleset::{AGGREGATE_LABEL, OperationRuleSet};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use walkdir::WalkDir;

#[path = "../examples/manifests.rs"]
#[allow(
    dead_code,
    reason = "its main writes the files; the test only compares"
)]
mod generator;

/// Returns the path of a file or folder of the repository.
fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = WalkDir::new(folder).into_iter();
    let entries = entries.map(|entry| entry.expect("the folder must be readable"));
    let files = entries.filter(|entry| entry.file_type().is_file());
    files.map(walkdir::DirEntry::into_path).collect()
}

/// Returns all YAML files below `folder`, except `kustomization.yaml`. Leaves out the files of Helm,
/// which are no valid YAML, and those of OLM, which reads all files of its folder.
fn manifests(folder: &str) -> Vec<PathBuf> {
    let others = ["deploy/helm", "deploy/olm"].map(repository);
    let mut found = files(&repository(folder));
    found.retain(|path| {
        path.extension().is_some_and(|it| it == "yaml")
            && !path.ends_with("kustomization.yaml")
            && !others.iter().any(|other| path.starts_with(other))
    });
    found
}

fn documents(path: &Path) -> Vec<Value> {
    let text = read(path);
    let documents = text.split("\n---\n").map(|text| {
        serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    });
    documents.collect()
}

/// Returns the files that the kustomization in `folder` installs, including the files of other
/// folders that the kustomization lists, and its patches.
fn installed(folder: &Path) -> BTreeSet<PathBuf> {
    let kustomization = &documents(&folder.join("kustomization.yaml"))[0];
    let mut found = BTreeSet::new();
    let lists = ["resources", "components", "patches"];
    let lists = lists.iter().filter_map(|it| kustomization[it].as_array());
    for entry in lists.flatten() {
        let path = entry.as_str().or(entry["path"].as_str());
        let path = folder.join(path.expect("an entry has a path"));
        let path = path.canonicalize().expect("the path must exist");
        if path.is_dir() {
            found.extend(installed(&path));
        } else {
            found.insert(path);
        }
    }
    found
}

#[test]
fn generated_manifests_are_up_to_date() {
    for (path, generated) in generator::manifests().unwrap() {
        let found = fs::read_to_string(repository(&path)).unwrap_or_default();
        assert!(
            found == generated,
            "{path} is not up to date: run `make manifests`"
        );
    }
}

/// An entry of `manifests.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Expected {
    object: String,
    fields: BTreeMap<String, Value>,
}

#[test]
fn rights_and_other_fields_of_hand_written_manifests_are_as_expected() {
    let text = include_str!("manifests.yaml");
    let all: Vec<Expected> = serde_saphyr::from_str(text).expect("it is a list of entries");
    for Expected { object, fields } in all {
        let [file, kind, name] = object.split(' ').collect::<Vec<_>>()[..] else {
            panic!("{object}");
        };
        let mut objects = documents(&repository("deploy").join(file)).into_iter();
        let found = objects.find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
        let found = found.unwrap_or_else(|| panic!("there is no {object}"));
        for (field, expected) in fields {
            let value = found.pointer(&field).unwrap_or(&Value::Null);
            assert_eq!(*value, expected, "{object}: {field}");
        }
    }
}

/// Only the server's own role may grant the path `/peer`, to which replicas send requests. No role
/// for targets may grant Secrets, or everything.
#[test]
fn no_role_grants_replication_to_users_or_secrets_to_the_server() {
    let files = [manifests("deploy"), manifests("rules")].concat();
    let objects = files.iter().flat_map(|path| documents(path));
    let mut roles = 0;
    for role in objects.filter(|it| it["kind"] == "ClusterRole") {
        roles += 1;
        let is_for_targets = role["metadata"]["labels"][AGGREGATE_LABEL] == "true";
        for rule in role["rules"].as_array().into_iter().flatten() {
            let paths = &rule["nonResourceURLs"];
            let is_server = role["metadata"]["name"] == "ifo-apiserver";
            assert!(
                is_server || paths.is_null() || *paths == json!(["/metrics"]),
                "{role}"
            );
            let has = |field: &str, name: &str| {
                rule[field]
                    .as_array()
                    .is_some_and(|it| it.contains(&name.into()))
            };
            let is_too_wide =
                has("resources", "secrets") || has("resources", "*") || has("apiGroups", "*");
            assert!(!is_for_targets || !is_too_wide, "{role}");
        }
    }
    assert!(roles > 20, "only {roles} roles were found");
}

/// OLM reads the annotations of the bundle from the labels of its image.
#[test]
fn the_image_of_the_olm_bundle_has_its_annotations_as_labels_and_all_its_folders() {
    let folder = repository("deploy/olm");
    let annotations = &documents(&folder.join("metadata/annotations.yaml"))[0]["annotations"];
    let annotations: BTreeMap<String, String> =
        serde_json::from_value(annotations.clone()).expect("the annotations are texts");
    let dockerfile = read(&folder.join("bundle.Dockerfile"));
    for (key, value) in annotations {
        assert!(dockerfile.contains(&format!("{key}={value}")), "{key}");
        if let Some(path) = value.strip_suffix('/') {
            assert!(folder.join(path).is_dir(), "{path}");
            let copied = format!("COPY {path} /{path}/\n");
            assert!(dockerfile.contains(&copied), "{copied}");
        }
    }
}

/// `make manifests` generates templates of the Helm chart, but does not delete them. If a
/// contributor removes the source of a template, the contributor must also delete the template.
/// Otherwise, this test fails.
#[test]
fn the_chart_contains_only_generated_and_listed_files() {
    let written = [
        "artifacthub-repo.yml",
        "ifo/README.md",
        "ifo/templates/NOTES.txt",
        "ifo/templates/apiservice.yaml",
        "ifo/templates/deployment.yaml",
        "ifo/templates/servicemonitor.yaml",
        "ifo/templates/tests/operations.yaml",
        "ifo/values.schema.json",
        "ifo/values.yaml",
        "ifo-rules/README.md",
    ];
    let helm = repository("deploy/helm");
    let generated = generator::manifests().unwrap().into_iter();
    let generated = generated.map(|(path, _)| repository(&path));
    let known: BTreeSet<PathBuf> = generated
        .filter(|path| path.starts_with(&helm))
        .chain(written.map(|file| helm.join(file)))
        .collect();
    assert_eq!(files(&helm).into_iter().collect::<BTreeSet<_>>(), known);
}

#[test]
fn every_manifest_is_in_a_kustomization_or_has_its_own_role() {
    let folders = ["apiservice", "certs", "deploy", "rules"];
    let folders = folders.map(repository);
    let files_of = |folder: &PathBuf| files(folder).into_iter();
    let all = folders.iter().flat_map(files_of);
    let kustomizations = all.filter(|path| path.ends_with("kustomization.yaml"));
    let installed: BTreeSet<PathBuf> = kustomizations
        .flat_map(|path| installed(path.parent().expect("a file is in a folder")))
        .collect();
    // Users choose the gates that they want and apply each file alone. The files for k9s are no
    // manifests.
    let alone = ["deploy/gates", "deploy/k9s"].map(repository);
    for path in ["apiservice", "certs", "deploy", "rules"]
        .into_iter()
        .flat_map(manifests)
    {
        let path = path.canonicalize().unwrap();
        if installed.contains(&path) || alone.iter().any(|it| path.starts_with(it)) {
            continue;
        }
        // If no kustomization lists the file of a rule set, users apply this file alone. So it
        // must also contain the role that lets the server read the target.
        let kinds: Vec<Value> = documents(&path)
            .iter()
            .map(|it| it["kind"].clone())
            .collect();
        assert_eq!(
            kinds,
            ["OperationRuleSet", "ClusterRole"],
            "{}",
            path.display()
        );
    }
}

#[test]
fn the_image_has_the_version_of_the_manifests() {
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    let base = repository("deploy/base");
    let images = &documents(&base.join("kustomization.yaml"))[0]["images"];
    assert_eq!(images[0]["newTag"], version);
    let image = format!("image: ghcr.io/kubevirt/ifo-apiserver:{version}\n");
    assert!(read(&base.join("deployment.yaml")).contains(&image));
}

/// Several kustomizations in `deploy` install the server. They must not install
/// these objects, which are in other folders:
///
/// - the CRDs: `kubectl delete -k deploy` would delete all rule sets.
/// - the APIService: `kubectl apply -k deploy` would register the server before it can serve
///   requests.
/// - the roles that let the server read targets: users choose these roles.
#[test]
fn crds_registration_and_target_roles_are_separate_from_the_server() {
    for folder in ["deploy", "deploy/persistence", "deploy/register"] {
        for path in installed(&repository(folder)) {
            for object in documents(&path) {
                let kind = object["kind"].as_str().unwrap_or_default();
                let is_separate = ["CustomResourceDefinition", "APIService"].contains(&kind)
                    || !object["metadata"]["labels"][AGGREGATE_LABEL].is_null();
                assert!(!is_separate, "{folder} has {}", path.display());
            }
        }
    }
}

#[test]
fn shipped_rule_sets_have_known_fields_and_unique_names() {
    let mut names = BTreeSet::new();
    let files = manifests("rules").into_iter();
    for path in files.filter(|path| !path.ends_with("clusterrole.yaml")) {
        let written = &documents(&path)[0];
        let set: OperationRuleSet = serde_json::from_value(written.clone())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let understood = serde_json::to_value(&set).unwrap();
        assert_eq!(*written, understood, "{}", path.display());
        assert!(
            names.insert(set.metadata.name),
            "another rule set has the same name as {}",
            path.display()
        );
    }
}

#[test]
fn the_filled_in_krew_manifest_is_valid() {
    let template = read(&repository(".krew.yaml")).replace("{{ .TagName }}", "v0.1.0");
    let filled = template.lines().map(|line| {
        if line.contains("addURIAndSha") {
            "    uri: https://example.com/x.tar.gz\n    sha256: 0\n".to_owned()
        } else {
            format!("{line}\n")
        }
    });
    let filled: String = filled.collect();
    let plugin: Value = serde_saphyr::from_str(&filled).expect("the manifest must be valid YAML");
    assert_eq!(plugin["metadata"]["name"], "ifo");
    let platforms = plugin["spec"]["platforms"]
        .as_array()
        .expect("there are platforms");
    assert_eq!(platforms.len(), 4);
    for platform in platforms {
        assert_eq!(platform["bin"], "kubectl-ifo");
        assert!(
            platform["uri"].is_string() && platform["selector"]["matchLabels"]["os"].is_string()
        );
    }
}

/// The kube-apiserver reads activities before it evaluates `matchConditions`. If it cannot read them, a
/// policy with the failure policy `Fail` refuses all requests, even if its binding only warns.
#[test]
fn only_the_gates_for_evictions_and_namespaces_refuse_requests_without_activities() {
    for gate in [
        "cluster-upgrade",
        "cordon",
        "eviction",
        "namespace-deletion",
        "start",
    ] {
        let file = |name: &str| documents(&repository(&format!("deploy/gates/{name}.yaml")));
        let (warn, mut deny) = (file(gate), file(&format!("{gate}-deny")));
        let (policy, binding) = (&warn[0]["spec"], &warn[1]["spec"]);
        assert_eq!(policy["failurePolicy"], "Ignore", "{gate}");
        assert_eq!(
            binding["validationActions"],
            json!(["Warn", "Audit"]),
            "{gate}"
        );
        let is_closed = deny.len() == 2;
        assert_eq!(
            is_closed,
            ["eviction", "namespace-deletion"].contains(&gate),
            "{gate}"
        );
        let name = if is_closed {
            format!("ifo-{gate}-deny")
        } else {
            format!("ifo-{gate}")
        };
        let action = if is_closed { "Deny" } else { "Allow" };

        let mut expected = binding.clone();
        expected["policyName"] = json!(name);
        expected["validationActions"] = json!(["Deny"]);
        expected["paramRef"]["parameterNotFoundAction"] = json!(action);
        assert_eq!(deny.pop().unwrap()["spec"], expected, "{gate}");
        if let Some(refusing) = deny.pop() {
            let mut expected = policy.clone();
            expected["failurePolicy"] = json!("Fail");
            assert_eq!(refusing["metadata"]["name"], name);
            assert_eq!(refusing["spec"], expected, "{gate}");
        }
    }
}
