//! Quantities such as `1536Mi` and `250m`, with Kubernetes' parsing, arithmetic and comparison.
//!
//! A quantity is stored as an integer with up to 38 digits and a power of ten. A quantity with more
//! digits is an error, and so is a sum with more digits. Kubernetes' quantities have no such limit.
//! A quantity with more than nine decimal places is rounded away from zero to nine places.

use std::cmp::Ordering;
use std::fmt;
use std::sync::LazyLock;

use regex::Regex;

/// Largest number of decimal digits that always fit `i64`.
const I64_DIGITS: i64 = 18;

/// Exponent of the smallest fraction of a quantity, 10^-9. A quantity with smaller fractions is
/// rounded away from zero.
const NANO: i64 = -9;

/// Maximum number of zeros that [`Quantity`] writes after or before the digits. With more zeros, the
/// number is written with an exponent.
const MAX_ZEROS: usize = 1024;

/// The number `value` times 10^`exponent`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantity {
    value: i128,
    exponent: i64,
    /// True if Kubernetes stores the number as a decimal, because 64 bits are not enough for it or
    /// for one of its summands. `isInteger` is then false.
    is_decimal: bool,
}

const NO_QUANTITY: &str = "the text is not a quantity such as 1.5Gi";
/// The error for a number with too many digits. Kubernetes does not have this error.
const TOO_LARGE: &str = "quantity has more than 38 digits";

/// The sign, the digits before the point without leading zeros, the digits after the point, and the
/// suffix.
static PARTS: LazyLock<Regex> = LazyLock::new(|| {
    let pattern = r"^([+-]?)0*([0-9]*)(\.[0-9]*)?([eEinumkKMGTP]*[-+]?[0-9]*)\z";
    Regex::new(pattern).expect("the pattern is valid")
});

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

fn checked_power(exponent: i64) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(exponent).ok()?)
}

impl Quantity {
    pub(crate) fn integer(value: i64) -> Self {
        Self::small(value, 0)
    }

    fn small(value: i64, exponent: i64) -> Self {
        Self {
            value: value.into(),
            exponent,
            is_decimal: false,
        }
    }

