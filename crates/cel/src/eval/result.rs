//! Converts the result of an evaluation to the kind that the caller requires, such as a percentage,
//! a time, a key or JSON.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Number, Value};
use std::time::Duration;

use crate::budget::{Budget, charge, charge_arguments, charge_copy, steps};
use crate::library::conversions::{format_double, to_string};
use crate::result_kind::ResultKind;
use crate::value::V;
use crate::value::fault::Fault;
use crate::value::time::CelTimestamp;

/// A value of any type, for tools that show the result of an expression.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedValue {
    /// The name of the value's CEL type, such as `int` or `google.protobuf.Timestamp`.
    pub type_name: String,
    /// The value as JSON. Bytes are encoded in base64. An optional becomes its value, or null if it
    /// has no value. A value of another type that JSON does not have, such as a timestamp or a
    /// quantity, becomes a string with its text.
    pub value: Value,
}

/// Returns the error for a value that is not of the required kind.
pub(crate) fn unexpected<'e>(wanted: ResultKind, value: &V<'_>) -> Fault<'e> {
    let (wanted, found) = (wanted.name(), value.type_name());
    Fault::words(&["expected type '", wanted, "' but found '", found, "'"])
}

/// Converts a value to whole percent, rounded down. A number below 0 becomes 0, and a number above
/// 100 becomes 100. Returns None for null, and for text that is not a number with an optional `%`.
/// Returns an error for a value of another type, and for a number that is not finite.
pub(crate) fn progress<'e>(value: &V<'_>) -> Result<Option<u8>, Fault<'e>> {
    let number = match value {
        V::Null => None,
        V::Str(text) => percentage(text),
        other => {
            let number = other.number();
            Some(number.ok_or_else(|| unexpected(ResultKind::Progress, other))?)
        }
    };
    if number.is_some_and(|number| !number.is_finite()) {
        return Err(Fault::error("progress is not a finite number"));
    }
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // From 0 to 100.
    Ok(number.map(|number| number.clamp(0.0, 100.0) as u8))
}

/// Parses a text such as `45.20%` or `45.20`. Returns None for any other text.
fn percentage(text: &str) -> Option<f64> {
    let text = text.trim();
    let digits = text.strip_suffix('%').unwrap_or(text).trim_end();
    // Rust would also parse infinities, NaN and exponents. These are not accepted here.
    let plain = |c: char| c.is_ascii_digit() || matches!(c, '.' | '+' | '-');
    if !digits.chars().all(plain) {
        return None;
    }
    digits
        .parse()
        .ok()
        .filter(|number: &f64| number.is_finite())
}

/// Converts a value to a point in time. Returns None for empty text and for null. Returns an error
/// for a text that is not a time in RFC 3339, and for a value of another type.
pub(crate) fn time<'e>(value: &V<'_>) -> Result<Option<Timestamp>, Fault<'e>> {
    let instant = match value {
        V::Null => return Ok(None),
        V::Time(time) => Some(*time),
        V::Str(text) if text.is_empty() => return Ok(None),
        V::Str(text) => CelTimestamp::parse(text).ok(),
        other => return Err(unexpected(ResultKind::Time, other)),
    };
    instant
        .and_then(CelTimestamp::timestamp)
        .map(Some)
        .ok_or(Fault::error("not a time in RFC 3339"))
}

/// Converts a CEL duration. A negative duration becomes zero. Returns an error for a value of
/// another type.
pub(crate) fn duration<'e>(value: &V<'_>) -> Result<Duration, Fault<'e>> {
    match value {
        V::Duration(nanoseconds) => {
            let nanoseconds = u64::try_from(*nanoseconds).unwrap_or_default();
            Ok(Duration::from_nanos(nanoseconds))
        }
        other => Err(unexpected(ResultKind::Duration, other)),
    }
}

/// Converts a number or a quantity to a double. Returns an error if the value has another type, or
/// if the number is not finite.
pub(crate) fn amount<'e>(value: &V<'_>) -> Result<f64, Fault<'e>> {
    let number = match value {
        V::Quantity(quantity) => Some(quantity.approximate()),
        other => other.number(),
    };
    let number = number.ok_or_else(|| unexpected(ResultKind::Amount, value))?;
    if number.is_finite() {
        return Ok(number);
    }
    Err(Fault::error("the amount is not a finite number"))
}

/// Converts a list of strings. Each element costs one step of `budget`. Returns an error if the
/// value is not a list, if an element is not a string, or if the budget is spent.
pub(crate) fn strings<'e, T: for<'t> From<&'t str>>(
    value: &V<'_>,
    budget: &mut Budget,
) -> Result<Vec<T>, Fault<'e>> {
    if !value.is_list() {
        return Err(unexpected(ResultKind::Strings, value));
    }
    charge(budget, steps(value.len(), 1))?;
    let mut texts = Vec::with_capacity(value.len());
    for element in value.elements() {
        match element {
            V::Str(text) => texts.push(T::from(&text)),
            other => return Err(unexpected(ResultKind::String, &other)),
        }
    }
    Ok(texts)
}

/// Converts a string or an integer to text. Returns an error for a value of another type.
pub(crate) fn key<'e>(value: &V<'_>) -> Result<String, Fault<'e>> {
    match value {
        V::Str(text) => Ok(text.to_string()),
        V::Int(number) => Ok(number.to_string()),
        V::Uint(number) => Ok(number.to_string()),
        other => Err(unexpected(ResultKind::Key, other)),
    }
}

/// Converts a value to JSON, as [`TypedValue::value`] describes. Each value costs one step of
/// `budget`, and each 64 bytes of text cost one more step.
///
/// An expression can use one value twice, such as `[variables.a, variables.a]`. Then this function
/// converts the value twice, and takes the steps twice.
pub(crate) fn json<'e>(value: &V<'e>, budget: &mut Budget) -> Result<Value, Fault<'e>> {
    charge(budget, 1)?;
    Ok(match value {
        V::Null | V::Optional(None) => Value::Null,
        V::Bool(value) => Value::Bool(*value),
        V::Int(value) => Value::Number((*value).into()),
        V::Uint(value) => Value::Number((*value).into()),
        V::Double(value) => Number::from_f64(*value)
            .map_or_else(|| Value::String(format_double(*value)), Value::Number),
        V::Bytes(bytes) => {
            charge_copy(budget, bytes.len())?;
            Value::String(BASE64_STANDARD.encode(&**bytes))
        }
        V::Quantity(quantity) => Value::String(quantity.to_string()),
        V::Url(url) => {
            charge_arguments(std::slice::from_ref(value), budget)?;
            Value::String(url.to_string())
        }
        V::Semver(version) => {
            charge_arguments(std::slice::from_ref(value), budget)?;
            Value::String(version.to_string())
        }
        V::NamedFormat(format) => Value::String(format.name.to_owned()),
        V::Optional(Some(value)) => return json(value, budget),
        V::Type(name) => Value::String((*name).to_owned()),
        _ if value.is_list() => {
            let elements = value.elements().map(|element| json(&element, budget));
            Value::Array(elements.collect::<Result<_, _>>()?)
        }
        _ if value.is_map() => {
            let mut members = Map::new();
            for (key, member) in value.entries() {
                let key = match json(&key, budget)? {
                    Value::String(key) => key,
                    other => other.to_string(),
                };
                members.insert(key, json(&member, budget)?);
            }
            Value::Object(members)
        }
        _ => match to_string(value.clone(), budget)? {
            V::Str(text) => {
                charge_copy(budget, text.len())?;
                Value::String(text.to_string())
            }
            _ => return Err(Fault::no_overload()),
        },
    })
}
