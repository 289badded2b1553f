//! Parses the format strings of the function `format`. A format string consists of texts and of
//! clauses such as `%s` and `%.2f`. An error does not quote the format string, because the format
//! string can be a value of the object.

use crate::types::Ty;

/// The beginning of an error about a value that cannot be formatted.
pub(crate) const FORMATTING: &str = "error during formatting: ";

/// The middle of an error about a value that cannot be formatted. The type of the value follows.
pub(crate) const GIVEN: &str = ", was given ";

/// A clause such as `%s` or `%.2f`.
#[derive(Clone, Copy)]
pub(crate) enum Clause {
    String,
    Decimal,
    Fixed(Option<usize>),
    Scientific(Option<usize>),
    Binary,
    Hex { upper: bool },
    Octal,
}

/// A part of a format string.
pub(crate) enum FormatPart<'t> {
    Text(&'t str),
    Clause(Clause),
}

/// Iterates over the parts of a format string. The caller must stop at the first error, because the
/// iterator does not skip a wrong clause.
pub(crate) struct FormatParts<'t> {
    rest: &'t str,
    /// Number of values in the list.
    value_count: usize,
    /// Number of clauses so far.
    pub clause_count: usize,
}

impl<'t> FormatParts<'t> {
    pub(crate) fn of(text: &'t str, value_count: usize) -> Self {
        Self {
            rest: text,
            value_count,
            clause_count: 0,
        }
    }

    fn clause(&mut self) -> Result<Clause, &'static str> {
        let index = self.clause_count;
        self.clause_count += 1;
        let spec = self.rest.get(1..).unwrap_or_default();
        if spec.is_empty() {
            return Err("unexpected end of string");
        }
        if index >= self.value_count {
            return Err("the format string has more clauses than the list has values");
        }
        let (precision, spec) = match spec.strip_prefix('.') {
            None => (None, spec),
            Some(digits) => {
                let parsed = parse_precision(digits);
                let (precision, spec) = parsed.ok_or("the precision is not a number")?;
                (Some(precision), spec)
            }
        };
        let clause = match spec.as_bytes().first() {
            Some(b's') => Clause::String,
            Some(b'd') => Clause::Decimal,
            Some(b'f') => Clause::Fixed(precision),
            Some(b'e') => Clause::Scientific(precision),
            Some(b'b') => Clause::Binary,
            Some(b'x') => Clause::Hex { upper: false },
            Some(b'X') => Clause::Hex { upper: true },
            Some(b'o') => Clause::Octal,
            _ => return Err("a clause is not one of %s, %d, %f, %e, %b, %o, %x and %X"),
        };
        self.rest = spec.get(1..).unwrap_or_default();
        Ok(clause)
    }
}

impl<'t> Iterator for FormatParts<'t> {
    type Item = Result<FormatPart<'t>, &'static str>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        if let Some(rest) = self.rest.strip_prefix("%%") {
            self.rest = rest;
            return Some(Ok(FormatPart::Text("%")));
        }
        if self.rest.starts_with('%') {
            return Some(self.clause().map(FormatPart::Clause));
        }
        let end = self.rest.find('%').unwrap_or(self.rest.len());
        let (text, rest) = self.rest.split_at(end);
        self.rest = rest;
        Some(Ok(FormatPart::Text(text)))
    }
}

/// Parses the number at the beginning of `digits`. Returns the number and the rest of the text.
fn parse_precision(digits: &str) -> Option<(usize, &str)> {
    let end = digits.find(|c: char| !c.is_ascii_digit())?;
    let (digits, rest) = digits.split_at(end);
    Some((digits.parse().ok()?, rest))
}

impl Clause {
    /// Returns true if this clause can format a value of the type `ty`. The elements of a list or
    /// map are not checked.
    pub(crate) fn takes(self, ty: &Ty) -> bool {
        ty.is_dynamic()
            || match self {
                Self::String => !ty.is_opaque(),
                Self::Decimal | Self::Octal => matches!(ty, Ty::Int | Ty::Uint),
                Self::Fixed(_) | Self::Scientific(_) => matches!(ty, Ty::Double | Ty::String),
                Self::Binary => matches!(ty, Ty::Int | Ty::Uint | Ty::Bool),
                Self::Hex { .. } => matches!(ty, Ty::Int | Ty::Uint | Ty::String | Ty::Bytes),
            }
    }

    /// Returns cel-go's complete error for a value of the type `found`.
    pub(crate) fn refusal(self, found: &str) -> String {
        [FORMATTING, self.type_error_text(), GIVEN, found].concat()
    }

    /// Returns the part of the error text that says which types the clause can format.
    pub(crate) fn type_error_text(self) -> &'static str {
        match self {
            Self::String => {
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, \
                 lists, types, durations, and timestamps"
            }
            Self::Decimal => "decimal clause can only be used on integers",
            Self::Fixed(_) => "fixed-point clause can only be used on doubles",
            Self::Scientific(_) => "scientific clause can only be used on doubles",
            Self::Binary => "only integers and bools can be formatted as binary",
            Self::Hex { .. } => "only integers, byte buffers, and strings can be formatted as hex",
            Self::Octal => "octal clause can only be used on integers",
        }
    }
}
