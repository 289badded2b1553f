//! Tests of the manifests in `deploy/`, `apiservice/` and `rules/`. Generated files must be up to
//! date. Hand-written files must be complete, and must grant only the necessary rights.
//!
//! A target is the resource that the server watches for a rule set.

use ifo_api::ruleset::{AGGREGATE_LABEL, OperationRuleSet};
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../examples/manifests.rs"]
#[allow(
    dead_code,
    reason = "its main writes the files; the test only compares"
)]
mod generator;

fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns all YAML files below `folder`, except `kustomization.yaml`.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.ends_with("deploy/helm") || path.ends_with("deploy/olm") {
            // The files in these two folders are left out. The files of Helm are templates, which
            // are not valid YAML. OLM reads all files of its folder, so it needs no kustomization.
        } else if path.is_dir() {
            found.extend(manifests(&path));
        } else if path
            .extension()
            .is_some_and(|extension| extension == "yaml")
            && !path.ends_with("kustomization.yaml")
        {
            found.push(path.canonicalize().unwrap());
        }
    }
    found.sort();
    found
}

fn documents(path: &Path) -> Vec<Value> {
    read(path)
        .split("\n---\n")
        .map(|text| {
            serde_saphyr::from_str(text)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        })
        .collect()
}

/// Returns the shipped rule sets with their files. A rule set is the first document of its file.
fn rule_sets() -> Vec<(PathBuf, OperationRuleSet)> {
    let all: Vec<_> = manifests(&repository().join("rules"))
        .into_iter()
        .filter_map(|path| {
            let first = documents(&path).swap_remove(0);
            if first["kind"] == "ClusterRole" {
                return None;
            }
            let set = serde_json::from_value(first)
                .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            Some((path, set))
        })
        .collect();
    assert!(!all.is_empty());
    all
}

/// Returns the files that the kustomization in `folder` installs, including the files of other
/// folders that the kustomization lists.
fn installed(folder: &Path) -> BTreeSet<PathBuf> {
    let kustomization = &documents(&folder.join("kustomization.yaml"))[0];
    let mut files = BTreeSet::new();
    let lists = ["resources", "components"];
    let lists = lists.iter().filter_map(|it| kustomization[it].as_array());
    for resource in lists.flatten() {
        let path = folder.join(resource.as_str().unwrap());
        if path.is_dir() {
            files.extend(installed(&path));
        } else {
            assert!(path.is_file(), "{}", path.display());
            files.insert(path.canonicalize().unwrap());
        }
    }
    files
}

/// Returns the patch files of the kustomization in `folder`.
fn patches(folder: &Path) -> Vec<PathBuf> {
    let kustomization = &documents(&folder.join("kustomization.yaml"))[0];
    let patches = kustomization["patches"].as_array().into_iter().flatten();
    patches
        .map(|patch| folder.join(patch["path"].as_str().unwrap()))
        .map(|path| path.canonicalize().unwrap())
        .collect()
}

/// Returns the object of this kind and name that the kustomization in `deploy/` installs.
fn deployed(kind: &str, name: &str) -> Value {
    let files = installed(&repository().join("deploy"));
    let mut objects = files.iter().flat_map(|path| documents(path));
    let found = objects.find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("deploy/ has no {kind} {name}"))
}

#[test]
fn generated_manifests_are_up_to_date() {
    for (path, generated) in generator::manifests().unwrap() {
        let found = fs::read_to_string(repository().join(&path)).unwrap_or_default();
        assert!(
            found == generated,
            "{path} is not up to date: run `make manifests`"
        );
    }
}

