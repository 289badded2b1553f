//! The CEL function `format`, which replaces clauses such as `%s` and `%.2f` in a string by the
//! values of a list.
//!
//! The output equals the output of the cel-go version in Kubernetes, with the locale `en_US`. For
//! 1500, `%f` gives `1,500.000000`, and `%e` gives `1.500000×10⁰³`.

use std::fmt::Write;
use std::sync::LazyLock;

use regex::Regex;

use super::conversions::to_string;
use super::format_string::{Clause, FORMATTING, FormatPart, FormatParts, GIVEN};
use crate::budget::{Budget, COPY_BYTES_PER_STEP, charge, charge_copy, steps};
use crate::value::V;
use crate::value::fault::{Fault, Outcome};

/// Maximum number of decimals of `%f`, and maximum width of `%e`. A larger number is an error.
/// cel-go has no such limit, but longer texts are not useful.
const MAX_PRECISION: usize = 255;

/// The error for a precision or width above [`MAX_PRECISION`].
const TOO_PRECISE: &str = "error during formatting: the precision is more than 255";

/// Number of decimals of `%f` without a precision, and of every `%e`.
const DEFAULT_PRECISION: usize = 6;

/// Evaluates `text.format(list)`.
pub(crate) fn format<'e>(text: &str, list: &V<'e>, budget: &mut Budget) -> Outcome<'e> {
    let mut out = Output {
        text: String::new(),
        budget,
    };
    let mut parts = FormatParts::of(text, list.len());
    while let Some(part) = parts.next() {
        match part.map_err(Fault::error)? {
            FormatPart::Text(text) => out.push(text)?,
            FormatPart::Clause(clause) => {
                let value = list
                    .element(parts.clause_count - 1)
                    .ok_or(Fault::error("index out of range"))?;
                out.push_clause(clause, &value)?;
            }
        }
    }
    Ok(V::text(&out.text))
}

/// The formatted text so far, and the budget of evaluation steps.
struct Output<'b> {
    text: String,
    budget: &'b mut Budget,
}

