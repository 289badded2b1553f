//! Schemas of resources. Enters: CRDs, `OpenAPI` documents, a cluster. Leaves: whether an
//! object of a resource can have a field, and which one was meant if not.

use super::input::{self, Input};
use crate::api::Gvr;
use crate::expression::Step;
use crate::observe::{ConnectOptions, connect, manifest};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::Duration;

/// References and combinations followed for one field: schemas may refer to themselves.
const MAX_DEPTH: usize = 32;

/// How long the cluster may take for one answer.
const API_TIMEOUT: Duration = Duration::from_secs(30);

/// What every object has, since CRDs leave it out.
static METADATA: LazyLock<Value> = LazyLock::new(|| {
    let text = || json!({"type": "string"});
    let texts = || json!({"type": "object", "additionalProperties": {"type": "string"}});
    json!({"type": "object", "properties": {
        "annotations": texts(),
        "creationTimestamp": text(),
        "deletionGracePeriodSeconds": {"type": "integer"},
        "deletionTimestamp": text(),
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "generateName": text(),
        "generation": {"type": "integer"},
        "labels": texts(),
        "managedFields": {"type": "array", "items": {"type": "object", "properties": {
            "apiVersion": text(),
            "fieldsType": text(),
            "fieldsV1": {"x-kubernetes-preserve-unknown-fields": true},
            "manager": text(),
            "operation": text(),
            "subresource": text(),
            "time": text(),
        }}},
        "name": text(),
        "namespace": text(),
        "ownerReferences": {"type": "array", "items": {"type": "object", "properties": {
            "apiVersion": text(),
            "blockOwnerDeletion": {"type": "boolean"},
            "controller": {"type": "boolean"},
            "kind": text(),
            "name": text(),
            "uid": text(),
        }}},
        "resourceVersion": text(),
        "selfLink": text(),
        "uid": text(),
    }})
});

/// The type of a text, which has no fields.
static TEXT: LazyLock<Value> = LazyLock::new(|| json!({"type": "string"}));

/// All schemas that were given.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    /// From CRDs: the schema of each version of a resource.
    declared: BTreeMap<Gvr, Value>,
    /// `OpenAPI` documents.
    documents: Vec<Value>,
}

/// A field that an object cannot have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unknown {
    /// Steps to it.
    pub(super) depth: usize,
    /// Its name.
    pub(super) field: String,
    /// What does not have it, such as `object.status`.
    pub(super) parent: String,
    /// The name that was probably meant.
    pub(super) nearest: Option<String>,
}

impl Schemas {
    /// Reads CRDs (YAML or JSON, also in folders) and `OpenAPI` documents from files;
    /// also what could not be read.
    pub(super) fn read(paths: &[PathBuf]) -> (Self, Vec<String>) {
        let mut schemas = Self::default();
        let mut faults = Vec::new();
        for path in paths {
            if path.is_dir() {
                let mut input = Input::read(std::slice::from_ref(path));
                faults.append(&mut input.faults);
                input
                    .objects
                    .iter()
                    .for_each(|found| schemas.declare(&found.object.json));
            } else if let Err(why) = schemas.file(path) {
                faults.push(format!("{}: {why}", path.display()));
            }
        }
        (schemas, faults)
    }

    fn file(&mut self, path: &Path) -> Result<(), String> {
        let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
        let mut some = false;
        for document in input::documents(&text, false)? {
            if document.get("openapi").is_some() || document.get("swagger").is_some() {
                some = true;
                self.documents.push(document);
                continue;
            }
            let mut objects = Vec::new();
            manifest::take(document, &mut objects)?;
            for object in objects {
                some |= object.kind == "CustomResourceDefinition";
                self.declare(&object.json);
            }
        }
        if some {
            Ok(())
        } else {
            Err("neither a CustomResourceDefinition nor an OpenAPI document".to_owned())
        }
    }

