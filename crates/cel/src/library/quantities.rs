//! The functions of quantities, such as `quantity('1536Mi')`.

use std::rc::Rc;

use crate::budget::{Budget, charge_arguments};
use crate::value::V;
use crate::value::fault::{Fault, Outcome};
use crate::value::quantity::Quantity;

// Kubernetes implements `sign(quantity)`, although its documentation describes `quantity.sign()`.
pub(crate) const SIGNATURES: &str = "
quantity(<string>) -> <kubernetes.Quantity>
isQuantity(<string>) -> <bool>
sign(<kubernetes.Quantity>) -> <int>
<kubernetes.Quantity>.isInteger() -> <bool>
<kubernetes.Quantity>.asInteger() -> <int>
<kubernetes.Quantity>.asApproximateFloat() -> <double>
<kubernetes.Quantity>.add|sub(<T>) -> <kubernetes.Quantity> where T: kubernetes.Quantity|int
<kubernetes.Quantity>.compareTo(<kubernetes.Quantity>) -> <int>
<kubernetes.Quantity>.isGreaterThan|isLessThan(<kubernetes.Quantity>) -> <bool>
";

/// Calls a function of quantities. A call costs one step for each 64 bytes of its arguments.
pub(crate) fn call<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    charge_arguments(args, budget)?;
    let made = |quantity: Quantity| V::Quantity(Rc::new(quantity));
    let whole = Quantity::integer;
    Ok(match (name, args) {
        ("quantity", [V::Str(text)]) => made(Quantity::parse(text).map_err(Fault::error)?),
        ("isQuantity", [V::Str(text)]) => V::Bool(Quantity::parse(text).is_ok()),
        ("sign", [V::Quantity(a)]) => V::Int(a.sign()),
        ("isInteger", [V::Quantity(a)]) => V::Bool(a.as_integer().is_some()),
        ("asInteger", [V::Quantity(a)]) => {
            let integer = a.as_integer();
            V::Int(integer.ok_or(Fault::error("cannot convert value to integer"))?)
        }
        ("asApproximateFloat", [V::Quantity(a)]) => V::Double(a.approximate()),
        ("add", [V::Quantity(a), V::Quantity(b)]) => made(a.plus(b).map_err(Fault::error)?),
        ("add", [V::Quantity(a), V::Int(b)]) => made(a.plus(&whole(*b)).map_err(Fault::error)?),
        ("sub", [V::Quantity(a), V::Quantity(b)]) => {
            made(a.plus(&b.negated()).map_err(Fault::error)?)
        }
        ("sub", [V::Quantity(a), V::Int(b)]) => {
            made(a.plus(&whole(*b).negated()).map_err(Fault::error)?)
        }
        ("isGreaterThan", [V::Quantity(a), V::Quantity(b)]) => V::Bool(a.cmp(b).is_gt()),
        ("isLessThan", [V::Quantity(a), V::Quantity(b)]) => V::Bool(a.cmp(b).is_lt()),
        ("compareTo", [V::Quantity(a), V::Quantity(b)]) => V::Int(a.cmp(b) as i64),
        _ => return Err(Fault::no_overload()),
    })
}
