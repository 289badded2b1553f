//! Creates the Helm charts in `deploy/helm` from the files that kustomize uses.
//!
//! The input is the kustomizations in `deploy` and `rules`, with the files that they list. There
//! are two charts, `ifo` (the server) and `ifo-rules` (the rule sets). The output is:
//!
//! - `Chart.yaml` of both charts
//! - most templates of `ifo`. Its other templates are written by hand.
//! - all other files of `ifo-rules`
//!
//! A template is the text of its source file with these changes:
//!
//! - `ifo-system` becomes the namespace of the Helm release.
//! - The template has the labels and annotations that the kustomization adds.
//! - `{{` is escaped, so that Helm prints it unchanged.
//! - Some templates have a condition on the values of the chart. Helm renders such a template only
//!   if its condition is true.
//!
//! The rule sets have a chart of their own, because a chart must not contain a CRD and objects of
//! this CRD: Helm looks up the kinds of all objects before it creates the first object. So Helm
//! would not find the kind of the rule sets, because their CRD is not installed yet.

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::Path;

use super::{Shipped, parse, read, repository};

#[path = "generate_helm_charts/rules_chart.rs"]
mod rules_chart;

/// The folder of the chart with the server.
const CHART: &str = "deploy/helm/ifo";

/// The folder of the chart with the rule packs. A rule pack is the rule sets of one folder in
/// `rules`.
const RULES_CHART: &str = "deploy/helm/ifo-rules";

/// The namespace in the source files.
const NAMESPACE: &str = "ifo-system";

/// The condition of the chart under which the server creates the `APIService`. The hand-written
/// templates `apiservice.yaml` and `deployment.yaml` contain the same condition.
const SERVER_REGISTERS: &str =
    "and .Values.apiService.enabled (eq .Values.apiService.createdBy \"server\")";

/// The kustomizations whose files become templates. Each entry has the condition of its templates.
/// If the condition is empty, Helm always renders the templates.
const FOLDERS: [(&str, &str); 12] = [
    ("deploy/base", ""),
    ("deploy/crd", ".Values.crds.enabled"),
    // In persistence mode, the server writes operations as custom resources of this CRD. The chart
    // creates this CRD even if persistence mode is off. Otherwise, turning off persistence mode
    // would remove the CRD from the Helm release, but keep it in the cluster (`crds.keep`). Then a
    // rollback with Helm 3 would fail, because the CRD already exists.
    ("deploy/crd-persistence", ".Values.crds.enabled"),
    ("deploy/targets-default", ".Values.targetsDefault.enabled"),
    (
        "deploy/components/persistence",
        ".Values.persistence.enabled",
    ),
    (
        "deploy/components/cert-manager",
        "eq .Values.certificates.source \"cert-manager\"",
    ),
    (
        "deploy/components/network-policy",
        ".Values.networkPolicy.enabled",
    ),
    (
        "deploy/components/component-owners",
        ".Values.componentOwners.enabled",
    ),
    (
        "deploy/components/gate-webhook",
        ".Values.gateWebhook.enabled",
    ),
    (
        "deploy/components/subject-visibility",
        "eq .Values.visibility \"subject\"",
    ),
    ("deploy/components/monitoring", ".Values.monitoring.enabled"),
    ("deploy/components/register", SERVER_REGISTERS),
];

/// Kustomize components that only change the Deployment, the Service and the `ServiceMonitor`. The
/// components do not become templates. [`CONDITIONAL_ANNOTATIONS`] and the hand-written templates
/// `deployment.yaml` and `servicemonitor.yaml` contain the same changes.
const PATCHES: [&str; 2] = ["openshift-service-ca", "replicas"];

/// Files of kustomizations that do not become templates. Helm itself creates the namespace of the
/// Helm release. The templates for the Deployment and the `ServiceMonitor` are written by hand,
/// because they depend on several values.
const OMITTED: [&str; 3] = ["namespace.yaml", "deployment.yaml", "servicemonitor.yaml"];

/// The conditions of single files. The condition of a file replaces the condition of its folder.
const FILE_CONDITIONS: [(&str, &str); 1] = [(
    "deploy/base/priorityclass.yaml",
    "eq .Values.priorityClassName \"ifo-apiserver\"",
)];

/// An annotation of all objects of one kind. If the condition is false, Helm leaves the annotation
/// out.
struct ConditionalAnnotation {
    kind: &'static str,
    condition: &'static str,
    key: &'static str,
    value: &'static str,
}

