//! The schemas against which `kubectl ifo rules check` checks the expressions of rule sets. Reads
//! the schemas of resources from CRDs, from `OpenAPI` documents or from a cluster, and finds the
//! schema of a resource.

mod resource_schema;

pub(super) use resource_schema::ResourceSchema;
use resource_schema::{METADATA, TEXT};

use crate::cluster::connect::Connect;
use crate::cluster::problem::Problem;
use crate::operations::from_files::text;
use ifo_api::Gvr;
use ifo_client::manifest::{self, MemoryBudget};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// The schemas that were read, as `OpenAPI` documents.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    documents: Vec<Value>,
}

/// The field of `OpenAPI` documents with the group, the version and the kind of objects.
const MARK: &str = "x-kubernetes-group-version-kind";

impl Schemas {
    /// Reads CRDs (YAML or JSON) and `OpenAPI` documents from files. Returns the schemas and the
    /// errors.
    pub(super) fn read(paths: &[PathBuf]) -> (Self, Vec<String>) {
        let mut schemas = Self::default();
        let mut faults = Vec::new();
        for path in paths {
            if let Err(why) = schemas.read_file(path) {
                faults.push(format!("{}: {why}", path.display()));
            }
        }
        (schemas, faults)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), String> {
        let text = text(path).map_err(|error| error.to_string())?;
        let mut has_schema = false;
        for document in manifest::documents(&text, &mut MemoryBudget::default())? {
            if document.get("openapi").is_some() || document.get("swagger").is_some() {
                has_schema = true;
                self.documents.push(document);
                continue;
            }
            let mut objects = Vec::new();
            manifest::append_objects(document, &mut objects)?;
            for object in objects {
                has_schema |= object.kind == "CustomResourceDefinition";
                self.declare(&object.json);
            }
        }
        let why = "neither a CustomResourceDefinition nor an OpenAPI document";
        has_schema.then_some(()).ok_or(why.to_owned())
    }

    /// Converts a CRD to the `OpenAPI` documents of its versions. Other objects are ignored.
    fn declare(&mut self, object: &Value) {
        if object["kind"] != "CustomResourceDefinition" {
            return;
        }
        let spec = &object["spec"];
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        for version in spec["versions"].as_array().into_iter().flatten() {
            let target = Gvr {
                group: text(&spec["group"]),
                version: text(&version["name"]),
                resource: text(&spec["names"]["plural"]),
            };
            let mut schema = version["schema"]["openAPIV3Schema"].clone();
            if spec["preserveUnknownFields"] == true || !schema["properties"].is_object() {
                schema = json!({"x-kubernetes-preserve-unknown-fields": true});
            }
            // The kube-apiserver adds these fields to the schema, too.
            let fields = [("apiVersion", &*TEXT), ("kind", &TEXT)];
            for (field, own) in fields.into_iter().chain([("metadata", &*METADATA)]) {
                schema["properties"][field] = own.clone();
            }
            let (group, version, kind) = (&target.group, &target.version, &spec["names"]["kind"]);
            let mark = json!({"group": group, "version": version, "kind": kind});
            schema[MARK] = json!([mark]);
            let path = format!("/{}/{}", group_version_path(&target), target.resource);
            self.documents.push(json!({
                "paths": {path: {"get": {MARK: mark}}},
                "components": {"schemas": {"declared": schema}},
            }));
        }
    }

    /// Reads the `OpenAPI` v3 documents for `targets` from a cluster. A target is the resource that
    /// a rule set watches.
    pub(super) fn read_from_cluster(
        &mut self,
        targets: &BTreeSet<&Gvr>,
        cluster: &Connect,
    ) -> Result<(), String> {
        let fetched = async { self.fetch(targets, cluster).await.map_err(Problem::Other) };
        crate::in_runtime(fetched).map_err(|error| error.to_string())
    }

    async fn fetch(&mut self, targets: &BTreeSet<&Gvr>, cluster: &Connect) -> Result<(), String> {
        let server = cluster.open().await.map_err(|error| error.to_string())?;
        let get = async |path: &str| {
            let answer = server.get::<Value>(path).await;
            answer.map_err(|error| format!("{path}: {error}"))
        };
        let index = get("/openapi/v3").await?;
        let versions: BTreeSet<String> = targets.iter().map(|it| group_version_path(it)).collect();
        for version in versions {
            let url = index["paths"][&version]["serverRelativeURL"].as_str();
            if let Some(url) = url {
                self.documents.push(get(url).await?);
            }
        }
        Ok(())
    }

    /// Returns the schema of the objects of `target`. None if no schema of the resource was read.
    pub(super) fn find(&self, target: &Gvr) -> Option<ResourceSchema<'_>> {
        let mut documents = self.documents.iter();
        documents.find_map(|it| find_in_document(it, target))
    }
}

/// Returns the beginning of the URL paths of the group and version of `target`, such as
/// `apis/apps/v1`.
fn group_version_path(target: &Gvr) -> String {
    match target.group.as_str() {
        "" => format!("api/{}", target.version),
        _ => format!("apis/{}", target.api_version()),
    }
}