impl Output<'_> {
    /// Appends text and charges the steps for its bytes. The steps are computed from the length of
    /// the whole output, so that many short texts cost as much as one long text.
    fn push<'e>(&mut self, text: &str) -> Result<(), Fault<'e>> {
        let before = steps(self.text.len(), COPY_BYTES_PER_STEP);
        let after = steps(self.text.len() + text.len(), COPY_BYTES_PER_STEP);
        charge(self.budget, after - before)?;
        self.text.push_str(text);
        Ok(())
    }

    /// Formats a value for one clause.
    fn push_clause<'e>(&mut self, clause: Clause, value: &V<'e>) -> Result<(), Fault<'e>> {
        charge(self.budget, 1)?;
        let refused = || {
            let found = value.type_name();
            Fault::words(&[FORMATTING, clause.type_error_text(), GIVEN, found])
        };
        let text = match (clause, value) {
            (Clause::String, V::Quantity(_)) => return Err(refused()),
            (Clause::String, _) => {
                return self.push_string(value).map_err(|fault| match fault {
                    Fault::Error(message) => Fault::Error(message.with_prefix(FORMATTING)),
                    other => other,
                });
            }
            (Clause::Decimal, V::Int(value)) => value.to_string(),
            (Clause::Decimal, V::Uint(value)) => value.to_string(),
            (Clause::Fixed(precision), _) => {
                let number = number_of(value).ok_or_else(refused)?;
                fixed(number, bounded(precision)?)
            }
            (Clause::Scientific(width), _) => {
                let number = number_of(value).ok_or_else(refused)?;
                scientific(number, bounded(width)?)
            }
            (Clause::Binary, V::Bool(value)) => u8::from(*value).to_string(),
            (Clause::Binary, V::Int(value)) => signed(*value, |n| format!("{n:b}")),
            (Clause::Binary, V::Uint(value)) => format!("{value:b}"),
            (Clause::Octal, V::Int(value)) => signed(*value, |n| format!("{n:o}")),
            (Clause::Octal, V::Uint(value)) => format!("{value:o}"),
            (Clause::Hex { upper: false }, V::Int(value)) => signed(*value, |n| format!("{n:x}")),
            (Clause::Hex { upper: true }, V::Int(value)) => signed(*value, |n| format!("{n:X}")),
            (Clause::Hex { upper: false }, V::Uint(value)) => format!("{value:x}"),
            (Clause::Hex { upper: true }, V::Uint(value)) => format!("{value:X}"),
            (Clause::Hex { upper }, V::Str(text)) => return self.push_hex(text.as_bytes(), upper),
            (Clause::Hex { upper }, V::Bytes(bytes)) => return self.push_hex(bytes, upper),
            _ => return Err(refused()),
        };
        self.push(&text)
    }

    fn push_hex<'e>(&mut self, bytes: &[u8], upper: bool) -> Result<(), Fault<'e>> {
        let digits: &[u8; 16] = if upper {
            b"0123456789ABCDEF"
        } else {
            b"0123456789abcdef"
        };
        charge_copy(self.budget, 2 * bytes.len())?;
        for byte in bytes {
            for half in [byte >> 4, byte & 15] {
                self.text.push(char::from(digits[usize::from(half)]));
            }
        }
        Ok(())
    }

    /// Formats a value for `%s`. A string is not quoted.
    fn push_string<'e>(&mut self, value: &V<'e>) -> Result<(), Fault<'e>> {
        if value.is_list() {
            return self.push_list(value);
        }
        if value.is_map() {
            return self.push_map(value);
        }
        match value {
            V::Null => self.push("null"),
            V::Type(name) => self.push(name),
            V::Str(text) => self.push(text),
            // The function `string` can convert these values, but `format` cannot.
            V::Ip(_) | V::Cidr(_) => Err(Fault::no_overload()),
            _ => match to_string(value.clone(), self.budget)? {
                V::Str(text) => self.push(&text),
                _ => Err(Fault::no_overload()),
            },
        }
    }

    /// Formats a value in a list or map. A string is quoted.
    fn push_element<'e>(&mut self, value: &V<'e>) -> Result<(), Fault<'e>> {
        charge(self.budget, 1)?;
        match value {
            V::Str(text) => self.push_quoted(text),
            V::Bytes(_) => {
                self.push("b")?;
                self.quote_string_of(value)
            }
            V::Double(number) if number.is_finite() => self.push(&format!("{number:.6}")),
            V::Double(number) if number.is_nan() => self.push("\"NaN\""),
            V::Double(number) => self.push(if *number > 0.0 {
                "\"+Inf\""
            } else {
                "\"-Inf\""
            }),
            V::Time(_) => {
                self.push("timestamp(")?;
                self.quote_string_of(value)?;
                self.push(")")
            }
            V::Duration(_) => {
                self.push("duration(")?;
                self.quote_string_of(value)?;
                self.push(")")
            }
            V::Quantity(_) => Err(Fault::words(&[
                "no formatting function for ",
                value.type_name(),
            ])),
            _ => self.push_string(value),
        }
    }

    fn quote_string_of<'e>(&mut self, value: &V<'e>) -> Result<(), Fault<'e>> {
        match to_string(value.clone(), self.budget)? {
            V::Str(text) => self.push_quoted(&text),
            _ => Err(Fault::no_overload()),
        }
    }

    fn push_list<'e>(&mut self, list: &V<'e>) -> Result<(), Fault<'e>> {
        self.push("[")?;
        for index in 0..list.len() {
            if index > 0 {
                self.push(", ")?;
            }
            if let Some(element) = list.element(index) {
                self.push_element(&element)?;
            }
        }
        self.push("]")
    }

    /// Formats a map. The entries are sorted by their formatted keys.
    fn push_map<'e>(&mut self, map: &V<'e>) -> Result<(), Fault<'e>> {
        charge(self.budget, steps(map.len(), 1))?;
        let mut entries = Vec::with_capacity(map.len());
        for index in 0..map.len() {
            let Some((key, value)) = map.entry(index) else {
                continue;
            };
            if !matches!(key, V::Str(_) | V::Bool(_) | V::Int(_) | V::Uint(_)) {
                let found = key.type_name();
                let words = ["no formatting function for map key of type ", found];
                return Err(Fault::words(&words));
            }
            let mut printed = Output {
                text: String::new(),
                budget: self.budget,
            };
            printed.push_element(&key)?;
            entries.push((printed.text, value));
        }
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        self.push("{")?;
        for (index, (key, value)) in entries.iter().enumerate() {
            if index > 0 {
                self.push(", ")?;
            }
            self.push(key)?;
            self.push(":")?;
            self.push_element(value)?;
        }
        self.push("}")
    }

    /// Quotes a text with Go's escapes.
    fn push_quoted<'e>(&mut self, text: &str) -> Result<(), Fault<'e>> {
        self.push("\"")?;
        let mut plain = 0;
        for (at, char) in text.char_indices() {
            let mut escape = String::new();
            match char {
                '"' => escape.push_str("\\\""),
                '\\' => escape.push_str("\\\\"),
                '\u{7}' => escape.push_str("\\a"),
                '\u{8}' => escape.push_str("\\b"),
                '\u{c}' => escape.push_str("\\f"),
                '\n' => escape.push_str("\\n"),
                '\r' => escape.push_str("\\r"),
                '\t' => escape.push_str("\\t"),
                '\u{b}' => escape.push_str("\\v"),
                ' '..='~' => continue,
                '\0'..='\u{7f}' => _ = write!(escape, "\\x{:02x}", u32::from(char)),
                _ if is_printable(char) => continue,
                '\0'..='\u{ffff}' => _ = write!(escape, "\\u{:04x}", u32::from(char)),
                _ => _ = write!(escape, "\\U{:08x}", u32::from(char)),
            }
            self.push(&text[plain..at])?;
            self.push(&escape)?;
            plain = at + char.len_utf8();
        }
        self.push(&text[plain..])?;
        self.push("\"")
    }
}

