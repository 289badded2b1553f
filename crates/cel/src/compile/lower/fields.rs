//! The types of the fields of the object, if the expression is compiled with a schema.

use cel::IdedExpr;
use cel::common::ast::{Expr, operators};

use super::Lowering;
use crate::compile::parse::string_of;
use crate::types::{FieldType, PathStep, Ty};

/// Maximum number of steps of a path whose type is looked up in the schema. The value at a longer
/// path has the type `dyn`. A schema can be recursive: the elements of a list can have the type of
/// the list itself. Without the limit, the look-up of this type would not end.
const MAX_PATH: usize = 64;

/// Maximum number of possible values of a field that an error message lists. If the field has more
/// values, the list in the message ends with `…`.
const MAX_VALUES: usize = 16;

impl Lowering<'_> {
    /// Returns the type of the value at a path of the object.
    pub(super) fn schema_type(&self, path: &[PathStep]) -> Ty {
        let Some(schema) = self.schema.filter(|_| path.len() <= MAX_PATH) else {
            return Ty::Dyn;
        };
        match schema.type_at(path) {
            FieldType::Any | FieldType::Missing { .. } => Ty::Dyn,
            FieldType::Bool => Ty::Bool,
            FieldType::Int => Ty::Int,
            FieldType::String { .. } => Ty::String,
            FieldType::List => Ty::list(self.schema_type(&joined(path, PathStep::Each))),
            FieldType::Object => Ty::Schema(path.into()),
        }
    }

    /// Returns the type of a field or member of the object at `path`. Stores the possible values of
    /// `node`, if the schema lists them. Reports an error if the schema has no such field.
    pub(super) fn member_type(&mut self, node: u64, path: &[PathStep], step: PathStep) -> Ty {
        let name = match &step {
            PathStep::Field(name) => name.clone(),
            PathStep::Index | PathStep::Each => String::new(),
        };
        let path = joined(path, step);
        match self.schema.map(|schema| schema.type_at(&path)) {
            Some(FieldType::String { values }) if !values.is_empty() => {
                self.values.insert(node, values);
            }
            Some(FieldType::Missing { nearest }) => {
                let nearest = nearest.map(|it| format!("; the nearest is '{it}'"));
                let nearest = nearest.unwrap_or_default();
                let message = format!("the schema has no field '{name}'{nearest}");
                return self.mistyped(node, message).1;
            }
            _ => {}
        }
        self.schema_type(&path)
    }

    /// Returns the type of the call `a[key]` or `a[?key]`, if `a` is an object whose fields the
    /// schema describes. Returns None for all other calls.
    pub(super) fn indexed_type(
        &mut self,
        node: u64,
        name: &str,
        args: &[IdedExpr],
        types: &[Ty],
    ) -> Option<Ty> {
        let (operators::INDEX | operators::OPT_INDEX, [_, index], [ty, _]) = (name, args, types)
        else {
            return None;
        };
        let Ty::Schema(path) = ty.optional_value().unwrap_or(ty) else {
            return None;
        };
        let step = string_of(index).map_or(PathStep::Index, |key| PathStep::Field(key.to_owned()));
        let member = self.member_type(node, path, step);
        let is_optional = name == operators::OPT_INDEX || ty.optional_value().is_some();
        Some(if is_optional {
            Ty::optional(member)
        } else {
            member
        })
    }

    /// Reports each string literal that is compared with a field and is not a possible value of the
    /// field. In `field.orValue('x')`, the text `x` becomes a possible value of the result.
    pub(super) fn check_values(
        &mut self,
        node: u64,
        name: &str,
        args: &[IdedExpr],
        target: Option<&IdedExpr>,
    ) {
        match (name, args, target) {
            (operators::EQUALS | operators::NOT_EQUALS, [left, right], None) => {
                self.check_value(left.id, right);
                self.check_value(right.id, left);
            }
            (operators::IN, [value, list], None) => {
                if let Expr::List(list) = &list.expr {
                    for element in &list.elements {
                        self.check_value(value.id, element);
                    }
                }
            }
            ("orValue", [default], Some(optional)) => {
                if let Some(mut values) = self.values.get(&optional.id).cloned()
                    && let Some(default) = string_of(default)
                {
                    values.push(default.to_owned());
                    self.values.insert(node, values);
                }
            }
            _ => {}
        }
    }

    pub(super) fn check_value(&mut self, field: u64, value: &IdedExpr) {
        let (Some(values), Some(text)) = (self.values.get(&field), string_of(value)) else {
            return;
        };
        // An empty string is not reported, because it often stands for a missing value.
        if text.is_empty() || values.iter().any(|it| it == text) {
            return;
        }
        let mut quoted: Vec<String> = values
            .iter()
            .filter(|value| !value.is_empty())
            .map(|value| format!("'{value}'"))
            .collect();
        let more = if quoted.len() > MAX_VALUES {
            ", …"
        } else {
            ""
        };
        quoted.truncate(MAX_VALUES);
        let possible = quoted.join(", ");
        let message =
            format!("'{text}' is not a possible value of the field; possible are {possible}{more}");
        self.mistyped(value.id, message);
    }
}

/// Returns `path` with one more step.
pub(super) fn joined(path: &[PathStep], step: PathStep) -> Vec<PathStep> {
    path.iter().cloned().chain([step]).collect()
}