/// Returns the paths of the files below `folder`, relative to the repository.
fn files(folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(repository().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// OLM reads the annotations of the bundle from the labels of its image.
#[test]
fn the_image_of_the_olm_bundle_has_its_annotations_as_labels_and_all_its_folders() {
    let folder = repository().join("deploy/olm");
    let annotations = &documents(&folder.join("metadata/annotations.yaml"))[0]["annotations"];
    let dockerfile = fs::read_to_string(folder.join("bundle.Dockerfile")).unwrap();
    let labels = dockerfile.lines().filter_map(|line| {
        let label = line
            .trim_start_matches("LABEL")
            .trim_end_matches('\\')
            .trim();
        label
            .starts_with("operators.")
            .then(|| label.split_once('='))?
    });
    let labels: BTreeMap<_, _> = labels.collect();
    let annotations = annotations.as_object().unwrap().iter();
    let annotations = annotations.map(|(key, value)| (key.as_str(), value.as_str().unwrap()));
    let annotations: BTreeMap<_, _> = annotations.collect();
    assert_eq!(labels, annotations);
    let folders = annotations.values().filter(|value| value.ends_with('/'));
    for path in folders.map(|path| path.trim_end_matches('/')) {
        assert!(folder.join(path).is_dir(), "{path}");
        let copied = format!("COPY {path} /{path}/\n");
        assert!(dockerfile.contains(&copied), "{copied}");
    }
}

/// `make manifests` generates templates of the Helm chart, but does not delete them. If a
/// contributor removes the source of a template, the contributor must also delete the template.
/// Otherwise, this test fails.
#[test]
fn the_chart_contains_only_generated_and_listed_files() {
    let written = [
        "NOTES.txt",
        "apiservice.yaml",
        "deployment.yaml",
        "servicemonitor.yaml",
        "tests/operations.yaml",
    ];
    let written = written.map(|file| format!("deploy/helm/ifo/templates/{file}"));
    let values = ["README.md", "values.schema.json", "values.yaml"];
    let values = values.map(|file| format!("deploy/helm/ifo/{file}"));
    let rules = ["deploy/helm/ifo-rules/README.md".to_owned()];
    let generated = generator::manifests().unwrap();
    let known: BTreeSet<String> = generated
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| path.starts_with("deploy/helm/"))
        .chain(written)
        .chain(values)
        .chain(rules)
        .chain(["deploy/helm/artifacthub-repo.yml".to_owned()])
        .collect();
    assert_eq!(
        files("deploy/helm").into_iter().collect::<BTreeSet<_>>(),
        known
    );
}

/// The folders at the top level of the repository. Users find the parts of the product by these
/// names, so a contributor may not add or remove a folder without an agreement.
const TOP_FOLDERS: [&str; 11] = [
    "apiservice",
    "benches",
    "certs",
    "crates",
    "deploy",
    "docs",
    "examples",
    "fuzz",
    "rules",
    "src",
    "tests",
];

/// The files that the top level of the repository must have.
const TOP_FILES: [&str; 10] = [
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "Dockerfile",
    "LICENSE",
    "Makefile",
    "README.md",
    "SECURITY.md",
    "build.rs",
];

#[test]
fn the_top_level_has_exactly_the_agreed_folders_and_files() {
    let (mut folders, mut files) = (BTreeSet::new(), BTreeSet::new());
    for entry in fs::read_dir(repository()).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        // git ignores kubeconfigs and the folder `target`, which cargo creates.
        let is_ignored = name == "target" || name.ends_with(".kubeconfig");
        if name.starts_with('.') || is_ignored {
            continue;
        }
        if entry.path().is_dir() {
            folders.insert(name);
        } else {
            files.insert(name);
        }
    }
    assert_eq!(folders, TOP_FOLDERS.map(str::to_owned).into());
    // These files about the community of the project are optional here.
    let community = [
        "CODE_OF_CONDUCT.md",
        "GOVERNANCE.md",
        "MAINTAINERS.md",
        "artifacthub-repo.yml",
    ];
    let known: BTreeSet<&str> = TOP_FILES.into_iter().chain(community).collect();
    let unknown: Vec<_> = files.iter().filter(|it| !known.contains(&***it)).collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    for file in TOP_FILES {
        assert!(files.contains(file), "{file} is missing");
    }
}

#[test]
fn every_manifest_is_in_a_kustomization_or_has_its_own_role() {
    for folder in ["apiservice", "certs", "deploy", "rules"] {
        let folder = repository().join(folder);
        let mut installed = if folder.ends_with("certs") {
            let mut all = BTreeSet::new();
            for source in ["cert-manager", "openshift-service-ca"] {
                all.extend(installed(&folder.join(source)));
                all.extend(patches(&folder.join(source)));
            }
            all
        } else {
            installed(&folder)
        };
        if folder.ends_with("deploy") {
            for subfolder in [
                "crd",
                "crd-persistence",
                "persistence",
                "register",
                "targets-default",
            ] {
                installed.extend(self::installed(&folder.join(subfolder)));
            }
        }
        for list in ["components", "transformers"] {
            for entry in fs::read_dir(folder.join(list)).into_iter().flatten() {
                let subfolder = entry.unwrap().path();
                installed.extend(self::installed(&subfolder));
                installed.extend(patches(&subfolder));
            }
        }
        for path in manifests(&folder) {
            // Users choose the gates that they want and apply each file alone. The files for k9s are
            // no manifests.
            let without_kustomization = ["gates", "k9s"].map(|it| folder.join(it));
            if without_kustomization
                .iter()
                .any(|it| path.parent() == Some(it))
            {
                continue;
            }
            // If no kustomization lists the file of a rule set, users apply this file alone. So it
            // must also contain the role that lets the server read the target.
            let alone = || {
                let documents = documents(&path);
                path.with_file_name("kustomization.yaml").is_file()
                    && documents[0]["kind"] == "OperationRuleSet"
                    && documents.len() == 2
                    && documents[1]["kind"] == "ClusterRole"
            };
            assert!(installed.contains(&path) || alone(), "{}", path.display());
        }
    }
}

