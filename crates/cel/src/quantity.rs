//! Quantities such as `1536Mi` and `250m`, with Kubernetes' parsing, arithmetic and comparison.
//!
//! A quantity is stored as a 64-bit integer and a power of ten. If 64 bits are not enough, the
//! quantity is stored as a [`Decimal`] with up to [`MAX_DIGITS`] digits. A quantity with more
//! digits is an error. Without this limit, `quantity('1e2000000000').add(1)` would need two billion
//! digits. A quantity with more than nine decimal places is rounded away from zero to nine places.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::rc::Rc;

use super::Budget;
use super::conversions::charge_arguments;
use super::decimal::{Decimal, MAX_DIGITS, NANO, TooLarge, parse_digits};
use super::op::Function;
use super::strings::no_overload;
use super::value::{Fault, V};

/// Largest number of decimal digits that always fit `i64`.
const I64_DIGITS: i64 = 18;

/// A quantity. `isInteger` is false for every [`Self::Large`], as in Kubernetes. If one of two
/// summands is [`Self::Large`], the sum is also [`Self::Large`], even if the sum fits 64 bits.
#[derive(Clone, Debug)]
pub(super) enum Quantity {
    /// The number `value` times 10^`exponent`.
    Small { value: i64, exponent: i64 },
    /// A number that is stored as decimal digits.
    Large(Decimal),
}

/// The error for a text that is not a quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ParseQuantityError {
    Format,
    Numeric,
    Suffix,
    TooLarge,
}

impl ParseQuantityError {
    /// Returns the error text. The texts are the same as in Kubernetes, except the text of
    /// [`Self::TooLarge`]: Kubernetes does not have this error.
    fn message(self) -> &'static str {
        match self {
            Self::Format => {
                "quantities must match the regular expression \
                 '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            }
            Self::Numeric => "unable to parse numeric part of quantity",
            Self::Suffix => "unable to parse quantity's suffix",
            Self::TooLarge => "quantity has more than 1024 digits",
        }
    }
}

impl From<TooLarge> for ParseQuantityError {
    fn from(_: TooLarge) -> Self {
        Self::TooLarge
    }
}

impl From<ParseQuantityError> for Fault<'_> {
    fn from(error: ParseQuantityError) -> Self {
        Self::error(error.message())
    }
}

/// The parts of a quantity's text.
struct Parts<'t> {
    negative: bool,
    /// The digits before the point, without leading zeros.
    whole: &'t str,
    /// The digits after the point.
    fraction: &'t str,
    suffix: &'t str,
}

/// Splits `text` before the first byte for which `wanted` is false.
fn split_leading(text: &str, wanted: impl Fn(u8) -> bool) -> (&str, &str) {
    let end = text.bytes().take_while(|byte| wanted(*byte)).count();
    text.split_at_checked(end).unwrap_or((text, ""))
}

fn split_parts(text: &str) -> Result<Parts<'_>, ParseQuantityError> {
    let digit = |byte: u8| byte.is_ascii_digit();
    let (negative, unsigned) = match text.as_bytes().first() {
        None => return Err(ParseQuantityError::Format),
        Some(b'-') => (true, &text[1..]),
        Some(b'+') => (false, &text[1..]),
        Some(_) => (false, text),
    };
    let (_, rest) = split_leading(unsigned, |byte| byte == b'0');
    let (whole, rest) = split_leading(rest, digit);
    let (fraction, suffix) = match rest.strip_prefix('.') {
        Some(rest) => split_leading(rest, digit),
        None => ("", rest),
    };
    let (_, rest) = split_leading(suffix, |byte| b"eEinumkKMGTP".contains(&byte));
    let rest = rest.strip_prefix(['-', '+']).unwrap_or(rest);
    if !split_leading(rest, digit).1.is_empty() {
        return Err(ParseQuantityError::Format);
    }
    Ok(Parts {
        negative,
        whole,
        fraction,
        suffix,
    })
}

/// The factor that a suffix stands for, as an exponent of ten or of two.
enum Unit {
    /// A power of ten.
    Ten(i64),
    /// A power of two.
    Two(u32),
}

fn parse_unit(suffix: &str) -> Option<Unit> {
    Some(match suffix {
        "n" => Unit::Ten(-9),
        "u" => Unit::Ten(-6),
        "m" => Unit::Ten(-3),
        "" => Unit::Ten(0),
        "k" => Unit::Ten(3),
        "M" => Unit::Ten(6),
        "G" => Unit::Ten(9),
        "T" => Unit::Ten(12),
        "P" => Unit::Ten(15),
        "E" => Unit::Ten(18),
        "Ki" => Unit::Two(10),
        "Mi" => Unit::Two(20),
        "Gi" => Unit::Two(30),
        "Ti" => Unit::Two(40),
        "Pi" => Unit::Two(50),
        "Ei" => Unit::Two(60),
        _ => {
            let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            // Kubernetes keeps only the lower 32 bits of the exponent. This function limits the
            // exponent to the range of `i32` instead. No real quantity has a larger exponent.
            Unit::Ten(exponent.clamp(i64::from(i32::MIN), i64::from(i32::MAX)))
        }
    })
}

