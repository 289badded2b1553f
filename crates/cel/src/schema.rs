//! The schema of the objects on which expressions are evaluated. Tools use a schema to check the
//! types of fields during compilation. Without a schema, all fields of `object` have the type
//! `dyn`. An evaluation does not use the schema.

use super::fields::PathStep;

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
    /// A list. The path of its elements is the path of the list, followed by [`PathStep::Each`].
    List,
    /// An object or a map. The path of a member ends with [`PathStep::Field`]. If the key is not a
    /// string literal, as in `object.labels[variables.key]`, the path ends with
    /// [`PathStep::Index`].
    Object,
}

/// The schema of the objects.
pub trait ObjectSchema: Sync {
    /// Returns the type of the value at `path`. The empty path is the path of `object` itself.
    fn type_at(&self, path: &[PathStep]) -> FieldType;
}
