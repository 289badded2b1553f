//! The functions of optional values, such as `optional.of`. The functions `or`, `orValue`, `optMap`
//! and `optFlatMap` do not always evaluate their arguments, so the evaluation implements them.

use jiff::civil::DateTime;

use crate::budget::{Budget, charge, steps};
use crate::value::V;
use crate::value::fault::{Fault, Outcome};

pub(crate) const SIGNATURES: &str = "
optional.of|optional.ofNonZeroValue(<A>) -> <optional_type(A)>
optional.none() -> <optional_type(A)>
optional.unwrap(<list(optional_type(A))>) -> <list(A)>
<list(optional_type(A))>.unwrapOpt() -> <list(A)>
<optional_type(A)>.value() -> <A>
<optional_type(A)>.hasValue() -> <bool>
<optional_type(A)>.or(<optional_type(A)>) -> <optional_type(A)>
<optional_type(A)>.orValue(<A>) -> <A>
";

/// The zero value of Go's type `time.Time`.
const GO_ZERO_TIME: DateTime = DateTime::constant(1, 1, 1, 0, 0, 0, 0);

/// Calls a function of optional values.
pub(crate) fn call<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    Ok(match (name, args) {
        ("optional.none", []) => V::Optional(None),
        ("optional.ofNonZeroValue", [value]) if is_zero(value) => V::Optional(None),
        ("optional.of" | "optional.ofNonZeroValue", [value]) => V::some(value.clone()),
        ("hasValue", [V::Optional(value)]) => V::Bool(value.is_some()),
        ("value", [V::Optional(Some(value))]) => (**value).clone(),
        ("value", [V::Optional(None)]) => {
            return Err(Fault::error("optional.none() dereference"));
        }
        ("optional.unwrap" | "unwrapOpt", [list]) if list.is_list() => {
            charge(budget, steps(list.len(), 1))?;
            let mut values = Vec::new();
            for element in list.elements() {
                let V::Optional(value) = element else {
                    let found = element.type_name();
                    return Err(Fault::words(&["value of type ", found, " is not optional"]));
                };
                values.extend(value.map(|value| (*value).clone()));
            }
            V::List(values.into())
        }
        _ => return Err(Fault::no_overload()),
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
        V::Time(time) => time.utc == GO_ZERO_TIME,
        V::Node(_) | V::List(_) | V::Map(_) => value.len() == 0,
        _ => false,
    }
}