    /// Learns from an object, if it is a CRD.
    pub(super) fn declare(&mut self, object: &Value) {
        if object["kind"] != "CustomResourceDefinition" {
            return;
        }
        let spec = &object["spec"];
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let names = (text(&spec["group"]), text(&spec["names"]["plural"]));
        let (Some(group), Some(resource)) = names else {
            return;
        };
        for version in spec["versions"].as_array().into_iter().flatten() {
            let Some(name) = text(&version["name"]) else {
                continue;
            };
            let own = &version["schema"]["openAPIV3Schema"];
            // v1beta1 has one schema for all versions.
            let schema = match own {
                Value::Null => &spec["validation"]["openAPIV3Schema"],
                own => own,
            };
            let open = spec["preserveUnknownFields"] == true || schema.is_null();
            let gvr = Gvr {
                group: group.clone(),
                version: name,
                resource: resource.clone(),
            };
            let schema = if open { json!({}) } else { schema.clone() };
            self.declared.insert(gvr, schema);
        }
    }

    /// Asks a cluster for its `OpenAPI` v3 documents about `targets`.
    pub(super) fn ask(&mut self, targets: &BTreeSet<Gvr>) -> Result<(), String> {
        // Whoever embeds this may have installed one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| error.to_string())?;
        runtime.block_on(self.fetch(targets))
    }

    async fn fetch(&mut self, targets: &BTreeSet<Gvr>) -> Result<(), String> {
        let options = ConnectOptions {
            kubeconfig: None,
            api_timeout: API_TIMEOUT,
        };
        let connection = connect(&options).await.map_err(|error| error.to_string())?;
        let get = |path: String| {
            let client = connection.client.clone();
            async move {
                let request = http::Request::get(&path).body(Vec::new());
                let request = request.map_err(|error| format!("{path}: {error}"))?;
                let answer = client.request::<Value>(request).await;
                answer.map_err(|error| format!("{path}: {error}"))
            }
        };
        let index = get("/openapi/v3".to_owned()).await?;
        let versions: BTreeSet<String> = targets
            .iter()
            .map(|target| match target.group.as_str() {
                "" => format!("api/{}", target.version),
                _ => format!("apis/{}", target.api_version()),
            })
            .collect();
        for version in versions {
            let url = index["paths"][&version]["serverRelativeURL"].as_str();
            if let Some(url) = url {
                self.documents.push(get(url.to_owned()).await?);
            }
        }
        Ok(())
    }

    /// The schema of `target`'s objects and the document that its references are in.
    pub(super) fn find(&self, target: &Gvr) -> Option<Root<'_>> {
        if let Some(schema) = self.declared.get(target) {
            return Some(Root {
                document: &Value::Null,
                schema,
            });
        }
        self.documents
            .iter()
            .find_map(|document| in_document(document, target))
    }
}

/// The schema of an object.
#[derive(Clone, Copy, Debug)]
pub(super) struct Root<'s> {
    document: &'s Value,
    schema: &'s Value,
}

fn in_document<'s>(document: &'s Value, target: &Gvr) -> Option<Root<'s>> {
    // A path says which kind the resource has; the schema of the kind is marked with it.
    let prefix = match target.group.as_str() {
        "" => format!("/api/{}/", target.version),
        _ => format!("/apis/{}/", target.api_version()),
    };
    let suffix = format!("/{}", target.resource);
    let kind = document["paths"]
        .as_object()?
        .iter()
        .find_map(|(path, item)| {
            (path.starts_with(&prefix) && path.ends_with(&suffix))
                .then(|| item["get"]["x-kubernetes-group-version-kind"]["kind"].as_str())
                .flatten()
        })?;
    let schemas = document.pointer("/components/schemas");
    let schemas = schemas.or_else(|| document.get("definitions"))?;
    let is = |marked: &Value| {
        marked["group"] == target.group.as_str()
            && marked["version"] == target.version.as_str()
            && marked["kind"] == kind
    };
    let schema = schemas.as_object()?.values().find(|schema| {
        let marks = schema["x-kubernetes-group-version-kind"].as_array();
        // A list of all kinds is on options and events of watches.
        marks.is_some_and(|marks| marks.len() == 1 && marks.iter().any(is))
    })?;
    Some(Root { document, schema })
}

/// What can be inside a value.
#[derive(Default)]
struct Inside<'s> {
    fields: BTreeMap<&'s str, &'s Value>,
    /// The schemas of members whose names are free.
    values: Vec<&'s Value>,
    elements: Vec<&'s Value>,
    /// Whether there can be anything.
    open: bool,
}