/// Formats the absolute value with `print`, and adds the sign.
fn signed(value: i64, print: impl Fn(u64) -> String) -> String {
    let sign = if value < 0 { "-" } else { "" };
    format!("{sign}{}", print(value.unsigned_abs()))
}

/// Returns the precision of a clause, or [`DEFAULT_PRECISION`] if the clause has none. Returns an
/// error if the precision is too large.
fn bounded<'e>(precision: Option<usize>) -> Result<usize, Fault<'e>> {
    let precision = precision.unwrap_or(DEFAULT_PRECISION);
    if precision > MAX_PRECISION {
        return Err(Fault::error(TOO_PRECISE));
    }
    Ok(precision)
}

/// Returns the number that `%f` or `%e` formats, or None if the clause does not accept the value.
/// Both clauses also accept the names of infinities and NaN as strings, because CEL has no literals
/// for these numbers.
fn number_of(value: &V<'_>) -> Option<f64> {
    match value {
        V::Double(number) => Some(*number),
        V::Str(text) => match &**text {
            "NaN" => Some(f64::NAN),
            "Infinity" => Some(f64::INFINITY),
            "-Infinity" => Some(f64::NEG_INFINITY),
            _ => None,
        },
        _ => None,
    }
}

/// Formats infinities and NaN. Returns None for other numbers.
fn non_finite_text(number: f64) -> Option<&'static str> {
    if number.is_nan() {
        Some("NaN")
    } else if number.is_infinite() {
        Some(if number > 0.0 { "∞" } else { "-∞" })
    } else {
        None
    }
}

/// Formats a number for `%f`, with `,` between thousands.
fn fixed(number: f64, precision: usize) -> String {
    if let Some(name) = non_finite_text(number) {
        return name.to_owned();
    }
    let digits = format!("{:.precision$}", number.abs());
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut out = String::with_capacity(digits.len() * 4 / 3 + 2);
    if number < 0.0 {
        out.push('-');
    }
    for (at, digit) in digits.char_indices() {
        if at > 0 && at < whole && (whole - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number for `%e`, such as `1.234500×10⁰³`. As in cel-go, the number in the clause is
/// the minimum width of the text, and not the number of decimals.
fn scientific(number: f64, width: usize) -> String {
    if let Some(name) = non_finite_text(number) {
        return format!("{name:>width$}");
    }
    // Adding zero removes the sign of a negative zero.
    let printed = format!("{:.DEFAULT_PRECISION$e}", number + 0.0);
    let (mantissa, exponent) = printed.split_once('e').unwrap_or((&printed, "0"));
    let (sign, exponent) = match exponent.strip_prefix('-') {
        Some(exponent) => ("⁻", exponent),
        None => ("", exponent),
    };
    let raised = |digit: char| {
        const SUPERSCRIPTS: [char; 10] = ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'];
        digit
            .to_digit(10)
            .and_then(|digit| SUPERSCRIPTS.get(usize::try_from(digit).ok()?))
            .copied()
            .unwrap_or(digit)
    };
    let exponent: String = format!("{exponent:0>2}").chars().map(raised).collect();
    let text = format!("{mantissa}×10{sign}{exponent}");
    format!("{text:>width$}")
}

/// Returns true if Go quotes the character without an escape sequence. The caller must not pass an
/// ASCII character. Go 1.26 does not escape the letters, marks, numbers, punctuation characters and
/// symbols of Unicode 15.0.
fn is_printable(char: char) -> bool {
    static PRINTABLE: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r"^[\p{L}\p{M}\p{N}\p{P}\p{S}&&\p{age:15.0}]$").expect("the pattern is valid")
    });
    PRINTABLE.is_match(char.encode_utf8(&mut [0; 4]))
}
