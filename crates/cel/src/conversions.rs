//! The conversion functions and arithmetic operators of CEL, with the results and errors of cel-go.

use std::rc::Rc;

use super::Budget;
use super::op::{Arith, Function};
use super::semver_functions::version_len;
use super::time::{CelTimestamp, ParseTimeError, format_duration, parse_duration};
use super::value::{Bytes, Fault, Text, V, charge, steps, truncate_int, truncate_uint};

/// Number of bytes that an evaluation may copy for one step of the budget. A step that creates an
/// element of a list needs a few dozen bytes. Because each step allocates so little memory, the
/// budget also limits the memory of an evaluation.
pub(super) const COPY_BYTES_PER_STEP: usize = 64;

/// Charges the steps for reading the arguments of a library function: one step for each
/// [`COPY_BYTES_PER_STEP`] bytes of an argument.
pub(super) fn charge_arguments<'e>(
    arguments: &[V<'e>],
    budget: &mut Budget,
) -> Result<(), Fault<'e>> {
    for argument in arguments {
        let bytes = match argument {
            V::Str(text) => text.len(),
            V::Url(url) => url.len(),
            V::Semver(version) => version_len(version),
            V::Quantity(quantity) => quantity.digit_count(),
            _ => 0,
        };
        charge(budget, steps(bytes, COPY_BYTES_PER_STEP))?;
    }
    Ok(())
}

type ConversionOutcome<'e> = Result<V<'e>, Fault<'e>>;

/// Evaluates `int(..)`, `string(..)` and the other conversion functions.
pub(super) fn convert<'e>(
    to: Function,
    value: V<'e>,
    budget: &mut Budget,
) -> ConversionOutcome<'e> {
    if let V::Str(text) = &value
        && !matches!(to, Function::String | Function::Bytes)
    {
        charge(budget, steps(text.len(), COPY_BYTES_PER_STEP))?;
    }
    match to {
        Function::Bool => to_bool(value),
        Function::Bytes => to_bytes(value, budget),
        Function::Double => to_double(value),
        Function::Duration => to_duration(value),
        Function::Int => to_int(value),
        Function::String => to_string(value, budget),
        Function::Timestamp => to_timestamp(value),
        Function::Uint => to_uint(value),
        _ => Err(Fault::no_overload()),
    }
}

/// Returns the error for a value that cannot be converted to the type `to`.
fn unconvertible<'e>(value: &V<'_>, to: &'static str) -> Fault<'e> {
    let from = value.type_name();
    Fault::words(&["type conversion error from '", from, "' to '", to, "'"])
}

fn to_bool(value: V<'_>) -> ConversionOutcome<'_> {
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

fn to_bytes<'e>(value: V<'e>, budget: &mut Budget) -> ConversionOutcome<'e> {
    match value {
        V::Bytes(_) => Ok(value),
        V::Str(Text::Ref(text)) => Ok(V::Bytes(Bytes::Ref(text.as_bytes()))),
        V::Str(Text::Own(text)) => {
            charge(budget, steps(text.len(), COPY_BYTES_PER_STEP))?;
            Ok(V::Bytes(Bytes::Own(text.as_bytes().into())))
        }
        _ => Err(Fault::no_overload()),
    }
}

