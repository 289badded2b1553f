//! Decimal numbers with at most 1,024 digits, for quantities that do not fit 64 bits. Sums and
//! comparisons are exact.

use std::cmp::Ordering;

/// Maximum number of digits of a quantity. A quantity with more digits is an error. The largest
/// quantity that Kubernetes supports has 19 digits.
pub(super) const MAX_DIGITS: usize = 1024;

/// Exponent of the smallest fraction of a quantity, 10^-9. A quantity with smaller fractions is
/// rounded away from zero.
pub(super) const NANO: i64 = -9;

/// The error for a number with more than [`MAX_DIGITS`] digits.
pub(super) struct TooLarge;

/// The number `digits` times 10^`exponent`.
#[derive(Clone, Debug)]
pub(super) struct Decimal {
    pub negative: bool,
    /// Digits from 0 to 9, the most significant digit first, without leading zeros. The number zero
    /// has no digits.
    pub digits: Vec<u8>,
    pub exponent: i64,
}

/// Converts the text before and after the point to digits without leading zeros.
pub(super) fn parse_digits(whole: &str, fraction: &str) -> Vec<u8> {
    whole
        .bytes()
        .chain(fraction.bytes())
        .map(|digit| digit - b'0')
        .skip_while(|digit| *digit == 0)
        .collect()
}

impl Decimal {
    pub(super) fn of(value: i64, exponent: i64) -> Self {
        let printed = value.unsigned_abs().to_string();
        Self {
            negative: value < 0,
            digits: parse_digits(&printed, ""),
            exponent,
        }
    }

    /// Returns the exponent of the smallest power of ten that is larger than the absolute value: 3
    /// for the number 250. The number must not be zero.
    fn top(&self) -> i64 {
        self.exponent
            .saturating_add(i64::try_from(self.digits.len()).unwrap_or(i64::MAX))
    }

    /// Multiplies the number by 2^`shift`. `shift` is at most 60.
    pub(super) fn shift(&mut self, shift: u32) {
        let mut carry: u128 = 0;
        for digit in self.digits.iter_mut().rev() {
            let product = (u128::from(*digit) << shift) + carry;
            *digit = u8::try_from(product % 10).unwrap_or_default();
            carry = product / 10;
        }
        let printed = carry.to_string();
        let head = parse_digits(&printed, "");
        self.digits.splice(0..0, head);
    }

    /// Rounds the number away from zero to a multiple of 10^-9. As in Kubernetes, the exponent is
    /// -9 afterwards. The number zero is not changed. Returns an error if the number with this
    /// exponent has more than [`MAX_DIGITS`] digits.
    pub(super) fn round(&mut self) -> Result<(), TooLarge> {
        if self.digits.is_empty() {
            return Ok(());
        }
        if self.exponent >= NANO {
            return self.rescale(NANO);
        }
        let dropped = usize::try_from(NANO - self.exponent).unwrap_or(usize::MAX);
        let kept = self.digits.len().saturating_sub(dropped);
        let inexact = self.digits.len() < dropped || self.digits[kept..].iter().any(|d| *d != 0);
        self.digits.truncate(kept);
        self.exponent = NANO;
        if inexact {
            for digit in self.digits.iter_mut().rev() {
                if *digit < 9 {
                    *digit += 1;
                    return Ok(());
                }
                *digit = 0;
            }
            self.digits.insert(0, 1);
        }
        Ok(())
    }

    /// Sets a smaller exponent, and appends zeros so that the number stays the same. Returns an
    /// error if the number then has more than [`MAX_DIGITS`] digits.
    fn rescale(&mut self, exponent: i64) -> Result<(), TooLarge> {
        let zeros = usize::try_from(self.exponent - exponent).unwrap_or_default();
        if !self.digits.is_empty() {
            if self.digits.len().saturating_add(zeros) > MAX_DIGITS {
                return Err(TooLarge);
            }
            self.digits.resize(self.digits.len() + zeros, 0);
        }
        self.exponent = exponent;
        Ok(())
    }

    /// Compares the absolute values.
    pub(super) fn magnitude_cmp(&self, other: &Self) -> Ordering {
        match (self.digits.is_empty(), other.digits.is_empty()) {
            (true, true) => return Ordering::Equal,
            (true, false) => return Ordering::Less,
            (false, true) => return Ordering::Greater,
            (false, false) => {}
        }
        // If the first digits of both numbers have the same power of ten, the numbers are compared
        // digit by digit. Zeros are added to the shorter number.
        let len = self.digits.len().max(other.digits.len());
        let padded = |number: &Self| {
            let zeros = std::iter::repeat_n(0, len - number.digits.len());
            number.digits.clone().into_iter().chain(zeros)
        };
        self.top()
            .cmp(&other.top())
            .then_with(|| padded(self).cmp(padded(other)))
    }

    pub(super) fn is_negative(&self) -> bool {
        self.negative && !self.digits.is_empty()
    }

    pub(super) fn cmp(&self, other: &Self) -> Ordering {
        match (self.is_negative(), other.is_negative()) {
            (false, false) => self.magnitude_cmp(other),
            (true, true) => other.magnitude_cmp(self),
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
        }
    }

    /// Returns the sum. Returns an error if the sum, or one of the numbers with the exponent of the
    /// sum, has more than [`MAX_DIGITS`] digits.
    pub(super) fn plus(&self, other: &Self) -> Result<Self, TooLarge> {
        let exponent = self.exponent.min(other.exponent);
        let (mut a, mut b) = (self.clone(), other.clone());
        a.rescale(exponent)?;
        b.rescale(exponent)?;
        if a.magnitude_cmp(&b).is_lt() {
            std::mem::swap(&mut a, &mut b);
        }
        // The number with the larger absolute value determines the sign.
        let subtract = a.negative != b.negative;
        let mut carry = 0;
        let smaller = b.digits.iter().rev().chain(std::iter::repeat(&0));
        for (digit, other) in a.digits.iter_mut().rev().zip(smaller) {
            let sum = if subtract {
                10 + *digit - other - carry
            } else {
                *digit + other + carry
            };
            *digit = sum % 10;
            carry = if subtract {
                u8::from(sum < 10)
            } else {
                sum / 10
            };
        }
        if carry > 0 {
            if a.digits.len() >= MAX_DIGITS {
                return Err(TooLarge);
            }
            a.digits.insert(0, carry);
        }
        let zeros = a.digits.iter().take_while(|digit| **digit == 0).count();
        a.digits.drain(..zeros);
        Ok(a)
    }

    /// Returns the double that is nearest to `digits`, with the sign. `exponent` is ignored: the
    /// result for the number 2.5 (the digits 25 with the exponent -1) is 25.0.
    pub(super) fn mantissa(&self) -> f64 {
        let text: String = self.digits.iter().map(|d| char::from(b'0' + d)).collect();
        let value: f64 = text.parse().unwrap_or_default();
        if self.is_negative() { -value } else { value }
    }
}
