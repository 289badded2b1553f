//! The functions of the language itself, such as `size`, and the getters of timestamps and
//! durations.

use crate::budget::{Budget, SEARCH_BYTES_PER_STEP, charge, charge_copy, steps};
use crate::value::V;
use crate::value::duration::duration_part;
use crate::value::fault::{Fault, Outcome};

pub(crate) const SIGNATURES: &str = "
size(<T>) -> <int> where T: bytes|list(A)|map(A, B)|string
<T>.size() -> <int> where T: bytes|list(A)|map(A, B)|string
type(<A>) -> <type(A)>
<string>.contains|startsWith|endsWith(<string>) -> <bool>
<timestamp>.getFullYear|getMonth|getDayOfYear|getDayOfMonth|getDate|getDayOfWeek() -> <int>
<timestamp>.getFullYear|getMonth|getDayOfYear|getDayOfMonth|getDate|getDayOfWeek(<string>) -> <int>
<timestamp>.getHours|getMinutes|getSeconds|getMilliseconds() -> <int>
<timestamp>.getHours|getMinutes|getSeconds|getMilliseconds(<string>) -> <int>
<duration>.getHours|getMinutes|getSeconds|getMilliseconds() -> <int>
";

pub(crate) fn call<'e>(name: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    match (name, args) {
        ("size", [value]) => size(value, budget),
        ("type", [value]) => Ok(V::Type(value.type_name())),
        (_, [V::Str(text), V::Str(part)]) => {
            charge(budget, steps(text.len(), SEARCH_BYTES_PER_STEP))?;
            Ok(V::Bool(match name {
                "contains" => text.contains(&**part),
                "startsWith" => text.starts_with(&**part),
                "endsWith" => text.ends_with(&**part),
                _ => return Err(Fault::no_overload()),
            }))
        }
        (_, [V::Duration(nanoseconds)]) => getter_result(duration_part(*nanoseconds, name)),
        (_, [V::Time(time)]) => getter_result(time.part(name, 0)),
        (_, [V::Time(time), V::Str(zone)]) => {
            charge_copy(budget, zone.len())?;
            let offset = time.zone_offset(zone);
            let offset = offset.ok_or(Fault::error("unknown time zone"))?;
            getter_result(time.part(name, offset))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn getter_result<'e>(part: Option<i64>) -> Outcome<'e> {
    part.map(V::Int).ok_or(Fault::no_overload())
}

fn size<'e>(value: &V<'e>, budget: &mut Budget) -> Outcome<'e> {
    let len = match value {
        V::Str(text) => {
            charge(budget, steps(text.len(), SEARCH_BYTES_PER_STEP))?;
            text.chars().count()
        }
        V::Bytes(bytes) => bytes.len(),
        V::Node(_) | V::List(_) | V::Map(_) => value.len(),
        _ => return Err(Fault::no_overload()),
    };
    Ok(V::Int(i64::try_from(len).unwrap_or(i64::MAX)))
}