fn find_in_document<'s>(document: &'s Value, target: &Gvr) -> Option<ResourceSchema<'s>> {
    // 1. Find the kind of the resource in the description of the resource's URL path.
    // 2. Find the schema of this kind. A schema has a list of kinds. A schema with several kinds is
    //    skipped, because it describes request options or watch events, such as `DeleteOptions`.
    let prefix = format!("/{}/", group_version_path(target));
    let suffix = format!("/{}", target.resource);
    let mut paths = document["paths"].as_object()?.iter();
    let mark = paths.find_map(|(path, item)| {
        let is_of_target = path.starts_with(&prefix) && path.ends_with(&suffix);
        is_of_target.then(|| item["get"].get(MARK))?
    })?;
    let schemas = document.pointer("/components/schemas");
    let schemas = schemas.or_else(|| document.get("definitions"))?;
    let mut schemas = schemas.as_object()?.values();
    let schema = schemas.find(|it| it[MARK].as_array().is_some_and(|it| *it == [mark.clone()]))?;
    Some(ResourceSchema { document, schema })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_cel::{FieldType, ObjectSchema as _, PathStep};

    fn type_at(schemas: &Schemas, path: &str) -> FieldType {
        let path: Vec<PathStep> = path
            .split('.')
            .map(|step| match step {
                "[]" => PathStep::Index,
                "[*]" => PathStep::Each,
                name => PathStep::Field(name.to_owned()),
            })
            .collect();
        let target = Gvr {
            group: "x.io".into(),
            version: "v1".into(),
            resource: "cows".into(),
        };
        let schema = schemas.find(&target).expect("there is a schema");
        schema.type_at(&path)
    }

    fn missing(nearest: &str) -> FieldType {
        FieldType::Missing {
            nearest: (!nearest.is_empty()).then(|| nearest.to_owned()),
        }
    }

    fn text(values: &[&str]) -> FieldType {
        FieldType::String {
            values: values.iter().map(ToString::to_string).collect(),
        }
    }

    #[test]
    fn the_schema_in_a_crd_gives_types_and_missing_fields() {
        let mut schemas = Schemas::default();
        schemas.declare(&json!({"kind": "CustomResourceDefinition", "spec": {
            "group": "x.io", "names": {"plural": "cows", "kind": "Cow"}, "versions": [{"name": "v1", "schema": {"openAPIV3Schema": {
                "type": "object",
                "properties": {
                    "metadata": {"type": "object"},
                    "status": {"type": "object", "properties": {
                        "phase": {"type": "string", "enum": ["A", "B"]},
                        "conditions": {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}}},
                        "byName": {"type": "object", "additionalProperties": {"type": "object", "properties": {"size": {"type": "integer"}}}},
                        "raw": {"type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": {"type": "object", "properties": {"b": {"type": "string"}}}}},
                        "port": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                        "ratio": {"type": "number"},
                        "either": {"type": "string", "oneOf": [{"enum": ["A"]}, {"minLength": 1}]},
                    }},
                },
            }}}],
        }}));
        for (path, expected) in [
            ("apiVersion", text(&[])),
            ("metadata.labels.any", text(&[])),
            ("metadata.ownerReferences.[*].kind", text(&[])),
            ("metadta", missing("metadata")),
            ("metadata.deletionTimestmp", missing("deletionTimestamp")),
            ("status", FieldType::Object),
            ("stauts", missing("status")),
            ("status.phase", text(&["A", "B"])),
            ("status.phas", missing("phase")),
            ("status.phase.x", missing("")),
            ("status.conditions", FieldType::List),
            ("status.conditions.[*].type", text(&[])),
            ("status.conditions.[].typ", missing("type")),
            ("status.byName.any.size", FieldType::Int),
            ("status.byName.[].siz", missing("size")),
            ("status.byName.[*]", text(&[])),
            ("status.raw.anything.at.all", FieldType::Any),
            ("status.raw.a.c", missing("")),
            ("status.port", FieldType::Any),
            ("status.port.x", missing("")),
            ("status.ratio", FieldType::Any),
            ("status.either", text(&[])),
        ] {
            assert_eq!(type_at(&schemas, path), expected, "{path}");
        }
    }

    #[test]
    fn references_in_openapi_documents_are_resolved() {
        let mut schemas = Schemas::default();
        let cow = json!({"group": "x.io", "version": "v1", "kind": "Cow"});
        schemas.documents.push(json!({
            "openapi": "3.0.0",
            "paths": {"/apis/x.io/v1/namespaces/{namespace}/cows": {"get": {"x-kubernetes-group-version-kind": cow}}},
            "components": {"schemas": {
                "Cow": {
                    "type": "object",
                    "x-kubernetes-group-version-kind": [cow],
                    "properties": {"status": {"default": {}, "allOf": [{"$ref": "#/components/schemas/Status"}]}},
                },
                "Status": {"type": "object", "properties": {"phase": {"type": "string"}, "inner": {"$ref": "#/components/schemas/Status"}}},
            }},
        }));
        assert_eq!(type_at(&schemas, "status.inner"), FieldType::Object);
        assert_eq!(type_at(&schemas, "status.inner.inner.phase"), text(&[]));
        let misspelt = type_at(&schemas, "status.inner.inner.phas");
        assert_eq!(misspelt, missing("phase"));
    }

    #[test]
    fn a_schema_that_refers_to_itself_accepts_everything() {
        let mut schemas = Schemas::default();
        let cow = json!({"group": "x.io", "version": "v1", "kind": "Cow"});
        schemas.documents.push(json!({
            "paths": {"/apis/x.io/v1/cows": {"get": {"x-kubernetes-group-version-kind": cow}}},
            "definitions": {"Cow": {
                "x-kubernetes-group-version-kind": [cow], "allOf": [{"$ref": "#/definitions/Cow"}, {"$ref": "#/definitions/Cow"}],
            }},
        }));
        assert_eq!(type_at(&schemas, "status.phase"), FieldType::Any);
    }
}