#[test]
fn the_image_has_the_version_of_the_manifests() {
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
    let base = repository().join("deploy/base");
    let images = &documents(&base.join("kustomization.yaml"))[0]["images"];
    assert_eq!(images[0]["newTag"], version);
    let deployment = deployed("Deployment", "ifo-apiserver");
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["image"],
        format!("ghcr.io/kubevirt/ifo-apiserver:{version}")
    );
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
    let repository = repository();
    for folder in ["deploy", "deploy/persistence", "deploy/register"] {
        for path in installed(&repository.join(folder)) {
            for object in documents(&path) {
                let kind = object["kind"].as_str().unwrap();
                assert!(
                    !["CustomResourceDefinition", "APIService"].contains(&kind),
                    "{folder} has {}",
                    path.display()
                );
                assert!(
                    object["metadata"]["labels"][AGGREGATE_LABEL].is_null(),
                    "{folder} lets the server read targets: {}",
                    path.display()
                );
            }
        }
    }
    for (folder, file) in [
        ("deploy/crd", "operationrulesets.yaml"),
        ("deploy/crd-persistence", "inflightoperations.yaml"),
        ("deploy/targets-default", "clusterrole.yaml"),
        ("apiservice", "apiservice.yaml"),
    ] {
        let installed = installed(&repository.join(folder));
        let names: Vec<_> = installed.iter().filter_map(|it| it.file_name()).collect();
        assert_eq!(names, [file], "{folder}");
    }
}

/// When a user deletes the server, Kubernetes must also delete the APIService. For this purpose,
/// `src/app/cluster/registration.rs` makes the ClusterRole `ifo-apiserver-registration`
/// the owner of the APIService. The server must have the rights to change the APIService, and to
/// read the UID of the ClusterRole. So the rules of the ClusterRole must name both objects.
#[test]
fn the_registration_is_owned_by_an_object_deleted_with_the_server() {
    let role = deployed("ClusterRole", "ifo-apiserver-registration");
    assert_eq!(
        role["rules"][0]["resourceNames"][0],
        "v1alpha1.live.ifo.kubevirt.io"
    );
    assert_eq!(
        role["rules"][1]["resourceNames"][0],
        role["metadata"]["name"]
    );
}

/// Without the component `register`, the server may create no APIService. RBAC cannot limit the
/// right to create to a name, so the component adds an admission policy.
#[test]
fn only_the_component_register_lets_the_server_create_its_api_service() {
    let mut registration = deployed("ClusterRole", "ifo-apiserver-registration");
    let verbs = registration["rules"][0]["verbs"].take();
    assert_eq!(verbs, json!(["get", "patch", "delete"]));
    let own = server_rules("ClusterRole", "apiGroups", "apiregistration.k8s.io");
    let watch = json!({
        "apiGroups": ["apiregistration.k8s.io"], "resources": ["apiservices"],
        "verbs": ["list", "watch"],
    });
    assert_eq!(own, [watch]);

    let added = documents(&repository().join("deploy/components/register/rbac.yaml"));
    let kinds: Vec<_> = added
        .iter()
        .map(|it| it["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        [
            "ClusterRole",
            "ClusterRoleBinding",
            "ValidatingAdmissionPolicy",
            "ValidatingAdmissionPolicyBinding"
        ]
    );
    let create = json!([{
        "apiGroups": ["apiregistration.k8s.io"], "resources": ["apiservices"],
        "verbs": ["create"],
    }]);
    assert_eq!(added[0]["rules"], create);
}

