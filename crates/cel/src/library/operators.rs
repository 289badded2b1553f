//! The operators of CEL, with the results and errors of cel-go. The operators that do not always
//! evaluate all operands, such as `&&`, are implemented by the evaluation.

use crate::budget::{Budget, charge, charge_copy, steps};
use crate::value::compare::{self, equals, find_cost};
use crate::value::fault::{Fault, Outcome};
use crate::value::time::CelTimestamp;
use crate::value::{Bytes, Text, V};

pub(crate) const ADD: &str = "
_+_(<T>, <T>) -> <T> where T: bytes|double|duration|int|list(A)|string|uint
_+_(<duration>, <timestamp>) -> <timestamp>
_+_(<timestamp>, <duration>) -> <timestamp>
";
pub(crate) const SUBTRACT: &str = "
_-_(<T>, <T>) -> <T> where T: double|duration|int|uint
_-_(<timestamp>, <duration>) -> <timestamp>
_-_(<timestamp>, <timestamp>) -> <duration>
";
pub(crate) const MULTIPLY: &str = "_*_(<T>, <T>) -> <T> where T: double|int|uint";
pub(crate) const DIVIDE: &str = "_/_(<T>, <T>) -> <T> where T: double|int|uint";
pub(crate) const MODULO: &str = "_%_(<T>, <T>) -> <T> where T: int|uint";
pub(crate) const NEGATE: &str = "-_(<T>) -> <T> where T: double|int";
pub(crate) const NOT: &str = "!_(<bool>) -> <bool>";
pub(crate) const EQUAL: &str = "_==_|_!=_(<A>, <A>) -> <bool>";
pub(crate) const ORDER: &str = "
_<_|_<=_|_>_|_>=_(<T>, <T>) -> <bool> where T: comparable
_<_|_<=_|_>_|_>=_(<int>, <T>) -> <bool> where T: uint|double
_<_|_<=_|_>_|_>=_(<uint>, <T>) -> <bool> where T: int|double
_<_|_<=_|_>_|_>=_(<double>, <T>) -> <bool> where T: int|uint
";
pub(crate) const IN: &str = "
@in(<A>, <T>) -> <bool> where T: list(A)|map(A, B)
";

/// The operators that the evaluation implements, and the internal functions that cel-go calls for
/// the macros `sortBy`, `transformMap` and `transformMapEntry`. Error messages contain the names of
/// these functions. Indexing an optional list or map returns an optional value.
pub(crate) const MACROS: &str = "
_?_:_(<bool>, <A>, <A>) -> <A>
_[_](<list(A)>, <int>) -> <A>
_[_](<map(A, B)>, <A>) -> <B>
_[_](<optional_type(list(A))>, <int>) -> <optional_type(A)>
_[_](<optional_type(map(A, B))>, <A>) -> <optional_type(B)>
_[?_](<list(A)>, <int>) -> <optional_type(A)>
_[?_](<optional_type(list(A))>, <int>) -> <optional_type(A)>
_[?_](<map(A, B)>, <A>) -> <optional_type(B)>
_[?_](<optional_type(map(A, B))>, <A>) -> <optional_type(B)>
<list(A)>.@sortByAssociatedKeys(<list(T)>) -> <list(A)> where T: comparable
cel.@mapInsert(<map(A, B)>, <A>, <B>) -> <map(A, B)>
cel.@mapInsert(<map(A, B)>, <map(A, B)>) -> <map(A, B)>
";

pub(crate) fn of_macro<'e>(_: &str, _: &[V<'e>], _: &mut Budget) -> Outcome<'e> {
    Err(Fault::no_overload())
}

pub(crate) fn add<'e>(_: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    match args {
        [V::Int(a), V::Int(b)] => int(a.checked_add(*b)),
        [V::Uint(a), V::Uint(b)] => uint(a.checked_add(*b)),
        [V::Double(a), V::Double(b)] => Ok(V::Double(a + b)),
        [left, right] => add_others(left, right, budget),
        _ => Err(Fault::no_overload()),
    }
}

pub(crate) fn subtract<'e>(_: &str, args: &[V<'e>], _: &mut Budget) -> Outcome<'e> {
    match args {
        [V::Int(a), V::Int(b)] => int(a.checked_sub(*b)),
        [V::Uint(a), V::Uint(b)] => uint(a.checked_sub(*b)),
        [V::Double(a), V::Double(b)] => Ok(V::Double(a - b)),
        [V::Duration(a), V::Duration(b)] => nanoseconds(a.checked_sub(*b)),
        [V::Time(a), V::Time(b)] => nanoseconds(a.since(*b)),
        [V::Time(time), V::Duration(by)] => later(*time, by.checked_neg()),
        _ => Err(Fault::no_overload()),
    }
}

pub(crate) fn multiply<'e>(_: &str, args: &[V<'e>], _: &mut Budget) -> Outcome<'e> {
    match args {
        [V::Int(a), V::Int(b)] => int(a.checked_mul(*b)),
        [V::Uint(a), V::Uint(b)] => uint(a.checked_mul(*b)),
        [V::Double(a), V::Double(b)] => Ok(V::Double(a * b)),
        _ => Err(Fault::no_overload()),
    }
}