impl<'s> Root<'s> {
    /// The first step of `path` that an object cannot have, if there is one.
    pub(super) fn check(&self, path: &[Step]) -> Option<Unknown> {
        let mut parent = "object".to_owned();
        let mut here = vec![self.schema];
        for (depth, step) in path.iter().enumerate() {
            let inside = self.inside(&here);
            here = match step {
                Step::Index | Step::Each => {
                    parent.push_str("[]");
                    // The keys of a map are what a comprehension visits, and texts.
                    if *step == Step::Each && inside.elements.is_empty() {
                        return None;
                    }
                    inside.elements.into_iter().chain(inside.values).collect()
                }
                Step::Field(name) => {
                    let known = match (depth, name.as_str()) {
                        (0, "apiVersion" | "kind") => Some(&*TEXT),
                        (0, "metadata") => Some(&*METADATA),
                        _ => inside.fields.get(name.as_str()).copied(),
                    };
                    if known.is_none() && inside.values.is_empty() {
                        return (!inside.open).then(|| unknown(name, parent, &inside, depth));
                    }
                    parent.push('.');
                    parent.push_str(name);
                    known.map_or(inside.values, |known| vec![known])
                }
            };
            if here.is_empty() {
                return None;
            }
        }
        None
    }

    fn inside(&self, schemas: &[&'s Value]) -> Inside<'s> {
        let mut inside = Inside::default();
        for schema in schemas {
            self.gather(schema, &mut inside, 0);
        }
        inside
    }

    fn gather(&self, schema: &'s Value, inside: &mut Inside<'s>, depth: usize) {
        if depth > MAX_DEPTH {
            inside.open = true;
            return;
        }
        if let Some(reference) = schema["$ref"].as_str() {
            let found = reference
                .strip_prefix('#')
                .and_then(|pointer| self.document.pointer(pointer));
            match found {
                Some(found) => self.gather(found, inside, depth + 1),
                None => inside.open = true,
            }
            return;
        }
        let mut combined = false;
        for key in ["allOf", "anyOf", "oneOf"] {
            for part in schema[key].as_array().into_iter().flatten() {
                // Parts that only restrict say nothing about what there is.
                let says = ["$ref", "properties", "items", "allOf", "anyOf", "oneOf"];
                if says.iter().any(|key| part.get(key).is_some()) {
                    combined = true;
                    self.gather(part, inside, depth + 1);
                }
            }
        }
        let fields = schema["properties"].as_object();
        inside.fields.extend(
            fields
                .into_iter()
                .flatten()
                .map(|(name, field)| (name.as_str(), field)),
        );
        match &schema["additionalProperties"] {
            Value::Bool(open) => inside.open |= open,
            values @ Value::Object(_) => inside.values.push(values),
            _ => {}
        }
        if !schema["items"].is_null() {
            inside.elements.push(&schema["items"]);
        }
        let object = matches!(schema["type"].as_str(), None | Some("object"));
        let scalar = schema["x-kubernetes-int-or-string"] == true;
        let silent = fields.is_none()
            && schema["additionalProperties"].is_null()
            && schema["items"].is_null();
        inside.open |= schema["x-kubernetes-preserve-unknown-fields"] == true
            || schema["x-kubernetes-embedded-resource"] == true
            || (silent && object && !scalar && !combined);
    }
}

fn unknown(name: &str, parent: String, inside: &Inside<'_>, depth: usize) -> Unknown {
    let always: &[&str] = if depth == 0 {
        &["apiVersion", "kind", "metadata"]
    } else {
        &[]
    };
    let names = inside.fields.keys().chain(always);
    Unknown {
        depth,
        nearest: nearest(name, names.copied()),
        field: name.to_owned(),
        parent,
    }
}

/// The name that `name` was probably meant to be.
fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<String> {
    let lower = name.to_lowercase();
    names
        .map(|other| {
            let distance = strsim::damerau_levenshtein(&lower, &other.to_lowercase());
            (distance, other)
        })
        // More than half wrong is another word.
        .filter(|(distance, other)| *distance * 2 <= other.chars().count().max(2))
        .min()
        .map(|(_, other)| other.to_owned())
}

impl std::fmt::Display for Unknown {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} has no field '{}'", self.parent, self.field)?;
        match &self.nearest {
            Some(nearest) => write!(f, "; the nearest is '{nearest}'"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gvr() -> Gvr {
        Gvr {
            group: "x.io".into(),
            version: "v1".into(),
            resource: "cows".into(),
        }
    }

    fn check(schemas: &Schemas, path: &str) -> Option<String> {
        let path: Vec<Step> = path
            .split('.')
            .map(|step| match step {
                "[]" => Step::Index,
                "[*]" => Step::Each,
                name => Step::Field(name.to_owned()),
            })
            .collect();
        let root = schemas.find(&gvr()).expect("there is a schema");
        root.check(&path).map(|unknown| unknown.to_string())
    }

    fn crd() -> Schemas {
        let mut schemas = Schemas::default();
        schemas.declare(&json!({"kind": "CustomResourceDefinition", "spec": {
            "group": "x.io", "names": {"plural": "cows"}, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "metadata": {"type": "object"},
                    "status": {"type": "object", "properties": {
                        "printableStatus": {"type": "string"},
                        "conditions": {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}}},
                        "byName": {"type": "object", "additionalProperties": {"type": "object", "properties": {"size": {"type": "integer"}}}},
                        "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}},
                        "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                    }},
                },
            }}}],
        }}));
        schemas
    }

    #[test]
    fn misspelt_fields_are_told_with_the_nearest_name() {
        for (path, expected) in [
            (
                "status.printableStatu",
                "object.status has no field 'printableStatu'; the nearest is 'printableStatus'",
            ),
            (
                "stauts.x",
                "object has no field 'stauts'; the nearest is 'status'",
            ),
            (
                "metadta",
                "object has no field 'metadta'; the nearest is 'metadata'",
            ),
            (
                "metadata.deletionTimestmp",
                "object.metadata has no field 'deletionTimestmp'; the nearest is 'deletionTimestamp'",
            ),
            (
                "status.conditions.[*].typ",
                "object.status.conditions[] has no field 'typ'; the nearest is 'type'",
            ),
            (
                "status.conditions.[].zzz",
                "object.status.conditions[] has no field 'zzz'",
            ),
            (
                "status.conditions.type",
                "object.status.conditions has no field 'type'",
            ),
            (
                "status.printableStatus.x",
                "object.status.printableStatus has no field 'x'",
            ),
            (
                "status.byName.any.siz",
                "object.status.byName.any has no field 'siz'; the nearest is 'size'",
            ),
            (
                "status.byName.[].siz",
                "object.status.byName[] has no field 'siz'; the nearest is 'size'",
            ),
            (
                "status.raw.a.c",
                "object.status.raw.a has no field 'c'; the nearest is 'b'",
            ),
            ("status.port.x", "object.status.port has no field 'x'"),
        ] {
            assert_eq!(check(&crd(), path).as_deref(), Some(expected), "{path}");
        }
    }

    #[test]
    fn fields_that_can_be_are_not_told() {
        for path in [
            "apiVersion",
            "metadata.labels.any",
            "metadata.ownerReferences.[*].kind",
            "status.conditions.[*].type",
            "status.byName.any.size",
            "status.byName.[*].anything",
            "status.raw.anything.at.all",
        ] {
            assert_eq!(check(&crd(), path), None, "{path}");
        }
    }

    #[test]
    fn an_openapi_document_is_followed_through_its_references() {
        let mut schemas = Schemas::default();
        schemas.documents.push(json!({
            "openapi": "3.0.0",
            "paths": {"/apis/x.io/v1/namespaces/{namespace}/cows": {"get": {"x-kubernetes-group-version-kind": {"group": "x.io", "version": "v1", "kind": "Cow"}}}},
            "components": {"schemas": {
                "Cow": {
                    "type": "object",
                    "x-kubernetes-group-version-kind": [{"group": "x.io", "version": "v1", "kind": "Cow"}],
                    "properties": {"status": {"default": {}, "allOf": [{"$ref": "#/components/schemas/Status"}]}},
                },
                "Status": {"type": "object", "properties": {"phase": {"type": "string"}, "inner": {"$ref": "#/components/schemas/Status"}}},
            }},
        }));
        assert_eq!(check(&schemas, "status.inner.inner.phase"), None);
        assert_eq!(
            check(&schemas, "status.inner.inner.phas").as_deref(),
            Some("object.status.inner.inner has no field 'phas'; the nearest is 'phase'")
        );
    }
}