const CONDITIONAL_ANNOTATIONS: [ConditionalAnnotation; 2] = [
    ConditionalAnnotation {
        kind: "CustomResourceDefinition",
        condition: ".Values.crds.keep",
        key: "helm.sh/resource-policy",
        value: "keep",
    },
    // This annotation comes from deploy/components/openshift-service-ca/service.yaml.
    ConditionalAnnotation {
        kind: "Service",
        condition: "eq .Values.certificates.source \"openshift\"",
        key: "service.beta.openshift.io/serving-cert-secret-name",
        value: "ifo-apiserver-serving",
    },
];

/// Returns the path in the repository and the content of each generated file of both charts.
/// `generated` contains the generated manifests. Some of them are sources of the charts.
///
/// # Errors
///
/// A file cannot be read, or a kustomization has a field that the charts do not support.
pub fn charts(
    catalogue: &[Shipped],
    generated: &[(String, String)],
) -> anyhow::Result<Vec<(String, String)>> {
    let mut files = vec![
        chart(
            CHART,
            "The API server of in-flight operations, its rights and its CustomResourceDefinitions",
        )?,
        chart(
            RULES_CHART,
            "The rule packs of in-flight operations. Install the chart ifo first",
        )?,
    ];
    let mut known: BTreeSet<&str> = PATCHES.into();
    for (folder, condition) in FOLDERS {
        known.extend(folder.strip_prefix("deploy/components/"));
        for source in sources(folder, condition, &Added::default())? {
            files.push(source.template(generated)?);
        }
    }
    for component in super::sorted(&repository().join("deploy/components"))? {
        let component = super::file_name(&component);
        ensure!(
            known.contains(component.as_str()),
            "deploy/components/{component}: the Helm chart does not contain this component"
        );
    }
    files.extend(rules_chart::files(catalogue)?);
    Ok(files)
}

/// Returns `Chart.yaml`. The chart has the version of the workspace.
fn chart(folder: &str, description: &str) -> anyhow::Result<(String, String)> {
    let name = folder.rsplit('/').next().unwrap_or_default();
    let chart = json!({
        "apiVersion": "v2",
        "name": name,
        "description": description,
        "type": "application",
        "version": env!("CARGO_PKG_VERSION"),
        "appVersion": concat!("v", env!("CARGO_PKG_VERSION")),
        // The suffix `-0` also allows versions of cloud providers, such as 1.30.4-gke.100.
        "kubeVersion": ">=1.30.0-0",
        "home": "https://github.com/kubevirt/ifo",
        "icon": "https://raw.githubusercontent.com/kubevirt/ifo/main/docs/images/icon.svg",
        "sources": ["https://github.com/kubevirt/ifo"],
        "keywords": ["operations", "migration", "upgrade", "maintenance", "kubevirt"],
        "annotations": {
            "artifacthub.io/category": "monitoring-logging",
            "artifacthub.io/license": "Apache-2.0",
        },
    });
    let yaml = serde_saphyr::to_string(&chart)?;
    let text = format!("# Generated by `make manifests`.\n{yaml}");
    Ok((format!("{folder}/Chart.yaml"), text))
}

/// The labels and annotations that a kustomization adds to its objects.
#[derive(Clone, Default)]
struct Added {
    labels: Map<String, Value>,
    annotations: Map<String, Value>,
}

impl Added {
    /// Returns these labels and annotations together with those that `kustomization` adds.
    fn with(&self, kustomization: &Value) -> Self {
        let mut added = self.clone();
        for entry in kustomization["labels"].as_array().into_iter().flatten() {
            added.labels.extend(object(&entry["pairs"]));
        }
        added
            .annotations
            .extend(object(&kustomization["commonAnnotations"]));
        added
    }
}

