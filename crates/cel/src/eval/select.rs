//! Evaluates the selection of fields, elements and members.

use super::Context;
use crate::budget::{Budget, charge};
use crate::compile::op::Op;
use crate::value::compare::find_cost;
use crate::value::exact_int;
use crate::value::fault::{Fault, Outcome};
use crate::value::{Text, V};

impl<'e, 'a: 'e> Context<'e, '_, 'a> {
    #[inline(never)]
    pub(super) fn path(&mut self, base: &'e Op, fields: &'e [Box<str>]) -> Outcome<'e> {
        let mut value = self.eval(base)?;
        // A field of an optional value is optional.
        if let V::Optional(optional) = value {
            let Some(optional) = optional else {
                return Ok(V::Optional(None));
            };
            let found = present_path((*optional).clone(), fields, self.scope.budget)?;
            return Ok(found.map_or(V::Optional(None), V::some));
        }
        for field in fields {
            let found = present_field(&value, field, self.scope.budget)?;
            value = found.ok_or(Fault::Missing(Some(V::Str(Text::Ref(field)))))?;
        }
        Ok(value)
    }

    #[inline(never)]
    pub(super) fn optional_path(&mut self, base: &'e Op, fields: &'e [Box<str>]) -> Outcome<'e> {
        let found = self.find_path(base, fields)?;
        Ok(found.map_or(V::Optional(None), V::some))
    }

    /// Returns the value at a path whose first selection is optional, such as `a.?b.c`. Returns
    /// None if a field of the path does not exist.
    pub(super) fn find_path(
        &mut self,
        base: &'e Op,
        fields: &'e [Box<str>],
    ) -> Result<Option<V<'e>>, Fault<'e>> {
        match self.eval(base)? {
            V::Optional(None) => Ok(None),
            V::Optional(Some(value)) => present_path((*value).clone(), fields, self.scope.budget),
            value => present_path(value, fields, self.scope.budget),
        }
    }

    #[inline(never)]
    pub(super) fn has(&mut self, base: &'e Op, field: &'e str) -> Outcome<'e> {
        let base = self.eval(base)?;
        let value = match &base {
            V::Optional(None) => return Ok(V::Bool(false)),
            V::Optional(Some(value)) => value,
            value => value,
        };
        let found = present_field(value, field, self.scope.budget)?;
        Ok(V::Bool(found.is_some()))
    }

    #[inline(never)]
    pub(super) fn index(&mut self, pair: &'e (Op, Op)) -> Outcome<'e> {
        let value = self.eval(&pair.0)?;
        if let V::Optional(optional) = value {
            return self.present_index(optional.as_deref(), &pair.1);
        }
        let index = self.eval(&pair.1)?;
        let found = self.element_at(&value, &index)?;
        found.ok_or(match &pair.1 {
            Op::Const(literal) => Fault::Missing(Some(literal.value())),
            _ => Fault::Missing(None),
        })
    }

    #[inline(never)]
    pub(super) fn optional_index(&mut self, pair: &'e (Op, Op)) -> Outcome<'e> {
        match self.eval(&pair.0)? {
            V::Optional(optional) => self.present_index(optional.as_deref(), &pair.1),
            value => self.present_index(Some(&value), &pair.1),
        }
    }

    /// Returns the element or member at an index as an optional value. `value` is None if the list
    /// or map itself does not exist. In this case, the index is not evaluated, as in cel-go.
    fn present_index(&mut self, value: Option<&V<'e>>, index: &'e Op) -> Outcome<'e> {
        let Some(value) = value else {
            return Ok(V::Optional(None));
        };
        let index = self.eval(index)?;
        let found = self.element_at(value, &index)?;
        Ok(found.map_or(V::Optional(None), V::some))
    }

    /// Returns the element or member of `value` at an index, or None if there is no such element or
    /// member.
    fn element_at(&mut self, value: &V<'e>, index: &V<'e>) -> Result<Option<V<'e>>, Fault<'e>> {
        if value.is_list() {
            let at = match index {
                V::Int(int) => *int,
                V::Uint(uint) => i64::try_from(*uint)
                    .map_err(|_| Fault::error("unsupported index value in list: too large"))?,
                V::Double(double) => {
                    let fractional = "unsupported index value in list: not a whole number";
                    exact_int(*double).ok_or(Fault::error(fractional))?
                }
                other => {
                    let found = other.type_name();
                    let words = ["unsupported index type '", found, "' in list"];
                    return Err(Fault::words(&words));
                }
            };
            return Ok(usize::try_from(at).ok().and_then(|at| value.element(at)));
        }
        match index {
            V::Bool(_) | V::Int(_) | V::Uint(_) | V::Double(_) | V::Str(_) => {
                charge(self.scope.budget, find_cost(value, index))?;
                Ok(value.find(index))
            }
            other => Err(Fault::words(&[
                "invalid qualifier type: ",
                other.type_name(),
            ])),
        }
    }
}

/// Returns the value of a field of the map `value`. Returns None if the field does not exist, or if
/// `value` is neither a map nor a list. Returns an error if `value` is a list.
fn present_field<'e>(
    value: &V<'e>,
    field: &'e str,
    budget: &mut Budget,
) -> Result<Option<V<'e>>, Fault<'e>> {
    charge_field(value, field, budget)?;
    match value.field(field) {
        None if value.is_list() => Err(Fault::error("unsupported index type 'string' in list")),
        found => Ok(found),
    }
}

/// Returns the value at a path of fields, or None if a field of the path does not exist.
fn present_path<'e>(
    mut value: V<'e>,
    fields: &'e [Box<str>],
    budget: &mut Budget,
) -> Result<Option<V<'e>>, Fault<'e>> {
    for field in fields {
        match present_field(&value, field, budget)? {
            Some(member) => value = member,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// Charges the steps for the search of a field. Only a search in a map that the evaluation has
/// created takes steps. A search in a map of the document compares the short name of the field with
/// few keys, so it takes no steps.
fn charge_field<'e>(value: &V<'e>, field: &'e str, budget: &mut Budget) -> Result<(), Fault<'e>> {
    match value {
        V::Map(_) => charge(budget, find_cost(value, &V::Str(Text::Ref(field)))),
        _ => Ok(()),
    }
}
