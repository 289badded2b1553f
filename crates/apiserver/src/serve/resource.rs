//! Describes the resources that the server serves: names, table columns, selectable fields, and the
//! store of the objects.

use super::answer::error_status::ErrorStatus;
use super::visibility::Visibility;
use super::{Served, served};
use crate::Model;
use crate::store::{Collection, Key, Reader};
use jiff::Timestamp;
use schemars::{Schema, SchemaGenerator};
use serde::Serialize;
use std::borrow::Cow;
use std::sync::Arc;

/// The names of a resource, as discovery shows them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceInfo {
    /// The API group. Empty for the core group.
    pub group: &'static str,
    /// The API version.
    pub version: &'static str,
    /// The plural name, which paths contain.
    pub plural: &'static str,
    /// The kind of one object. The singular name is the kind in lower case, and a list has the kind
    /// `KINDList`.
    pub kind: &'static str,
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// The verbs that clients may use, such as `get`, `list` and `watch`.
    pub verbs: &'static [&'static str],
    /// The short names of the resource in kubectl.
    pub short_names: &'static [&'static str],
}

/// Allows selectors for all label keys.
///
/// # Errors
///
/// Returns no error.
pub fn any_label(_: &str) -> Result<(), String> {
    Ok(())
}

impl ResourceInfo {
    /// Describes a namespaced resource with the verbs get, list and watch, and without short names.
    pub const fn namespaced(
        (group, version): (&'static str, &'static str),
        plural: &'static str,
        kind: &'static str,
    ) -> Self {
        Self {
            group,
            version,
            plural,
            kind,
            namespaced: true,
            verbs: &["get", "list", "watch"],
            short_names: &[],
        }
    }

    /// Returns `group/version`, or only the version for the core group.
    pub fn api_version(&self) -> String {
        match self.group {
            "" => self.version.to_owned(),
            group => format!("{group}/{}", self.version),
        }
    }

    /// Returns the path of the version, such as `/apis/group/version`.
    pub(super) fn root(&self) -> String {
        let root = if self.group.is_empty() { "api" } else { "apis" };
        format!("/{root}/{}", self.api_version())
    }

    /// Returns the kind of a list.
    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    /// Returns the error 404 for an object that does not exist.
    pub(super) fn no_object(&self, name: &str) -> ErrorStatus {
        ErrorStatus::no_object(self.group, self.plural, name)
    }
}