fn length(text: &str) -> i64 {
    i64::try_from(text.len()).unwrap_or(i64::MAX)
}

impl Quantity {
    /// Returns the number of stored decimal digits. A small quantity has none.
    pub(super) fn digit_count(&self) -> usize {
        match self {
            Self::Small { .. } => 0,
            Self::Large(large) => large.digits.len(),
        }
    }

    pub(super) fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        if text.len() > MAX_DIGITS {
            return Err(ParseQuantityError::TooLarge);
        }
        let Parts {
            negative,
            whole,
            fraction,
            suffix,
        } = split_parts(text)?;
        let unit = parse_unit(suffix).ok_or(ParseQuantityError::Suffix)?;
        // As in Kubernetes, the part before the point counts as at least one digit.
        let len = length(whole).max(1) + length(fraction);
        let (fits, exponent, factor) = match unit {
            Unit::Ten(exponent) => (len <= I64_DIGITS, exponent - length(fraction), 1),
            Unit::Two(shift) => {
                // As in Kubernetes, a suffix counts as digits. `Mi` (2^20) counts as 6 digits.
                let room = 14 - len - i64::from(shift) * 3 / 10;
                (fraction.is_empty() && room >= 0, 0, 1_i64 << shift)
            }
        };
        if fits && exponent >= NANO {
            // Because of the leading zero, the value of a text without digits, such as `.`, is 0.
            let value: i64 = format!("0{whole}{fraction}").parse().unwrap_or_default();
            if let Some(value) = value.checked_mul(factor) {
                let value = if negative { -value } else { value };
                return Ok(Self::Small { value, exponent });
            }
        }
        // As in Kubernetes, a text that `Self::Small` cannot represent must have a digit.
        let end = text.len() - suffix.len();
        if !text[..end].bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(ParseQuantityError::Numeric);
        }
        let mut large = Decimal {
            negative,
            digits: parse_digits(whole, fraction),
            exponent: match unit {
                Unit::Ten(_) => exponent,
                Unit::Two(_) => -length(fraction),
            },
        };
        if let Unit::Two(shift) = unit {
            large.shift(shift);
        }
        large.round()?;
        if matches!(unit, Unit::Two(_)) && large.magnitude_cmp(&Decimal::of(i64::MAX, 0)).is_gt() {
            large = Decimal {
                negative,
                ..Decimal::of(i64::MAX, 0)
            };
        }
        Ok(Self::Large(large))
    }

    fn decimal(&self) -> Cow<'_, Decimal> {
        match self {
            Self::Small { value, exponent } => Cow::Owned(Decimal::of(*value, *exponent)),
            Self::Large(large) => Cow::Borrowed(large),
        }
    }

    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        self.decimal().cmp(&other.decimal())
    }

    fn integer(&self) -> Option<i64> {
        let Self::Small { value, exponent } = self else {
            return None;
        };
        if *value == 0 && *exponent >= 0 {
            return Some(0);
        }
        let exponent = u32::try_from(*exponent).ok()?;
        value.checked_mul(10_i64.checked_pow(exponent)?)
    }

    fn sign(&self) -> i64 {
        match self {
            Self::Small { value, .. } => value.signum(),
            Self::Large(large) if large.digits.is_empty() => 0,
            Self::Large(large) if large.negative => -1,
            Self::Large(_) => 1,
        }
    }

    /// Returns a double near the value. As in Kubernetes, the digits and the power of ten are
    /// rounded separately, and the product is rounded again.
    pub(super) fn approximate(&self) -> f64 {
        let (base, exponent) = match self {
            #[allow(clippy::cast_precision_loss)] // The result is approximate.
            Self::Small { value, exponent } => (*value as f64, *exponent),
            Self::Large(large) => (large.mantissa(), large.exponent),
        };
        if exponent == 0 {
            return base;
        }
        base * power_of_ten(exponent)
    }

    fn negated(&self) -> Self {
        match self {
            Self::Small { value, exponent } => match value.checked_neg() {
                Some(value) => Self::Small {
                    value,
                    exponent: *exponent,
                },
                None => Self::Large(Decimal {
                    negative: false,
                    ..Decimal::of(*value, *exponent)
                }),
            },
            Self::Large(large) => Self::Large(Decimal {
                negative: !large.negative,
                ..large.clone()
            }),
        }
    }

    fn plus(&self, other: &Self) -> Result<Self, ParseQuantityError> {
        if let (
            Self::Small { value, exponent },
            Self::Small {
                value: other,
                exponent: other_exponent,
            },
        ) = (self, other)
        {
            if *other == 0 {
                return Ok(self.clone());
            }
            if *value == 0 {
                return Ok(Self::Small {
                    value: *other,
                    exponent: *other_exponent,
                });
            }
            let least = *exponent.min(other_exponent);
            let scaled = |value: i64, exponent: i64| {
                let power = u32::try_from(exponent - least).ok()?;
                value.checked_mul(10_i64.checked_pow(power)?)
            };
            let sum = scaled(*value, *exponent)
                .zip(scaled(*other, *other_exponent))
                .and_then(|(a, b)| a.checked_add(b));
            if let Some(value) = sum {
                return Ok(Self::Small {
                    value,
                    exponent: least,
                });
            }
        }
        Ok(Self::Large(self.decimal().plus(&other.decimal())?))
    }
}