    /// # Errors
    /// `text` is not a quantity. The error does not quote the text.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let parts = PARTS.captures(text).filter(|_| !text.is_empty());
        let parts = parts.ok_or(NO_QUANTITY)?;
        let part = |at| parts.get(at).map_or("", |part| part.as_str());
        let (negative, whole, suffix) = (part(1) == "-", part(2), part(4));
        let fraction = part(3).trim_start_matches('.');
        let unit = parse_unit(suffix).ok_or(NO_QUANTITY)?;
        // As in Kubernetes, the part before the point counts as at least one digit.
        let len = length(whole).max(1) + length(fraction);
        let (fits, exponent, factor) = match unit {
            Unit::Ten(exponent) => (len <= I64_DIGITS, exponent - length(fraction), 1),
            Unit::Two(shift) => {
                // As in Kubernetes, a suffix counts as digits. `Mi` (2^20) counts as 6 digits.
                let room = 14 - len - i64::from(shift) * 3 / 10;
                let fits = fraction.is_empty() && room >= 0;
                (fits, -length(fraction), 1_i64 << shift)
            }
        };
        // Because of the leading zero, the value of a text without digits, such as `.`, is 0.
        let value: i128 = format!("0{whole}{fraction}")
            .parse()
            .map_err(|_| TOO_LARGE)?;
        let value = value.saturating_mul(factor.into());
        let value = if negative { -value } else { value };
        if fits
            && exponent >= NANO
            && let Ok(value) = i64::try_from(value)
        {
            return Ok(Self::small(value, exponent));
        }
        // As in Kubernetes, a text without digits, such as `.`, is accepted only if the number fits
        // 64 bits. In this case, it was returned above.
        let end = text.len() - suffix.len();
        if !text[..end].bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(NO_QUANTITY);
        }
        let mut decimal = Self {
            value,
            exponent,
            is_decimal: true,
        };
        let largest = Self::integer(i64::MAX);
        if matches!(unit, Unit::Two(_)) && decimal.cmp_magnitude(&largest).is_gt() {
            decimal.value = largest.value * decimal.value.signum();
            decimal.exponent = 0;
            return Ok(decimal);
        }
        decimal.round();
        Ok(decimal)
    }

    /// Rounds the number away from zero to a multiple of 10^-9. As in Kubernetes, the exponent is
    /// -9 afterwards. The number zero is not changed.
    fn round(&mut self) {
        if self.value == 0 {
            return;
        }
        if self.exponent >= NANO {
            // If the number is too large for the exponent -9, it keeps its exponent.
            let Ok(value) = self.value_at(NANO) else {
                return;
            };
            self.value = value;
        } else {
            let sign = self.value.signum();
            self.value = match checked_power(NANO - self.exponent) {
                Some(unit) if self.value % unit == 0 => self.value / unit,
                Some(unit) => self.value / unit + sign,
                None => sign,
            };
        }
        self.exponent = NANO;
    }

    /// Returns the `value` that represents the same number with the smaller exponent `exponent`.
    fn value_at(&self, exponent: i64) -> Result<i128, &'static str> {
        if self.value == 0 {
            return Ok(0);
        }
        checked_power(self.exponent - exponent)
            .and_then(|power| self.value.checked_mul(power))
            .ok_or(TOO_LARGE)
    }

    /// Compares the absolute values.
    fn cmp_magnitude(&self, other: &Self) -> Ordering {
        // The exponent of the smallest power of ten that is larger than the number.
        let top = |number: &Self| {
            let digits = number.value.unsigned_abs().checked_ilog10();
            digits.map_or(i64::MIN, |digits| number.exponent + i64::from(digits) + 1)
        };
        let least = self.exponent.min(other.exponent);
        let value = |number: &Self| {
            let value = number.value_at(least);
            // These values are compared only if both numbers have the same `top`. Then at most one
            // of them does not fit, and this number is the larger one.
            value.map_or(u128::MAX, i128::unsigned_abs)
        };
        top(self)
            .cmp(&top(other))
            .then_with(|| value(self).cmp(&value(other)))
    }

    pub(crate) fn cmp(&self, other: &Self) -> Ordering {
        self.sign().cmp(&other.sign()).then_with(|| {
            let order = self.cmp_magnitude(other);
            if self.value < 0 {
                order.reverse()
            } else {
                order
            }
        })
    }

    pub(crate) fn as_integer(&self) -> Option<i64> {
        if self.is_decimal {
            return None;
        }
        if self.value == 0 && self.exponent >= 0 {
            return Some(0);
        }
        let value = self.value.checked_mul(checked_power(self.exponent)?)?;
        i64::try_from(value).ok()
    }

    pub(crate) fn sign(&self) -> i64 {
        match self.value.cmp(&0) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }

    /// Returns the double that is nearest to the value.
    pub(crate) fn approximate(&self) -> f64 {
        let text = format!("{}e{}", self.value, self.exponent);
        text.parse().expect("the text is a number")
    }

    pub(crate) fn negated(&self) -> Self {
        Self {
            value: -self.value,
            exponent: self.exponent,
            is_decimal: self.is_decimal || self.value == i64::MIN.into(),
        }
    }

    pub(crate) fn plus(&self, other: &Self) -> Result<Self, &'static str> {
        let is_decimal = self.is_decimal || other.is_decimal;
        if !is_decimal {
            if other.value == 0 {
                return Ok(*self);
            }
            if self.value == 0 {
                return Ok(*other);
            }
        }
        let exponent = self.exponent.min(other.exponent);
        let (a, b) = (self.value_at(exponent)?, other.value_at(exponent)?);
        let value = a.checked_add(b).ok_or(TOO_LARGE)?;
        let fits = [a, b, value].iter().all(|it| i64::try_from(*it).is_ok());
        Ok(Self {
            value,
            exponent,
            is_decimal: is_decimal || !fits,
        })
    }
}

/// Formats the number without an exponent, such as `1500`. If this form needs more than [`MAX_ZEROS`]
/// trailing zeros or decimal places, formats the number with an exponent.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value == 0 {
            return f.write_str("0");
        }
        if self.value < 0 {
            f.write_str("-")?;
        }
        let mut text = self.value.unsigned_abs().to_string();
        if let Ok(zeros) = usize::try_from(self.exponent)
            && zeros <= MAX_ZEROS
        {
            text.push_str(&"0".repeat(zeros));
            return f.write_str(&text);
        }
        match usize::try_from(-self.exponent) {
            Ok(places @ 1..=MAX_ZEROS) => {
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
            _ => write!(f, "{text}e{}", self.exponent),
        }
    }
}