/// A resource that the server serves for get, list and watch.
#[derive(Clone)]
pub struct Resource<M: Model> {
    /// The names of the resource.
    pub info: ResourceInfo,
    /// Returns the JSON schema of the kind, for `OpenAPI`. The generator inlines the schemas of the
    /// types inside the kind.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
    /// Returns an error message if no object can have a label with the key. If a selector needs a
    /// label with this key, the server refuses the request with this message. Without the error,
    /// the list would be empty, and the user would not notice a misspelled key. [`any_label`]
    /// allows all keys.
    pub check_label: fn(key: &str) -> Result<(), String>,
    /// The collection of the store that contains the objects.
    pub collection: Collection,
    /// The columns of a `Table` of these objects, from left to right.
    pub columns: &'static [Column<M>],
    /// The fields that field selectors support, in addition to `metadata.name` and
    /// `metadata.namespace`.
    pub fields: Vec<(&'static str, SelectableField<M>)>,
    /// The reader of the store that contains the objects.
    pub reader: Reader<M>,
    /// Additional data from which the cells of tables are computed, besides the object and the
    /// time.
    pub context: Arc<M::Context>,
    /// Decides which objects each user sees. None if all users who may read the resource see all
    /// its objects.
    pub visibility: Option<Arc<dyn Visibility<M>>>,
}

impl<M: Model<Context: Default>> Resource<M> {
    /// Creates a resource whose objects are in the default collection of the store. Its tables have
    /// no columns, and it has no selectable fields.
    pub fn new(
        info: ResourceInfo,
        schema: fn(&mut SchemaGenerator) -> Schema,
        reader: Reader<M>,
    ) -> Self {
        Self {
            info,
            schema,
            check_label: any_label,
            collection: Collection::DEFAULT,
            columns: &[],
            fields: Vec::new(),
            reader,
            context: Arc::default(),
            visibility: None,
        }
    }
}

impl<M: Model> Resource<M> {
    /// Returns the key of an object in the store. For a cluster-scoped resource, `namespace` is
    /// ignored.
    pub(super) fn key(&self, namespace: &str, name: &str) -> Key {
        let namespace = if self.info.namespaced { namespace } else { "" };
        self.collection.key(namespace, name)
    }
}

/// A resource without its model as a type parameter. So one router can serve resources with
/// different models.
pub struct AnyResource {
    pub(super) info: ResourceInfo,
    pub(super) schema: fn(&mut SchemaGenerator) -> Schema,
    /// The paths of the selectable fields.
    pub(super) fields: Vec<&'static str>,
    /// True if objects can be hidden from users.
    pub(super) is_filtered: bool,
    pub(super) served: Served,
}

impl<M: Model> From<Resource<M>> for AnyResource {
    fn from(resource: Resource<M>) -> Self {
        Self {
            info: resource.info,
            schema: resource.schema,
            fields: resource.fields.iter().map(|(path, _)| *path).collect(),
            is_filtered: resource.visibility.is_some(),
            served: served(resource),
        }
    }
}

/// The source of a field's value for field selectors.
#[derive(Clone, Copy, Debug)]
pub enum SelectableField<M: Model> {
    /// Returns the value of the field. None counts as the empty text.
    Text(for<'a> fn(&'a M::Object) -> Option<&'a str>),
    /// Returns true if the field of the object has the value. If the field is a list, the function
    /// should return true if one element has the value.
    Test(fn(&M::Object, &str) -> bool),
}

impl<M: Model> SelectableField<M> {
    /// Returns true if the field of the object has the value.
    pub(super) fn has_value(&self, object: &M::Object, value: &str) -> bool {
        match self {
            Self::Text(text) => text(object).unwrap_or_default() == value,
            Self::Test(test) => test(object, value),
        }
    }
}

/// A column of a table: its `TableColumnDefinition`, and the source of its cells.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(bound = "")]
pub struct Column<M: Model> {
    /// The header of the column.
    pub name: &'static str,
    /// The `OpenAPI` type of the cells: `string`, `integer`, `boolean` or `date`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The `OpenAPI` format of the cells, such as `name`. Empty if the cells have no format.
    pub format: &'static str,
    /// The description of the column for users.
    pub description: &'static str,
    /// The priority: 0 if kubectl always shows the column, 1 if only `-o wide` shows it.
    pub priority: i32,
    /// The source of the cells.
    #[serde(skip)]
    pub cell: Cell<M>,
}

impl<M: Model> Column<M> {
    /// Creates a column of strings without a description, which kubectl always shows.
    pub const fn text(name: &'static str, cell: Cell<M>) -> Self {
        Self {
            name,
            kind: "string",
            format: "",
            description: "",
            priority: 0,
            cell,
        }
    }
}

/// Returns the cell of an object.
pub type Cell<M> =
    for<'a> fn(&'a <M as Model>::Object, &CellContext<'_, <M as Model>::Context>) -> CellValue<'a>;

/// The data from which cells are computed, besides the object.
#[derive(Clone, Copy, Debug)]
pub struct CellContext<'a, C> {
    /// The current time, from which ages are computed.
    pub now: Timestamp,
    /// The context of the resource.
    pub of_resource: &'a C,
}

/// A cell of a table, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum CellValue<'a> {
    /// The value is absent.
    Null,
    /// A boolean.
    Bool(bool),
    /// A number.
    Number(u32),
    /// A text.
    Text(Cow<'a, str>),
}

impl<'a, T: Into<Cow<'a, str>>> From<Option<T>> for CellValue<'a> {
    fn from(text: Option<T>) -> Self {
        text.map_or(Self::Null, |text| Self::Text(text.into()))
    }
}