#[allow(clippy::cast_precision_loss)] // The conversion rounds.
fn to_double(value: V<'_>) -> ConversionOutcome<'_> {
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

fn to_duration(value: V<'_>) -> ConversionOutcome<'_> {
    match &value {
        V::Duration(_) => Ok(value),
        V::Str(text) => parse_duration(text)
            .map(V::Duration)
            .ok_or_else(|| unconvertible(&value, "google.protobuf.Duration")),
        V::Int(_) => Err(unconvertible(&value, "google.protobuf.Duration")),
        _ => Err(Fault::no_overload()),
    }
}

fn to_int(value: V<'_>) -> ConversionOutcome<'_> {
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

fn to_uint(value: V<'_>) -> ConversionOutcome<'_> {
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

fn to_timestamp(value: V<'_>) -> ConversionOutcome<'_> {
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

pub(super) fn to_string<'e>(value: V<'e>, budget: &mut Budget) -> ConversionOutcome<'e> {
    Ok(V::text(&match &value {
        V::Str(_) => return Ok(value),
        V::Bool(value) => return Ok(V::Str(Text::Ref(if *value { "true" } else { "false" }))),
        V::Int(value) => value.to_string(),
        V::Uint(value) => value.to_string(),
        V::Double(value) => format_double(*value),
        V::Bytes(bytes) => {
            charge(budget, steps(bytes.len(), COPY_BYTES_PER_STEP))?;
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
pub(super) fn format_double(value: f64) -> String {
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
    // Go and Rust write the fewest digits that still identify the value. Sometimes the value lies
    // exactly in the middle between two numbers with this many digits. Go then chooses the number
    // whose last digit is even. Rust does the same only if the format has a precision. So the value
    // is formatted again, with the number of digits as the precision.
    let digits = mantissa.bytes().filter(u8::is_ascii_digit).count();
    let rounded = format!("{value:.*e}", digits.saturating_sub(1));
    let mantissa = match rounded.split_once('e') {
        Some((even, _)) if rounded.parse() == Ok(value) => even,
        _ => mantissa,
    };
    format!("{mantissa}e{sign}{:02}", exponent.abs())
}

/// Evaluates one of the operators `+`, `-`, `*`, `/` and `%`.
pub(super) fn arithmetic<'e>(
    op: Arith,
    left: V<'e>,
    right: V<'e>,
    budget: &mut Budget,
) -> ConversionOutcome<'e> {
    match (left, right) {
        (V::Int(a), V::Int(b)) => int(op, a, b),
        (V::Uint(a), V::Uint(b)) => uint(op, a, b),
        (V::Double(a), V::Double(b)) => match op {
            Arith::Add => Ok(V::Double(a + b)),
            Arith::Sub => Ok(V::Double(a - b)),
            Arith::Mul => Ok(V::Double(a * b)),
            Arith::Div => Ok(V::Double(a / b)),
            Arith::Mod => Err(Fault::no_overload()),
        },
        (left, right) => match op {
            Arith::Add => add(&left, &right, budget),
            Arith::Sub => subtract(&left, &right),
            _ => Err(Fault::no_overload()),
        },
    }
}

fn int<'e>(op: Arith, a: i64, b: i64) -> ConversionOutcome<'e> {
    match op {
        Arith::Add => a.checked_add(b),
        Arith::Sub => a.checked_sub(b),
        Arith::Mul => a.checked_mul(b),
        Arith::Div if b == 0 => return Err(Fault::error("division by zero")),
        Arith::Div => a.checked_div(b),
        Arith::Mod if b == 0 => return Err(Fault::error("modulus by zero")),
        Arith::Mod => a.checked_rem(b),
    }
    .map(V::Int)
    .ok_or(Fault::error("integer overflow"))
}

fn uint<'e>(op: Arith, a: u64, b: u64) -> ConversionOutcome<'e> {
    match op {
        Arith::Add => a.checked_add(b),
        Arith::Sub => a.checked_sub(b),
        Arith::Mul => a.checked_mul(b),
        Arith::Div if b == 0 => return Err(Fault::error("division by zero")),
        Arith::Div => a.checked_div(b),
        Arith::Mod if b == 0 => return Err(Fault::error("modulus by zero")),
        Arith::Mod => a.checked_rem(b),
    }
    .map(V::Uint)
    .ok_or(Fault::error("unsigned integer overflow"))
}

fn add<'e>(left: &V<'e>, right: &V<'e>, budget: &mut Budget) -> ConversionOutcome<'e> {
    let later = |time: CelTimestamp, nanoseconds| {
        time.plus(nanoseconds)
            .map(V::Time)
            .ok_or(Fault::error("timestamp overflow"))
    };
    match (left, right) {
        (V::Str(a), V::Str(b)) => {
            charge(budget, steps(a.len() + b.len(), COPY_BYTES_PER_STEP))?;
            let mut text = String::with_capacity(a.len() + b.len());
            text.push_str(a);
            text.push_str(b);
            Ok(V::Str(Text::Own(text.into())))
        }
        (V::Bytes(a), V::Bytes(b)) => {
            charge(budget, steps(a.len() + b.len(), COPY_BYTES_PER_STEP))?;
            Ok(V::Bytes(Bytes::Own([&**a, &**b].concat().into())))
        }
        (V::Duration(a), V::Duration(b)) => a
            .checked_add(*b)
            .map(V::Duration)
            .ok_or(Fault::error("integer overflow")),
        (V::Time(time), V::Duration(nanoseconds)) | (V::Duration(nanoseconds), V::Time(time)) => {
            later(*time, *nanoseconds)
        }
        _ if left.is_list() && right.is_list() => {
            let len = left.len() + right.len();
            charge(budget, steps(len, 1))?;
            let items: Rc<[V<'e>]> = (0..left.len())
                .filter_map(|index| left.element(index))
                .chain((0..right.len()).filter_map(|index| right.element(index)))
                .collect();
            Ok(V::List(items))
        }
        _ => Err(Fault::no_overload()),
    }
}

fn subtract<'e>(left: &V<'e>, right: &V<'e>) -> ConversionOutcome<'e> {
    match (left, right) {
        (V::Duration(a), V::Duration(b)) => a.checked_sub(*b).map(V::Duration),
        (V::Time(a), V::Time(b)) => a.since(*b).map(V::Duration),
        (V::Time(time), V::Duration(nanoseconds)) => {
            return nanoseconds
                .checked_neg()
                .and_then(|nanoseconds| time.plus(nanoseconds))
                .map(V::Time)
                .ok_or(Fault::error("timestamp overflow"));
        }
        _ => return Err(Fault::no_overload()),
    }
    .ok_or(Fault::error("integer overflow"))
}
