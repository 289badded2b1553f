//! The conversion functions of CEL, with the results and errors of cel-go.

use super::operators::{int, timestamp, uint};
use crate::budget::{Budget, charge_copy};
use crate::value::duration::{format_duration, parse_duration};
use crate::value::fault::{Fault, Outcome};
use crate::value::time::{CelTimestamp, ParseTimeError};
use crate::value::{Bytes, Text, V};
use crate::value::{truncate_int, truncate_uint};

// Kubernetes declares the conversion of an integer to a duration, but this conversion always fails.
pub(crate) const SIGNATURES: &str = "
dyn(<A>) -> <dyn>
bool(<T>) -> <bool> where T: bool|string
bytes(<T>) -> <bytes> where T: bytes|string
double(<T>) -> <double> where T: double|int|string|uint
duration(<T>) -> <duration> where T: duration|int|string
int(<T>) -> <int> where T: int|double|duration|string|timestamp|uint
string(<T>) -> <string> where T: string|bool|bytes|double|duration|int|timestamp|uint|net.IP|net.CIDR
timestamp(<T>) -> <timestamp> where T: timestamp|int|string
uint(<T>) -> <uint> where T: uint|double|int|string
";

/// Returns true for a function that converts a value to another type.
pub(crate) fn is_conversion(name: &str) -> bool {
    let mut signatures = SIGNATURES.lines().filter_map(|line| line.split_once('('));
    signatures.any(|(own, _)| own == name)
}

/// Evaluates `int(..)`, `string(..)` and the other conversion functions.
pub(crate) fn call<'e>(to: &str, args: &[V<'e>], budget: &mut Budget) -> Outcome<'e> {
    let [value] = args else {
        return Err(Fault::no_overload());
    };
    Ok(match (to, value) {
        ("dyn", _)
        | ("bool", V::Bool(_))
        | ("bytes", V::Bytes(_))
        | ("duration", V::Duration(_))
        | ("int", V::Int(_))
        | ("timestamp", V::Time(_))
        | ("uint", V::Uint(_)) => value.clone(),
        ("string", _) => to_string(value.clone(), budget)?,
        ("bytes", V::Str(Text::Ref(text))) => V::Bytes(Bytes::Ref(text.as_bytes())),
        ("bytes", V::Str(Text::Own(text))) => {
            charge_copy(budget, text.len())?;
            V::Bytes(Bytes::Own(text.as_bytes().into()))
        }
        (_, V::Str(text)) => {
            charge_copy(budget, text.len())?;
            parse(to, text)?
        }
        ("duration", V::Int(_)) => return Err(unconvertible("int", "google.protobuf.Duration")),
        ("int", V::Uint(value)) => int(i64::try_from(*value).ok())?,
        ("int", V::Double(value)) => int(truncate_int(*value))?,
        ("int", V::Duration(nanoseconds)) => V::Int(*nanoseconds),
        ("int", V::Time(time)) => V::Int(time.second()),
        ("timestamp", V::Int(second)) => timestamp(CelTimestamp::at(*second))?,
        ("uint", V::Int(value)) => uint(u64::try_from(*value).ok())?,
        ("uint", V::Double(value)) => uint(truncate_uint(*value))?,
        ("double", value) => V::Double(value.number().ok_or(Fault::no_overload())?),
        _ => return Err(Fault::no_overload()),
    })
}

/// Returns the error for a value that cannot be converted.
fn unconvertible<'e>(from: &'static str, to: &'static str) -> Fault<'e> {
    Fault::words(&["type conversion error from '", from, "' to '", to, "'"])
}

/// Parses a text as a value of the type `to`.
fn parse<'e>(to: &str, text: &str) -> Outcome<'e> {
    let (ty, value) = match to {
        "bool" => {
            let value = match text {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
                _ => None,
            };
            ("bool", value.map(V::Bool))
        }
        "double" => {
            // If the text is a number that is too large, such as `1e999`, Go returns an error, but
            // Rust returns infinity. The text `inf`, which has no digit, is accepted by both.
            let has_digit = text.contains(|c: char| c.is_ascii_digit());
            let value = text.parse().ok();
            let value = value.filter(|value: &f64| !(value.is_infinite() && has_digit));
            ("double", value.map(V::Double))
        }
        "duration" => {
            let value = parse_duration(text);
            ("google.protobuf.Duration", value.map(V::Duration))
        }
        "int" => ("int", text.parse().ok().map(V::Int)),
        // Rust accepts a `+` before an unsigned integer, but Go does not.
        "uint" if text.starts_with('+') => ("uint", None),
        "uint" => ("uint", text.parse().ok().map(V::Uint)),
        "timestamp" => {
            let value = match CelTimestamp::parse(text) {
                Err(ParseTimeError::Range) => return timestamp(None),
                parsed => parsed.ok(),
            };
            ("google.protobuf.Timestamp", value.map(V::Time))
        }
        _ => return Err(Fault::no_overload()),
    };
    value.ok_or_else(|| unconvertible("string", ty))
}

pub(crate) fn to_string<'e>(value: V<'e>, budget: &mut Budget) -> Outcome<'e> {
    Ok(V::text(&match &value {
        V::Str(_) => return Ok(value),
        V::Bool(value) => return Ok(V::Str(Text::Ref(if *value { "true" } else { "false" }))),
        V::Int(value) => value.to_string(),
        V::Uint(value) => value.to_string(),
        V::Double(value) => format_double(*value),
        V::Bytes(bytes) => {
            charge_copy(budget, bytes.len())?;
            let text = std::str::from_utf8(bytes)
                .map_err(|_| Fault::error("invalid UTF-8 in bytes, cannot convert to string"))?;
            text.to_owned()
        }
        V::Duration(nanoseconds) => format_duration(*nanoseconds),
        V::Time(time) => time.to_string(),
        V::Ip(ip) => ip.to_string(),
        V::Cidr(cidr) => cidr.to_string(),
        _ => return Err(Fault::no_overload()),
    }))
}

/// Formats a double like Go's `%g`.
pub(crate) fn format_double(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    // Go formats a number without an exponent if the exponent is at least -4 and less than the
    // precision. In the shortest format, Go uses the precision 6 for this decision.
    if (-4..6).contains(&exponent) {
        return format!("{value}");
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}
