//! The resources of the test server: `notes` and the cluster-scoped `folders`. A note is an object with
//! any fields.

use crate::Typed;
use crate::serve::resource::{Column, Resource, ResourceInfo, SelectableField};
use crate::store::Reader;
use kube::api::DynamicObject;
use serde_json::{Value, json};

/// The API group of the test server.
pub const GROUP: &str = "example.com";
/// The API version of the test server.
pub const VERSION: &str = "v1";

/// The model of the test server.
pub type NoteModel = Typed<DynamicObject>;

static COLUMNS: &[Column<NoteModel>] = &[Column {
    format: "name",
    description: "Name of the object.",
    ..Column::text("Name", |it: &DynamicObject, _| {
        it.metadata.name.as_deref().into()
    })
}];

/// Returns a note with the given fields.
pub fn note(fields: &Value) -> DynamicObject {
    let mut object = json!({ "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Note" });
    for (name, value) in fields.as_object().expect("the fields are an object") {
        object[name] = value.clone();
    }
    serde_json::from_value(object).expect("the fields are those of an object")
}

fn text_at<'a>(object: &'a DynamicObject, pointer: &str) -> Option<&'a str> {
    object.data.pointer(pointer)?.as_str()
}

/// Returns the description of the resource `notes`.
pub fn notes(reader: Reader<NoteModel>) -> Resource<NoteModel> {
    use SelectableField::Text;
    let schema = || schemars::json_schema!({ "type": "object" });
    let info = ResourceInfo::namespaced((GROUP, VERSION), "notes", ("Note", "NoteList"), schema);
    Resource {
        info: ResourceInfo {
            short_names: &["nt"],
            ..info.clone()
        },
        columns: COLUMNS,
        fields: vec![
            (
                "spec.subject.name",
                Text(|it: &DynamicObject| text_at(it, "/spec/subject/name")),
            ),
            (
                "status.phase",
                Text(|it: &DynamicObject| text_at(it, "/status/phase")),
            ),
        ],
        ..Resource::new(info.clone(), reader)
    }
}

/// Returns the description of the cluster-scoped resource `folders`.
pub fn folders(reader: Reader<NoteModel>) -> Resource<NoteModel> {
    let notes = notes(reader);
    Resource {
        info: ResourceInfo {
            plural: "folders",
            kind: "Folder",
            list_kind: "FolderList",
            namespaced: false,
            short_names: &[],
            ..notes.info
        },
        fields: Vec::new(),
        ..notes
    }
}
