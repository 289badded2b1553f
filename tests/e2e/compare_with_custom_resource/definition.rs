//! Creates the CRD of the custom resource [`TWIN`], which this test compares with the live
//! resource. The CRD has the schema, the columns and the selectable fields of the live resource, as
//! far as a CRD supports them.

use crate::harness::{CRD, Kind, OPERATION, TestCluster, eventually, ok_if, path_of_column, text};
use kube::core::schema::StructuralSchemaRewriter;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};

/// The custom resource, a copy of the live resource with the same kind and plural name.
pub const TWIN: Kind = Kind {
    api_version: "twin.ifo.kubevirt.io/v1alpha1",
    kind: OPERATION.kind,
    plural: OPERATION.plural,
};

/// The selectable fields of the live resource that the CRD also has. A CRD can have at most 8.
const SELECTABLE_FIELDS: [&str; 8] = [
    "spec.operation",
    "spec.component",
    "spec.ruleSet",
    "spec.subject.kind",
    "spec.subject.name",
    "spec.subject.uid",
    "status.phase",
    "status.state",
];

/// Removes the keyword `nullable` from a schema. An operation never contains null, because the
/// server omits fields without a value.
fn remove_nullable(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.remove("nullable");
            fields.values_mut().for_each(remove_nullable);
        }
        Value::Array(all) => all.iter_mut().for_each(remove_nullable),
        _ => {}
    }
}

/// Creates the CRD, and waits until its custom resources can be listed. Returns the resourceVersion
/// of the list. The list is still empty, so this resourceVersion is older than all custom
/// resources.
pub async fn define(cluster: &TestCluster) -> String {
    let settings = SchemaSettings::openapi3()
        .with(|settings| {
            settings.inline_subschemas = true;
            settings.meta_schema = None;
        })
        .with_transform(StructuralSchemaRewriter);
    let schema = settings
        .into_generator()
        .into_root_schema_for::<ifo_api::live::InFlightOperation>();
    let mut schema = schema.to_value();
    schema["properties"]["metadata"] = json!({"type": "object"});
    if let Some(root) = schema.as_object_mut() {
        root.remove("$schema");
        root.remove("title");
        root.insert("required".to_owned(), json!(["spec", "status"]));
    }
    remove_nullable(&mut schema);
    // As in the manifests, because OpenAPI does not have the format `uint64`.
    let schema = schema.to_string().replace("\"uint64\"", "\"int64\"");
    let schema: Value = serde_json::from_str(&schema).expect("the schema is still JSON");
    let headers = [("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")];
    let table = cluster
        .admin
        .get_with(&OPERATION.path(None), &headers)
        .await
        .ok();
    let columns = table["columnDefinitions"]
        .as_array()
        .expect("a table has columns");
    // A CRD always has the column Name.
    let columns = columns[1..].iter().map(|column| {
        let path = path_of_column(text(column, "/name")).replace('/', ".");
        let mut column = column.clone();
        column["jsonPath"] = path.into();
        column
    });
    let columns: Vec<Value> = columns.collect();
    let fields: Vec<Value> = SELECTABLE_FIELDS
        .iter()
        .map(|field| json!({"jsonPath": format!(".{field}")}))
        .collect();
    let (group, version) = TWIN.group_version();
    let name = format!("{}.{group}", TWIN.plural);
    let definition = json!({
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {
                "kind": TWIN.kind, "plural": TWIN.plural, "singular": "inflightoperation",
                "listKind": "InFlightOperationList",
            },
            "versions": [{
                "name": version, "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema},
                "additionalPrinterColumns": columns,
                "selectableFields": fields,
            }],
        },
    });
    let definition = CRD.object(&name, definition);
    cluster.create(&CRD, None, &definition).await;
    eventually("the custom resource is served", async || {
        let answer = cluster.admin.get(&TWIN.path(None)).await;
        ok_if(answer.code == 200, &answer)?;
        Ok(text(&answer.body, "/metadata/resourceVersion").to_owned())
    })
    .await
}