#[test]
fn persistence_adds_the_rights_for_its_custom_resources_and_nothing_else() {
    let deploy = repository().join("deploy");
    let added: BTreeSet<PathBuf> = installed(&deploy.join("persistence"))
        .difference(&installed(&deploy))
        .cloned()
        .collect();
    let names: Vec<&str> = added
        .iter()
        .filter_map(|path| path.file_name()?.to_str())
        .collect();
    assert_eq!(names, ["rbac.yaml"]);
    let crd = &documents(&deploy.join("crd-persistence/inflightoperations.yaml"))[0];
    assert_eq!(crd["spec"]["scope"], "Cluster");
    assert!(
        crd["spec"]["names"]["shortNames"].is_null(),
        "the short names must belong to the live operations"
    );
    let version = &crd["spec"]["versions"][0];
    assert!(
        version["subresources"].is_null(),
        "without a status subresource, one write contains spec and status"
    );
    let fields = |list: &str, field: &str| -> Vec<String> {
        let list = version[list].as_array().unwrap();
        let text = |it: &Value| it[field].as_str().unwrap().to_owned();
        list.iter().map(text).collect()
    };
    assert_eq!(
        fields("additionalPrinterColumns", "name"),
        [
            "Kind",
            "Namespace",
            "Subject",
            "Operation",
            "Phase",
            "Started",
            "Completed"
        ]
    );
    assert_eq!(
        fields("selectableFields", "jsonPath"),
        [
            ".spec.operation",
            ".status.phase",
            ".spec.initiator",
            ".spec.subject.namespace"
        ]
    );
}

#[test]
fn shipped_rule_sets_have_known_fields_and_unique_names() {
    let mut names = BTreeSet::new();
    for (path, set) in rule_sets() {
        let written = &documents(&path)[0];
        let understood = serde_json::to_value(&set).unwrap();
        assert_eq!(*written, understood, "{}", path.display());
        assert!(
            names.insert(set.metadata.name.clone()),
            "another rule set has the same name as {}",
            path.display()
        );
    }
}

/// Returns the resources that a role allows the server to read, as pairs of API group and resource.
fn granted(role: &ClusterRole) -> BTreeSet<(String, String)> {
    let labels = role.metadata.labels.clone().unwrap_or_default();
    assert_eq!(
        labels.get(AGGREGATE_LABEL).map(String::as_str),
        Some("true")
    );
    let mut granted = BTreeSet::new();
    for rule in role.rules.iter().flatten() {
        assert_eq!(rule.verbs, ["get", "list", "watch"]);
        for group in rule.api_groups.iter().flatten() {
            for resource in rule.resources.iter().flatten() {
                granted.insert((group.clone(), resource.clone()));
            }
        }
    }
    granted
}

/// A rule pack is a folder with rule sets, and with the role that lets the server read their
/// targets. If the kustomization of the folder does not list the file of a rule set, this file also
/// contains the role for this rule set.
#[test]
fn each_rule_pack_grants_the_right_to_read_exactly_its_targets() {
    let rules = repository().join("rules");
    let mut packs = 0;
    for entry in fs::read_dir(&rules).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.join("kustomization.yaml").is_file() {
            continue;
        }
        packs += 1;
        let pack = installed(&folder);
        let alone = manifests(&folder)
            .into_iter()
            .filter(|path| !pack.contains(path));
        let alone = alone.map(|path| BTreeSet::from([path]));
        for applied in std::iter::once(pack.clone()).chain(alone) {
            let (mut targets, mut grants) = (BTreeSet::new(), BTreeSet::new());
            for object in applied.iter().flat_map(|path| documents(path)) {
                if object["kind"] == "ClusterRole" {
                    let role: ClusterRole = serde_json::from_value(object).unwrap();
                    grants.extend(granted(&role));
                } else {
                    let set: OperationRuleSet = serde_json::from_value(object).unwrap();
                    targets.insert((set.spec.target.group, set.spec.target.resource));
                }
            }
            assert_eq!(grants, targets, "{applied:?}");
        }
    }
    assert!(packs > 10, "{packs}");
}

/// Returns the rules of the server's Role or ClusterRole whose list `field` contains `item`.
fn server_rules(kind: &str, field: &str, item: &str) -> Vec<Value> {
    let role = deployed(kind, "ifo-apiserver");
    let rules = role["rules"]
        .as_array()
        .expect("the role must have rules")
        .iter();
    let contains = |rule: &&Value| {
        let list = rule[field].as_array();
        list.is_some_and(|list| list.contains(&item.into()))
    };
    rules.filter(contains).cloned().collect()
}

