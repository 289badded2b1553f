//! The schema of the objects, for the type check of tools. Without a schema, all fields of `object`
//! have the type `dyn`. An evaluation does not use the schema.

use super::named_fields::PathStep;

/// The type that a schema gives to a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// The type is unknown, or several types are possible.
    Any,
    /// A bool.
    Bool,
    /// An integer.
    Int,
    /// A string.
    String {
        /// The only possible values. The list is empty if all strings are possible.
        values: Vec<String>,
    },
    /// A list. The path of its elements ends with [`PathStep::Each`].
    List,
    /// An object or a map. The path of a member of a map can end with [`PathStep::Index`].
    Object,
}

/// The schema of the objects.
pub trait ObjectSchema: Sync {
    /// Returns the type of the value at a path.
    fn type_at(&self, path: &[PathStep]) -> FieldType;
}
