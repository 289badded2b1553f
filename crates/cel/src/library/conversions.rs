//! The conversion functions of CEL, with the results and errors of cel-go.

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
    let value = value.clone();
    if let V::Str(text) = &value
        && !matches!(to, "string" | "bytes" | "dyn")
    {
        charge_copy(budget, text.len())?;
    }
    match to {
        "dyn" => Ok(value),
        "bool" => to_bool(value),
        "bytes" => to_bytes(value, budget),
        "double" => to_double(value),
        "duration" => to_duration(value),
        "int" => to_int(value),
        "string" => to_string(value, budget),
        "timestamp" => to_timestamp(value),
        "uint" => to_uint(value),
        _ => Err(Fault::no_overload()),
    }
}

/// Returns the error for a value that cannot be converted to the type `to`.
fn unconvertible<'e>(value: &V<'_>, to: &'static str) -> Fault<'e> {
    let from = value.type_name();
    Fault::words(&["type conversion error from '", from, "' to '", to, "'"])
}

fn to_bool(value: V<'_>) -> Outcome<'_> {
    match &value {
        V::Bool(_) => Ok(value),
        V::Str(text) => match &**text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(V::Bool(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(V::Bool(false)),
            _ => Err(unconvertible(&value, "bool")),
        },
        _ => Err(Fault::no_overload()),
    }
}

fn to_bytes<'e>(value: V<'e>, budget: &mut Budget) -> Outcome<'e> {
    match value {
        V::Bytes(_) => Ok(value),
        V::Str(Text::Ref(text)) => Ok(V::Bytes(Bytes::Ref(text.as_bytes()))),
        V::Str(Text::Own(text)) => {
            charge_copy(budget, text.len())?;
            Ok(V::Bytes(Bytes::Own(text.as_bytes().into())))
        }
        _ => Err(Fault::no_overload()),
    }
}

#[allow(clippy::cast_precision_loss)] // The conversion rounds.
fn to_double(value: V<'_>) -> Outcome<'_> {
    match &value {
        V::Double(_) => Ok(value),
        V::Int(int) => Ok(V::Double(*int as f64)),
        V::Uint(uint) => Ok(V::Double(*uint as f64)),
        V::Str(text) => match text.parse::<f64>() {
            // If the text is a number that is too large, such as `1e999`, Go returns an error, but
            // Rust returns infinity. The text `inf`, which has no digit, is accepted by both.
            Ok(double) if double.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) => {
                Err(unconvertible(&value, "double"))
            }
            Ok(double) => Ok(V::Double(double)),
            Err(_) => Err(unconvertible(&value, "double")),
        },
        _ => Err(Fault::no_overload()),
    }
}

fn to_duration(value: V<'_>) -> Outcome<'_> {
    match &value {
        V::Duration(_) => Ok(value),
        V::Str(text) => parse_duration(text)
            .map(V::Duration)
            .ok_or_else(|| unconvertible(&value, "google.protobuf.Duration")),
        V::Int(_) => Err(unconvertible(&value, "google.protobuf.Duration")),
        _ => Err(Fault::no_overload()),
    }
}

fn to_int(value: V<'_>) -> Outcome<'_> {
    let overflow = || Fault::error("integer overflow");
    match &value {
        V::Int(_) => Ok(value),
        V::Uint(uint) => i64::try_from(*uint).map(V::Int).map_err(|_| overflow()),
        V::Double(double) => truncate_int(*double).map(V::Int).ok_or_else(overflow),
        V::Duration(nanoseconds) => Ok(V::Int(*nanoseconds)),
        V::Time(time) => Ok(V::Int(time.second())),
        V::Str(text) => text
            .parse()
            .map(V::Int)
            .map_err(|_| unconvertible(&value, "int")),
        _ => Err(Fault::no_overload()),
    }
}

fn to_uint(value: V<'_>) -> Outcome<'_> {
    let overflow = || Fault::error("unsigned integer overflow");
    match &value {
        V::Uint(_) => Ok(value),
        V::Int(int) => u64::try_from(*int).map(V::Uint).map_err(|_| overflow()),
        V::Double(double) => truncate_uint(*double).map(V::Uint).ok_or_else(overflow),
        // Rust accepts a `+` before an unsigned integer, but Go does not.
        V::Str(text) if text.starts_with('+') => Err(unconvertible(&value, "uint")),
        V::Str(text) => text
            .parse()
            .map(V::Uint)
            .map_err(|_| unconvertible(&value, "uint")),
        _ => Err(Fault::no_overload()),
    }
}

fn to_timestamp(value: V<'_>) -> Outcome<'_> {
    let overflow = || Fault::error("timestamp overflow");
    match &value {
        V::Time(_) => Ok(value),
        V::Int(second) => CelTimestamp::at(*second).map(V::Time).ok_or_else(overflow),
        V::Str(text) => match CelTimestamp::parse(text) {
            Ok(time) => Ok(V::Time(time)),
            Err(ParseTimeError::Range) => Err(overflow()),
            Err(ParseTimeError::Syntax) => Err(unconvertible(&value, "google.protobuf.Timestamp")),
        },
        _ => Err(Fault::no_overload()),
    }
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