#[test]
fn the_server_may_change_only_its_own_lease() {
    assert_eq!(
        server_rules("Role", "resources", "leases"),
        [
            json!({
                "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                "resourceNames": ["ifo-apiserver"], "verbs": ["get", "update"],
            }),
            json!({
                "apiGroups": ["coordination.k8s.io"], "resources": ["leases"],
                "verbs": ["create"],
            }),
        ]
    );
    let in_all_namespaces = server_rules("ClusterRole", "apiGroups", "coordination.k8s.io");
    assert!(in_all_namespaces.is_empty(), "{in_all_namespaces:?}");
}

/// RBAC cannot limit the right to create Secrets to one name, so the server has no right to create
/// Secrets. Instead, `deploy/` contains an empty Secret, and the server writes its CA into this
/// Secret.
#[test]
fn the_server_may_read_and_write_its_own_secret_and_create_none() {
    let secret = deployed("Secret", "ifo-apiserver-serving-ca");
    assert!(secret["data"].is_null() && secret["stringData"].is_null());
    let rule = |name: &str, verbs: &[&str]| {
        json!({
            "apiGroups": [""], "resources": ["secrets"], "resourceNames": [name], "verbs": verbs,
        })
    };
    assert_eq!(
        server_rules("Role", "resources", "secrets"),
        [rule("ifo-apiserver-serving-ca", &["get", "update"]),]
    );
    assert!(server_rules("ClusterRole", "resources", "secrets").is_empty());
}

#[test]
fn a_replica_may_copy_operations_from_other_replicas() {
    assert_eq!(
        server_rules("ClusterRole", "apiGroups", "live.ifo.kubevirt.io"),
        [json!({
            "apiGroups": ["live.ifo.kubevirt.io"], "resources": ["inflightoperations"],
            "verbs": ["list", "watch"],
        })]
    );
    assert_eq!(
        server_rules("ClusterRole", "nonResourceURLs", "/peer"),
        [json!({"nonResourceURLs": ["/peer"], "verbs": ["get"]})]
    );
}

#[test]
fn no_user_role_grants_the_replication_path() {
    for path in manifests(&repository().join("deploy")) {
        for object in documents(&path) {
            if object["kind"] != "ClusterRole" || object["metadata"]["name"] == "ifo-apiserver" {
                continue;
            }
            for rule in object["rules"].as_array().into_iter().flatten() {
                let paths = &rule["nonResourceURLs"];
                // Only the server's own role may grant the path `/peer`, to which replicas send
                // requests. The other ClusterRoles may grant only `/metrics`, for Prometheus.
                let is_allowed = paths.is_null() || *paths == json!(["/metrics"]);
                assert!(is_allowed, "{}: {paths}", path.display());
            }
        }
    }
}

#[test]
fn a_replica_knows_its_identity_and_has_a_token_for_the_other_replicas() {
    let pod = &deployed("Deployment", "ifo-apiserver")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let env = container["env"].as_array().unwrap();
    for (name, field) in [
        ("POD_NAMESPACE", "metadata.namespace"),
        ("POD_UID", "metadata.uid"),
        ("POD_IP", "status.podIP"),
    ] {
        let variable = env.iter().find(|it| it["name"] == name);
        let variable = variable.unwrap_or_else(|| panic!("{name} is not set"));
        assert_eq!(variable["valueFrom"]["fieldRef"]["fieldPath"], field);
    }
    let args = container["args"].as_array().unwrap().iter();
    let args: Vec<&str> = args.filter_map(Value::as_str).collect();
    assert!(args.contains(&"--leader-elect"), "{args:?}");
    let file = args
        .iter()
        .find_map(|arg| arg.strip_prefix("--peer-token-file="))
        .expect("the Deployment must set the flag --peer-token-file");
    let mount = container["volumeMounts"].as_array().unwrap().iter();
    let mut mount = mount.filter(|it| file.starts_with(it["mountPath"].as_str().unwrap()));
    let mount = mount
        .next()
        .expect("the folder of the token must be mounted");
    let volume = pod["volumes"].as_array().unwrap().iter();
    let mut volume = volume.filter(|it| it["name"] == mount["name"]);
    let sources = &volume.next().expect("the mounted volume must exist")["projected"]["sources"];
    // A replica sends this token to other replicas. If the token had the default audience, a
    // process that receives the token could use it at the kube-apiserver.
    assert_eq!(
        sources,
        &json!([{"serviceAccountToken": {"audience": "ifo-apiserver", "path": "token"}}])
    );
    assert_eq!(
        Path::new(mount["mountPath"].as_str().unwrap()).join("token"),
        Path::new(file)
    );
}

