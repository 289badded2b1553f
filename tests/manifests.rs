//! The manifests that are checked in: what is generated is up to date, what is written
//! by hand is complete and fits together.

use ifo_api::ruleset::{AGGREGATE_LABEL, OperationRuleSet};
use k8s_openapi::api::rbac::v1::ClusterRole;
use serde_json::Value;
use std::collections::BTreeSet;
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

/// The YAML files below `folder`, without those of kustomize.
fn manifests(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
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

/// The rule sets that ship, by file: the first document of each, all but the roles.
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

/// The files that the kustomization of `folder` installs, through those of folders it
/// names.
fn installed(folder: &Path) -> BTreeSet<PathBuf> {
    let kustomization = &documents(&folder.join("kustomization.yaml"))[0];
    let mut files = BTreeSet::new();
    for resource in kustomization["resources"].as_array().unwrap() {
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

#[test]
fn generated_manifests_are_up_to_date() {
    for (path, generated) in generator::manifests().unwrap() {
        let found = fs::read_to_string(repository().join(&path)).unwrap_or_default();
        assert!(
            found == generated,
            "{path} differs from what is generated: run `make manifests`"
        );
    }
}

#[test]
fn every_manifest_is_installed_by_its_kustomization_or_brings_its_role() {
    for folder in ["apiservice", "deploy", "rules"] {
        let folder = repository().join(folder);
        let mut installed = installed(&folder);
        if folder.ends_with("deploy") {
            for apart in ["crd", "crd-persistence", "persistence", "targets-default"] {
                installed.extend(self::installed(&folder.join(apart)));
            }
        }
        for path in manifests(&folder) {
            // A rule set that is not installed by default is installed alone.
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

/// What `kubectl delete -k` deletes with the server must not take rule sets along, and
/// what `kubectl apply -k` applies with it must not wait for a server that does not run.
#[test]
fn the_crds_the_registration_and_the_targets_are_apart_from_the_server() {
    let repository = repository();
    for folder in ["deploy", "deploy/persistence", "certs/cert-manager"] {
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
        ("certs/cert-manager/apiservice", "apiservice.yaml"),
    ] {
        let installed = installed(&repository.join(folder));
        let names: Vec<_> = installed.iter().filter_map(|it| it.file_name()).collect();
        assert_eq!(names, [file], "{folder}");
    }
}

/// `src/app/cluster/registration.rs` makes it the owner of the registration.
#[test]
fn the_owner_of_the_registration_is_deleted_with_the_server() {
    let files = installed(&repository().join("deploy"));
    let mut objects = files.iter().flat_map(|path| documents(path));
    let role = objects.find(|it| {
        it["kind"] == "ClusterRole" && it["metadata"]["name"] == "ifo-apiserver-registration"
    });
    let role = role.expect("deploy/ has it");
    assert_eq!(
        role["rules"][0]["resourceNames"][0],
        "v1alpha1.live.ifo.kubevirt.io"
    );
    assert_eq!(
        role["rules"][1]["resourceNames"][0],
        role["metadata"]["name"]
    );
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
        "they are the live operations'"
    );
    let version = &crd["spec"]["versions"][0];
    assert!(version["subresources"].is_null(), "one write says it all");
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
            ".spec.subject.namespace"
        ]
    );
}

#[test]
fn shipped_rule_sets_use_only_fields_that_exist_and_names_that_are_free() {
    let mut names = BTreeSet::new();
    for (path, set) in rule_sets() {
        let written = &documents(&path)[0];
        let understood = serde_json::to_value(&set).unwrap();
        assert_eq!(*written, understood, "{}", path.display());
        assert!(
            names.insert(set.metadata.name.clone()),
            "{} is not the first of its name",
            path.display()
        );
    }
}

/// What a role lets the server read, as (group, resource).
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

/// What is applied with one command brings the rights for its targets, and no others.
#[test]
fn each_rule_pack_grants_exactly_its_targets() {
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

#[test]
fn the_server_may_find_and_ask_the_one_that_it_replaces() {
    let deploy = repository().join("deploy");
    let objects: Vec<Value> = manifests(&deploy)
        .iter()
        .flat_map(|path| documents(path))
        .collect();
    let grants = |kind: &str, group: &str, resource: &str| {
        let of_server =
            |it: &&Value| it["kind"] == kind && it["metadata"]["name"] == "ifo-apiserver";
        let rules = objects.iter().filter(of_server);
        let mut rules = rules.flat_map(|it| it["rules"].as_array().into_iter().flatten());
        let has = |list: &Value, item: &str| {
            list.as_array()
                .is_some_and(|all| all.contains(&item.into()))
        };
        rules.any(|rule| {
            has(&rule["apiGroups"], group)
                && has(&rule["resources"], resource)
                && has(&rule["verbs"], "list")
        })
    };
    assert!(grants(
        "ClusterRole",
        "live.ifo.kubevirt.io",
        "inflightoperations"
    ));
    assert!(grants("Role", "discovery.k8s.io", "endpointslices"));
    let kind = |kind: &str| objects.iter().find(|it| it["kind"] == kind).unwrap();
    let container = &kind("Deployment")["spec"]["template"]["spec"]["containers"][0];
    let own = container["env"].as_array().unwrap().iter();
    let mut own = own.filter(|it| it["name"] == "POD_IP");
    assert_eq!(
        own.next().unwrap()["valueFrom"]["fieldRef"]["fieldPath"],
        "status.podIP"
    );
    // What EndpointSlices call the port by which it is asked.
    assert_eq!(kind("Service")["spec"]["ports"][0]["name"], "https");
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
fn the_krew_manifest_is_one_once_the_release_has_filled_it_in() {
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
    let plugin: serde_json::Value = serde_saphyr::from_str(&filled).expect("YAML");
    assert_eq!(plugin["metadata"]["name"], "ifo");
    let platforms = plugin["spec"]["platforms"].as_array().expect("platforms");
    assert_eq!(platforms.len(), 4);
    for platform in platforms {
        assert_eq!(platform["bin"], "kubectl-ifo");
        assert!(
            platform["uri"].is_string() && platform["selector"]["matchLabels"]["os"].is_string()
        );
    }
}