fn object(value: &Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

/// A file that becomes a template.
struct Source {
    /// The path in the repository.
    file: String,
    condition: String,
    added: Added,
}

impl Source {
    /// Returns the path and the text of the template. If `generated` has the source file, the text
    /// comes from `generated`. Otherwise the text is read from the file.
    fn template(&self, generated: &[(String, String)]) -> anyhow::Result<(String, String)> {
        let path = &self.file;
        let text = match generated.iter().find(|(generated, _)| generated == path) {
            Some((_, text)) => text.clone(),
            None => read(&repository().join(path))?,
        };
        let text = template(path, &text, &self.condition, &self.added)?;
        let name = path.strip_prefix("deploy/").unwrap_or(path);
        Ok((format!("{CHART}/templates/{name}"), text))
    }
}

/// Returns the files of one kustomization, and the files of the kustomizations that it lists.
fn sources(folder: &str, condition: &str, added: &Added) -> anyhow::Result<Vec<Source>> {
    let path = repository().join(folder).join("kustomization.yaml");
    let kustomization: Value = parse(&path, &read(&path)?)?;
    for field in object(&kustomization).keys() {
        // The fields `images` and `patches` are ignored, because they only change files whose
        // templates are written by hand.
        let supported = [
            "apiVersion",
            "kind",
            "labels",
            "commonAnnotations",
            "resources",
            "images",
            "patches",
        ];
        ensure!(
            supported.contains(&field.as_str()),
            "{}: the Helm chart does not support the field {field}",
            path.display()
        );
    }
    let added = added.with(&kustomization);
    let mut found = Vec::new();
    let resources = kustomization["resources"].as_array();
    for resource in resources.into_iter().flatten().filter_map(Value::as_str) {
        if OMITTED.contains(&resource) {
            continue;
        }
        let file = resolved(folder, resource);
        if repository().join(&file).is_dir() {
            found.extend(sources(&file, condition, &added)?);
            continue;
        }
        let mut own = FILE_CONDITIONS.iter().filter(|(path, _)| *path == file);
        let condition = own.next().map_or(condition, |(_, own)| own).to_owned();
        found.push(Source {
            file,
            condition,
            added: added.clone(),
        });
    }
    Ok(found)
}

/// Returns the path in the repository of `resource`, a path relative to `folder`.
fn resolved(folder: &str, resource: &str) -> String {
    let mut path: Vec<&str> = folder.split('/').collect();
    for part in resource.split('/') {
        if part == ".." {
            path.pop();
        } else {
            path.push(part);
        }
    }
    path.join("/")
}

/// Turns the text of the file `source` into a template. Helm renders the template only if
/// `condition` is true. If `condition` is empty, Helm always renders the template.
fn template(source: &str, text: &str, condition: &str, added: &Added) -> anyhow::Result<String> {
    let mut documents = Vec::new();
    for document in text.trim_end().split("\n---\n") {
        let object: Value = parse(Path::new(source), document)?;
        let kind = object["kind"]
            .as_str()
            .context("an object must have a kind")?;
        let text = with_metadata(&escape(document), kind, added)
            .with_context(|| format!("{source}: a {kind} has no metadata"))?;
        documents.push(text.replace(NAMESPACE, "{{ .Release.Namespace }}"));
    }
    let text = documents.join("\n---\n");
    let note = format!("# Generated from {source} by `make manifests`.");
    Ok(if condition.is_empty() {
        format!("{note}\n{text}\n")
    } else {
        format!("{{{{- if {condition} }}}}\n{note}\n{text}\n{{{{- end }}}}\n")
    })
}

/// Escapes `{{`, so that Helm prints `{{` unchanged.
fn escape(text: &str) -> String {
    text.replace("{{", "{{ \"{{\" }}")
}

/// Adds labels and annotations to the metadata of a document. Also adds the annotations of
/// [`CONDITIONAL_ANNOTATIONS`] for objects of this kind. Returns `None` if the document has no
/// metadata.
fn with_metadata(document: &str, kind: &str, added: &Added) -> Option<String> {
    let (before, rest) = document.split_once("\nmetadata:\n")?;
    // The metadata ends at the first line that is not indented.
    let mut at = 0;
    for line in rest.split_inclusive('\n') {
        if !line.starts_with(' ') {
            break;
        }
        at += line.len();
    }
    let (metadata, after) = rest.split_at(at);
    let metadata = with_entries(metadata.trim_end(), "labels", &added.labels);
    let mut metadata = with_entries(&metadata, "annotations", &added.annotations);
    for conditional in CONDITIONAL_ANNOTATIONS.iter().filter(|it| it.kind == kind) {
        let ConditionalAnnotation {
            condition,
            key,
            value,
            ..
        } = conditional;
        // If the kustomization adds annotations, the metadata already ends with the field
        // `annotations`. The conditional annotation then becomes a further line of this field.
        let field = if added.annotations.is_empty() {
            "  annotations:\n"
        } else {
            ""
        };
        write!(
            metadata,
            "\n{{{{- if {condition} }}}}\n{field}    {key}: {value}\n{{{{- end }}}}"
        )
        .ok()?;
    }
    Some(
        format!("{before}\nmetadata:\n{metadata}\n{after}")
            .trim_end()
            .to_owned(),
    )
}

/// Adds entries to a map in the metadata, such as `labels`. If the metadata does not have the map,
/// this function adds the map at the end.
fn with_entries(metadata: &str, map: &str, entries: &Map<String, Value>) -> String {
    let head = format!("  {map}:");
    let lines = entries.iter().filter_map(|(key, value)| {
        let line = format!("    {key}: {}", value.as_str()?);
        (!metadata.lines().any(|existing| existing == line)).then_some(line)
    });
    let lines: Vec<String> = lines.collect();
    if lines.is_empty() {
        return metadata.to_owned();
    }
    let lines = lines.join("\n");
    if metadata.lines().any(|line| line == head) {
        metadata.replacen(&head, &format!("{head}\n{lines}"), 1)
    } else {
        format!("{metadata}\n{head}\n{lines}")
    }
}