pub(crate) fn divide<'e>(_: &str, args: &[V<'e>], _: &mut Budget) -> Outcome<'e> {
    match args {
        [V::Int(_), V::Int(0)] | [V::Uint(_), V::Uint(0)] => Err(Fault::error("division by zero")),
        [V::Int(a), V::Int(b)] => int(a.checked_div(*b)),
        [V::Uint(a), V::Uint(b)] => uint(a.checked_div(*b)),
        [V::Double(a), V::Double(b)] => Ok(V::Double(a / b)),
        _ => Err(Fault::no_overload()),
    }
}

pub(crate) fn modulo<'e>(_: &str, args: &[V<'e>], _: &mut Budget) -> Outcome<'e> {
    match args {
        [V::Int(_), V::Int(0)] | [V::Uint(_), V::Uint(0)] => Err(Fault::error("modulus by zero")),
        [V::Int(a), V::Int(b)] => int(a.checked_rem(*b)),
        [V::Uint(a), V::Uint(b)] => uint(a.checked_rem(*b)),
        _ => Err(Fault::no_overload()),
    }
}

pub(crate) fn negate<'e>(_: &str, args: &[V<'e>], _: &mut Budget) -> Outcome<'e> {
    match args {
        [V::Int(value)] => int(value.checked_neg()),
        [V::Double(value)] => Ok(V::Double(-value)),
        [V::Duration(value)] => nanoseconds(value.checked_neg()),
        _ => Err(Fault::no_overload()),
    }
}

pub(crate) fn not<'e>(_: &str, args: &[V<'e>], _: &mut Budget) -> Outcome<'e> {
    match args {
        [V::Bool(value)] => Ok(V::Bool(!value)),
        _ => Err(Fault::no_overload()),
    }
}

/// Evaluates `==` and `!=`. As in cel-go, `==` with values that cannot be compared is an error, and
/// `!=` is true.
pub(crate) fn equal<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    match args {
        [left, right] if name == "_==_" => compare::equal(left, right, budget).map(V::Bool),
        [left, right] => equals(left, right, budget).map(|is_equal| V::Bool(!is_equal)),
        _ => Err(Fault::no_overload()),
    }
}

pub(crate) fn order<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    let [left, right] = args else {
        return Err(Fault::no_overload());
    };
    let order = compare::order(left, right, budget)?;
    Ok(V::Bool(match name {
        "_<_" => order.is_lt(),
        "_<=_" => order.is_le(),
        "_>_" => order.is_gt(),
        _ => order.is_ge(),
    }))
}

/// Evaluates `in`.
pub(crate) fn contained<'e>(_: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    match args {
        [key, map] if map.is_map() => {
            charge(budget, find_cost(map, key))?;
            Ok(V::Bool(map.find(key).is_some()))
        }
        [value, list] if list.is_list() => {
            for (index, element) in list.elements().enumerate() {
                charge(budget, u64::from(index % 16 == 15))?;
                if equals(value, &element, budget)? {
                    return Ok(V::Bool(true));
                }
            }
            Ok(V::Bool(false))
        }
        _ => Err(Fault::no_overload()),
    }
}

pub(super) fn int<'e>(value: Option<i64>) -> Outcome<'e> {
    value.map(V::Int).ok_or(Fault::error("integer overflow"))
}

fn nanoseconds<'e>(value: Option<i64>) -> Outcome<'e> {
    let overflow = Fault::error("integer overflow");
    value.map(V::Duration).ok_or(overflow)
}

pub(super) fn uint<'e>(value: Option<u64>) -> Outcome<'e> {
    let overflow = Fault::error("unsigned integer overflow");
    value.map(V::Uint).ok_or(overflow)
}

pub(super) fn timestamp<'e>(value: Option<CelTimestamp>) -> Outcome<'e> {
    value.map(V::Time).ok_or(Fault::error("timestamp overflow"))
}

/// Returns `time` plus a number of nanoseconds. `nanoseconds` is None if the number does not fit
/// `i64`. In this case, the result is the error of an overflow.
fn later<'e>(time: CelTimestamp, nanoseconds: Option<i64>) -> Outcome<'e> {
    timestamp(nanoseconds.and_then(|nanoseconds| time.plus(nanoseconds)))
}

fn add_others<'e>(left: &V<'e>, right: &V<'e>, budget: &mut Budget) -> Outcome<'e> {
    match (left, right) {
        (V::Str(a), V::Str(b)) => {
            charge_copy(budget, a.len() + b.len())?;
            Ok(V::Str(Text::Own([&**a, &**b].concat().into())))
        }
        (V::Bytes(a), V::Bytes(b)) => {
            charge_copy(budget, a.len() + b.len())?;
            Ok(V::Bytes(Bytes::Own([&**a, &**b].concat().into())))
        }
        (V::Duration(a), V::Duration(b)) => nanoseconds(a.checked_add(*b)),
        (V::Time(time), V::Duration(by)) | (V::Duration(by), V::Time(time)) => {
            later(*time, Some(*by))
        }
        _ if left.is_list() && right.is_list() => {
            charge(budget, steps(left.len() + right.len(), 1))?;
            Ok(V::List(left.elements().chain(right.elements()).collect()))
        }
        _ => Err(Fault::no_overload()),
    }
}
