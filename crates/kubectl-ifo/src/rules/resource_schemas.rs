//! The schemas against which `kubectl ifo rules check` checks the expressions of rule sets. Reads
//! the schemas of resources from CRDs, from `OpenAPI` documents or from a cluster, and finds the
//! schema of a resource.

mod field_check;

pub(super) use field_check::SchemaRoot;

use super::input_files::{self, Input};
use crate::connect::Connect;
use ifo_api::Gvr;
use ifo_client::manifest::{self, MemoryBudget};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The schemas that were read.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    /// The schemas in CRDs. A CRD has one schema for each version of its resource.
    declared: BTreeMap<Gvr, Value>,
    /// Group, kind, singular and plural of the resource that each CRD defines.
    names: Vec<[String; 4]>,
    /// The `OpenAPI` documents.
    documents: Vec<Value>,
    /// The API groups that the cluster serves, with their versions. None if no cluster was read.
    served_groups: Option<BTreeMap<String, Vec<String>>>,
}

impl Schemas {
    /// Reads CRDs (YAML or JSON) and `OpenAPI` documents from files. From a folder, reads only the
    /// CRDs. Returns the schemas and the errors.
    pub(super) fn read(paths: &[PathBuf]) -> (Self, Vec<String>) {
        let mut schemas = Self::default();
        let mut faults = Vec::new();
        for path in paths {
            if path.is_dir() {
                let mut input = Input::read(std::slice::from_ref(path));
                faults.extend(input.faults.drain(..).map(|fault| fault.text));
                input
                    .objects
                    .iter()
                    .for_each(|found| schemas.declare(&found.object.json));
            } else if let Err(why) = schemas.read_file(path) {
                faults.push(format!("{}: {why}", path.display()));
            }
        }
        (schemas, faults)
    }

    fn read_file(&mut self, path: &Path) -> Result<(), String> {
        let text = input_files::text_in(path).map_err(|error| error.to_string())?;
        let mut has_schema = false;
        for document in input_files::documents(&text, false, &mut MemoryBudget::default())? {
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
        if has_schema {
            Ok(())
        } else {
            Err("neither a CustomResourceDefinition nor an OpenAPI document".to_owned())
        }
    }

    /// Adds the schemas in a CRD. Other objects are ignored.
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
        let name_of = |key: &str| text(&spec["names"][key]).unwrap_or_default();
        let (kind, singular) = (name_of("kind"), name_of("singular"));
        self.names
            .push([group.clone(), kind, singular, resource.clone()]);
        for version in spec["versions"].as_array().into_iter().flatten() {
            let Some(name) = text(&version["name"]) else {
                continue;
            };
            let own = &version["schema"]["openAPIV3Schema"];
            // A CRD of `apiextensions.k8s.io/v1beta1` can have one schema for all versions of its
            // resource.
            let schema = match own {
                Value::Null => &spec["validation"]["openAPIV3Schema"],
                own => own,
            };
            let allows_any_field = spec["preserveUnknownFields"] == true || schema.is_null();
            let gvr = Gvr {
                group: group.clone(),
                version: name,
                resource: resource.clone(),
            };
            let schema = if allows_any_field {
                json!({})
            } else {
                schema.clone()
            };
            self.declared.insert(gvr, schema);
        }
    }

    /// Returns the API groups that the cluster serves, with their versions. The core group is left
    /// out. None if no cluster was read.
    pub(super) fn served_groups(&self) -> Option<&BTreeMap<String, Vec<String>>> {
        self.served_groups.as_ref()
    }

    /// Reads the `OpenAPI` v3 documents for `targets`, and the served API groups from a cluster. A target is the resource that
    /// a rule set watches.
    pub(super) fn read_from_cluster(
        &mut self,
        targets: &BTreeSet<Gvr>,
        cluster: &Connect,
    ) -> Result<(), String> {
        let runtime = crate::runtime().map_err(|error| error.to_string())?;
        runtime.block_on(self.fetch(targets, cluster))
    }