/// Returns a power of ten like Go's `math.Pow10`: as the product or the quotient of two powers.
/// Each of the two powers is rounded before the multiplication or division.
fn power_of_ten(exponent: i64) -> f64 {
    let power = |exponent: i64| format!("1e{exponent}").parse().unwrap_or(f64::NAN);
    match exponent {
        0..=308 => power(exponent / 32 * 32) * power(exponent % 32),
        -323..0 => power(-(-exponent / 32 * 32)) / power(-exponent % 32),
        309.. => f64::INFINITY,
        _ => 0.0,
    }
}

/// Formats the number without an exponent, such as `1500`. If this form needs more than
/// [`MAX_DIGITS`] trailing zeros or decimal places, formats the number with an exponent.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.decimal();
        if number.digits.is_empty() {
            return f.write_str("0");
        }
        if number.is_negative() {
            f.write_str("-")?;
        }
        let mut text: String = number.digits.iter().map(|d| char::from(b'0' + d)).collect();
        if let Ok(zeros) = usize::try_from(number.exponent)
            && zeros <= MAX_DIGITS
        {
            text.push_str(&"0".repeat(zeros));
            return f.write_str(&text);
        }
        match usize::try_from(-number.exponent) {
            Ok(places @ 1..=MAX_DIGITS) => {
                if text.len() <= places {
                    text.insert_str(0, &"0".repeat(places + 1 - text.len()));
                }
                let (whole, fraction) = text.split_at(text.len() - places);
                f.write_str(whole)?;
                match fraction.trim_end_matches('0') {
                    "" => Ok(()),
                    fraction => write!(f, ".{fraction}"),
                }
            }
            _ => write!(f, "{text}e{}", number.exponent),
        }
    }
}

/// Calls a function of the quantity library.
pub(super) fn call<'e>(
    function: Function,
    args: &[V<'e>],
    budget: &mut Budget,
) -> Result<V<'e>, Fault<'e>> {
    charge_arguments(args, budget)?;
    let made = |quantity: Quantity| V::Quantity(Rc::new(quantity));
    let whole = |value: i64| Quantity::Small { value, exponent: 0 };
    Ok(match (function, args) {
        (Function::Quantity, [V::Str(text)]) => made(Quantity::parse(text)?),
        (Function::IsQuantity, [V::Str(text)]) => V::Bool(Quantity::parse(text).is_ok()),
        (Function::Sign, [V::Quantity(a)]) => V::Int(a.sign()),
        (Function::IsInteger, [V::Quantity(a)]) => V::Bool(a.integer().is_some()),
        (Function::AsInteger, [V::Quantity(a)]) => V::Int(
            a.integer()
                .ok_or(Fault::error("cannot convert value to integer"))?,
        ),
        (Function::AsApproximateFloat, [V::Quantity(a)]) => V::Double(a.approximate()),
        (Function::Add, [V::Quantity(a), V::Quantity(b)]) => made(a.plus(b)?),
        (Function::Add, [V::Quantity(a), V::Int(b)]) => made(a.plus(&whole(*b))?),
        (Function::Sub, [V::Quantity(a), V::Quantity(b)]) => made(a.plus(&b.negated())?),
        (Function::Sub, [V::Quantity(a), V::Int(b)]) => made(a.plus(&whole(*b).negated())?),
        (Function::IsGreaterThan, [V::Quantity(a), V::Quantity(b)]) => V::Bool(a.cmp(b).is_gt()),
        (Function::IsLessThan, [V::Quantity(a), V::Quantity(b)]) => V::Bool(a.cmp(b).is_lt()),
        (Function::CompareTo, [V::Quantity(a), V::Quantity(b)]) => V::Int(match a.cmp(b) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }),
        _ => return Err(no_overload(function, args)),
    })
}
