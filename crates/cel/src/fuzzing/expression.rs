//! An expression with gaps for its parts, so that a part can be replaced by a smaller expression.

use std::fmt;

/// A generator of pseudo-random numbers. The same seed always yields the same numbers.
pub struct Random(u64);

impl Random {
    /// Returns the generator for `seed`.
    pub fn new(seed: u64) -> Self {
        // Seeds such as 1 and 2 differ in two bits only. The multiplication spreads these bits. The
        // operand `| 1` prevents the state 0, in which the generator would return only 0.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number from 0 to `bound - 1`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        // The upper bits are more random than the lower bits.
        usize::try_from((self.0 >> 11) % bound.max(1) as u64).unwrap_or_default()
    }

    pub(super) fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(super) fn pick<'p, T>(&mut self, list: &'p [T]) -> &'p T {
        &list[self.below(list.len())]
    }
}

/// An expression as text, with its sub-expressions.
#[derive(Clone, Debug)]
pub struct Expression(pub(super) Vec<ExpressionPart>);

#[derive(Clone, Debug)]
pub(super) enum ExpressionPart {
    Text(String),
    Child(Expression),
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for part in &self.0 {
            match part {
                ExpressionPart::Text(text) => f.write_str(text)?,
                ExpressionPart::Child(child) => child.fmt(f)?,
            }
        }
        Ok(())
    }
}

/// The literals with which [`Expression::smaller`] replaces sub-expressions.
const SMALLEST: [&str; 8] = ["null", "true", "0", "1", "''", "'a'", "[]", "{}"];

impl Expression {
    /// Returns an expression without sub-expressions.
    pub fn text(text: impl Into<String>) -> Self {
        Self(vec![ExpressionPart::Text(text.into())])
    }

    /// Replaces each `$` of `template` with the next of `children`.
    pub(super) fn filled(template: &str, children: Vec<Expression>) -> Self {
        let mut texts = template.split('$');
        let mut parts = Vec::new();
        parts.extend(
            texts
                .next()
                .map(|text| ExpressionPart::Text(text.to_owned())),
        );
        for (text, child) in texts.zip(children) {
            parts.extend([
                ExpressionPart::Child(child),
                ExpressionPart::Text(text.to_owned()),
            ]);
        }
        Self(parts)
    }

    /// Returns smaller expressions. Each of them results from one change of this expression or of
    /// one of its sub-expressions:
    ///
    /// - A part of the expression replaces the expression: `a + b` becomes `a`.
    /// - A short literal replaces the expression: `a + b` becomes `0`.
    /// - An argument is left out: `f(a, b)` becomes `f(a)`.
    ///
    /// Some of the returned expressions are not valid.
    pub fn smaller(&self) -> Vec<Expression> {
        let mut all: Vec<_> = self.children().cloned().collect();
        let own = self.to_string();
        all.extend(
            (SMALLEST.iter().filter(|text| text.len() < own.len())).map(|text| Self::text(*text)),
        );
        for (at, part) in self.0.iter().enumerate() {
            match part {
                ExpressionPart::Child(child) => {
                    for other in child.smaller() {
                        let mut parts = self.0.clone();
                        parts[at] = ExpressionPart::Child(other);
                        all.push(Self(parts));
                    }
                }
                // This change drops a comma and the argument after the comma.
                ExpressionPart::Text(text) if text == ", " && at + 1 < self.0.len() => {
                    let mut parts = self.0.clone();
                    parts.drain(at..at + 2);
                    all.push(Self(parts));
                }
                ExpressionPart::Text(_) => {}
            }
        }
        all
    }

    pub(super) fn children(&self) -> impl Iterator<Item = &Expression> {
        self.0.iter().filter_map(|part| match part {
            ExpressionPart::Child(child) => Some(child),
            ExpressionPart::Text(_) => None,
        })
    }

    /// Returns the template that inserts this expression where a dot or an index follows, as in
    /// `$.size()` or `$[0]`. The template is `$` or `($)`. An expression that begins with a digit,
    /// `-` or `!` needs the parentheses: `-1` becomes `(-1)`.
    pub(super) fn before_dot(&self) -> &'static str {
        let is_simple = |char: char| !char.is_ascii_digit() && !"-!".contains(char);
        if self.to_string().starts_with(is_simple) {
            "$"
        } else {
            "($)"
        }
    }
}

/// Returns the call of a function or operator.
pub(super) fn call_expression(name: &str, member: bool, args: Vec<Expression>) -> Expression {
    let base = args.first().map_or("$", Expression::before_dot);
    let marks = |count: usize| vec!["$"; count].join(", ");
    let template = match name {
        "_?_:_" => "($ ? $ : $)".to_owned(),
        "_[_]" => format!("{base}[$]"),
        "_[?_]" => format!("{base}[?$]"),
        "@in" => "($ in $)".to_owned(),
        "!_" => "!($)".to_owned(),
        "-_" => "-($)".to_owned(),
        _ if name.starts_with('_') => format!("($ {} $)", name.trim_matches('_')),
        _ if member => format!("{base}.{name}({})", marks(args.len() - 1)),
        _ => format!("{name}({})", marks(args.len())),
    };
    Expression::filled(&template, args)
}
