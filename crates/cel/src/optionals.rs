//! The functions of optional values, such as `optional.of`. The functions `or`, `orValue`, `optMap`
//! and `optFlatMap` do not always evaluate their arguments, so the module `eval` implements these
//! functions as separate ops.

use super::Budget;
use super::op::Function;
use super::strings::no_overload;
use super::time::CelTimestamp;
use super::value::{Fault, V, charge, steps};

/// The zero value of Go's type `time.Time`, 0001-01-01T00:00:00Z, in seconds since 1970.
const GO_ZERO_TIME: i64 = -62_135_596_800;

/// Calls a function of optional values.
pub(super) fn call<'e>(
    function: Function,
    args: &[V<'e>],
    budget: &mut Budget,
) -> Result<V<'e>, Fault<'e>> {
    Ok(match (function, args) {
        (Function::OptionalNone, []) => V::Optional(None),
        (Function::OptionalOfNonZeroValue, [value]) if is_zero(value) => V::Optional(None),
        (Function::OptionalOf | Function::OptionalOfNonZeroValue, [value]) => {
            V::some(value.clone())
        }
        (Function::HasValue, [V::Optional(value)]) => V::Bool(value.is_some()),
        (Function::Value, [V::Optional(Some(value))]) => (**value).clone(),
        (Function::Value, [V::Optional(None)]) => {
            return Err(Fault::error("optional.none() dereference"));
        }
        (Function::OptionalUnwrap | Function::UnwrapOpt, [list]) if list.is_list() => {
            charge(budget, steps(list.len(), 1))?;
            let mut values = Vec::new();
            for index in 0..list.len() {
                match list.element(index) {
                    Some(V::Optional(value)) => values.extend(value.map(|value| (*value).clone())),
                    Some(other) => {
                        let found = other.type_name();
                        return Err(Fault::words(&["value of type ", found, " is not optional"]));
                    }
                    None => {}
                }
            }
            V::List(values.into())
        }
        _ => return Err(no_overload(function, args)),
    })
}

/// Returns true for the zero value of a type: null, false, 0, [`GO_ZERO_TIME`], or an empty text,
/// byte string, list or map.
fn is_zero(value: &V<'_>) -> bool {
    match value {
        V::Null => true,
        V::Bool(value) => !value,
        V::Int(value) => *value == 0,
        V::Uint(value) => *value == 0,
        V::Double(value) => *value == 0.0,
        V::Str(text) => text.is_empty(),
        V::Bytes(bytes) => bytes.is_empty(),
        V::Duration(nanoseconds) => *nanoseconds == 0,
        V::Time(time) => CelTimestamp::at(GO_ZERO_TIME) == Some(*time),
        V::Node(_) | V::List(_) | V::Map(_) => value.len() == 0,
        _ => false,
    }
}