#[test]
fn one_of_two_replicas_survives_updates_drains_and_a_lost_node() {
    let spec = &deployed("Deployment", "ifo-apiserver")["spec"];
    assert_eq!(spec["replicas"], 2);
    assert_eq!(
        spec["strategy"],
        json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}})
    );
    let budget = &deployed("PodDisruptionBudget", "ifo-apiserver")["spec"];
    assert_eq!(budget["maxUnavailable"], 1);
    assert_eq!(budget["unhealthyPodEvictionPolicy"], "AlwaysAllow");

    let pod = &spec["template"]["spec"];
    let spread = &pod["topologySpreadConstraints"][0];
    assert_eq!(spread["topologyKey"], "kubernetes.io/hostname");
    assert_eq!(spread["maxSkew"], 1);
    // In a cluster with only one node, both replicas must be able to run on this node.
    assert_eq!(spread["whenUnsatisfiable"], "ScheduleAnyway");
    for selector in [&budget["selector"], &spread["labelSelector"]] {
        assert_eq!(selector, &spec["selector"]);
    }
    let tolerated = |taint: &str| {
        json!({
            "key": taint, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 30,
        })
    };
    assert_eq!(
        pod["tolerations"],
        json!([
            tolerated("node.kubernetes.io/not-ready"),
            tolerated("node.kubernetes.io/unreachable")
        ])
    );
}

/// The lists of the Deployment contain items that replicas need, such as the volume of the token.
/// So the patch of a component in `deploy/components` must not replace a list. In a JSON patch,
/// `add` with the path of a list replaces the whole list. If the path ends with `/-`, `add` appends
/// an item (RFC 6902).
#[test]
fn components_with_certificates_keep_the_lists_of_the_deployment() {
    for component in ["cert-manager", "openshift-service-ca"] {
        let file = format!("deploy/components/{component}/deployment.yaml");
        let patch = &documents(&repository().join(file))[0];
        let operations = patch.as_array().expect("a JSON patch must be a list");
        assert!(!operations.is_empty());
        for operation in operations {
            let path = operation["path"].as_str().unwrap();
            assert!(
                operation["op"] == "add" && path.ends_with("/-"),
                "{operation}"
            );
            let list = path.strip_suffix("/-").unwrap();
            let deployment = deployed("Deployment", "ifo-apiserver");
            let list = deployment.pointer(list).and_then(Value::as_array);
            assert!(list.is_some(), "{path} is not a list of the Deployment");
        }
    }
}

#[test]
fn no_secret_is_readable_as_a_target() {
    let files = manifests(&repository().join("deploy/targets-default"));
    let files = files
        .into_iter()
        .chain(manifests(&repository().join("rules")));
    let roles: Vec<ClusterRole> = files
        .flat_map(|path| documents(&path))
        .filter(|object| object["kind"] == "ClusterRole")
        .map(|object| serde_json::from_value(object).unwrap())
        .collect();
    assert!(roles.len() > 10);
    for rule in roles.into_iter().filter_map(|role| role.rules).flatten() {
        for resource in rule.resources.into_iter().flatten() {
            assert!(resource != "secrets" && resource != "*", "{resource}");
        }
        for group in rule.api_groups.into_iter().flatten() {
            assert_ne!(group, "*");
        }
    }
}

#[test]
fn the_filled_in_krew_manifest_is_valid() {
    let template = read(&repository().join(".krew.yaml"));
    let filled: String = template
        .lines()
        .map(|line| {
            if line.contains("addURIAndSha") {
                "    uri: https://example.com/x.tar.gz\n    sha256: 0\n".to_owned()
            } else {
                line.replace("{{ .TagName }}", "v0.1.0") + "\n"
            }
        })
        .collect();
    let plugin: serde_json::Value =
        serde_saphyr::from_str(&filled).expect("the manifest must be valid YAML");
    assert_eq!(plugin["metadata"]["name"], "ifo");
    let platforms = plugin["spec"]["platforms"]
        .as_array()
        .expect("the manifest must have platforms");
    assert_eq!(platforms.len(), 4);
    for platform in platforms {
        assert_eq!(platform["bin"], "kubectl-ifo");
        assert!(
            platform["uri"].is_string() && platform["selector"]["matchLabels"]["os"].is_string()
        );
    }
}