    async fn fetch(&mut self, targets: &BTreeSet<Gvr>, cluster: &Connect) -> Result<(), String> {
        let server = cluster.open().await.map_err(|error| error.to_string())?;
        let get = |path: String| {
            let server = &server;
            async move {
                let answer = server.get::<Value>(&path, &path, None).await;
                answer.map_err(|error| format!("{path}: {error}"))
            }
        };
        self.served_groups = groups_in(&get("/apis".to_owned()).await?);
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

    /// Returns the plural of the resource if `target` names the resource by its kind or singular.
    /// For example, `Pod` gives `pods`. None if no resource in the schemas has this kind or
    /// singular.
    pub(super) fn plural_of(&self, target: &Gvr) -> Option<&str> {
        let name = &target.resource;
        let declared = self.names.iter().find(|[group, kind, singular, _]| {
            *group == target.group && (kind.eq_ignore_ascii_case(name) || singular == name)
        });
        if let Some([_, _, _, plural]) = declared {
            return Some(plural);
        }
        let prefix = path_prefix(target);
        let paths = self.documents.iter();
        let mut paths = paths.filter_map(|it| it["paths"].as_object()).flatten();
        paths.find_map(|(path, item)| {
            let kind = kind_of(item)?;
            let plural = path.strip_prefix(&prefix)?.rsplit('/').next()?;
            (kind.eq_ignore_ascii_case(name)
                && ifo_client::offline_kinds::is_kind_or_plural(plural, kind))
            .then_some(plural)
        })
    }

    /// Returns the schema of the objects of `target`, with the document to which references in the
    /// schema point. None if no schema of the resource was read.
    pub(super) fn find(&self, target: &Gvr) -> Option<SchemaRoot<'_>> {
        if let Some(schema) = self.declared.get(target) {
            return Some(SchemaRoot {
                document: &Value::Null,
                schema,
            });
        }
        self.documents
            .iter()
            .find_map(|document| find_in_document(document, target))
    }
}

/// Returns the groups in an `APIGroupList`, with their versions. None if `list` has no groups.
fn groups_in(list: &Value) -> Option<BTreeMap<String, Vec<String>>> {
    let groups = list["groups"].as_array()?.iter();
    let groups = groups.filter_map(|group| {
        let versions = group["versions"].as_array()?.iter();
        let versions = versions.filter_map(|it| it["version"].as_str());
        let name = group["name"].as_str()?.to_owned();
        Some((name, versions.map(str::to_owned).collect()))
    });
    Some(groups.collect())
}

/// Returns the beginning of the URL paths of the group and version of `target`, such as
/// `/apis/apps/v1/`.
fn path_prefix(target: &Gvr) -> String {
    match target.group.as_str() {
        "" => format!("/api/{}/", target.version),
        _ => format!("/apis/{}/", target.api_version()),
    }
}

/// Returns the kind of the objects at a path of an `OpenAPI` document.
fn kind_of(path_item: &Value) -> Option<&str> {
    path_item["get"]["x-kubernetes-group-version-kind"]["kind"].as_str()
}

fn find_in_document<'s>(document: &'s Value, target: &Gvr) -> Option<SchemaRoot<'s>> {
    // 1. Find the kind of the resource: the field `x-kubernetes-group-version-kind` in the
    //    description of the resource's URL path.
    // 2. Find the schema of this kind. In a schema, `x-kubernetes-group-version-kind` is a list.
    let prefix = path_prefix(target);
    let suffix = format!("/{}", target.resource);
    let kind = document["paths"]
        .as_object()?
        .iter()
        .find_map(|(path, item)| {
            (path.starts_with(&prefix) && path.ends_with(&suffix))
                .then(|| kind_of(item))
                .flatten()
        })?;
    let schemas = document.pointer("/components/schemas");
    let schemas = schemas.or_else(|| document.get("definitions"))?;
    let is_target = |marked: &Value| {
        marked["group"] == target.group.as_str()
            && marked["version"] == target.version.as_str()
            && marked["kind"] == kind
    };
    let schema = schemas.as_object()?.values().find(|schema| {
        let marks = schema["x-kubernetes-group-version-kind"].as_array();
        // A schema with several kinds is left out, because it describes request options or watch
        // events, such as `DeleteOptions`.
        marks.is_some_and(|marks| marks.len() == 1 && marks.iter().any(is_target))
    })?;
    Some(SchemaRoot { document, schema })
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_cel::PathStep;

    fn gvr() -> Gvr {
        Gvr {
            group: "x.io".into(),
            version: "v1".into(),
            resource: "cows".into(),
        }
    }

    fn check(schemas: &Schemas, path: &str) -> Option<String> {
        let path: Vec<PathStep> = path
            .split('.')
            .map(|step| match step {
                "[]" => PathStep::Index,
                "[*]" => PathStep::Each,
                name => PathStep::Field(name.to_owned()),
            })
            .collect();
        let root = schemas.find(&gvr()).expect("there is a schema");
        root.first_unknown_field(&path)
            .map(|unknown| unknown.to_string())
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
    fn misspelled_fields_are_reported_with_a_suggestion() {
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
    fn existing_fields_are_not_reported() {
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
    fn references_in_openapi_documents_are_resolved() {
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
