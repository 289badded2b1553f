//! Translates regular expressions from the syntax of RE2, which CEL and Go use, to the syntax of
//! the `regex` crate.
//!
//! The parser of the `regex` crate parses the pattern. Most constructs have the same meaning in RE2
//! and in the crate, so their text stays as it is. A construct with another meaning is replaced by
//! one that has RE2's meaning in the crate: `\d` in the crate matches the digits of every script, so
//! it becomes `[0-9]`. A construct that RE2 does not have is refused. The crate also refuses some
//! constructs of RE2, such as `\Q`. The README lists them.

use std::slice;

use regex_syntax::ast::parse::ParserBuilder;
use regex_syntax::ast::{
    Assertion, AssertionKind, Ast, CaptureName, ClassBracketed, ClassPerl, ClassPerlKind, ClassSet,
    ClassSetItem, ClassUnicode, ClassUnicodeKind, Flag, Flags, GroupKind, HexLiteralKind, Literal,
    LiteralKind, Repetition, RepetitionKind, RepetitionRange, Span,
};

/// Maximum repetition count, as in Go. The counts of nested repetitions are multiplied:
/// `(a{10}){20}` has the count 200. A pattern with a count above the maximum is an error.
const MAX_REPEAT: u64 = 1000;

/// Number of characters that a Unicode class such as `\pL` adds to [`Translated::folded_chars`].
/// The text of the class does not show how many characters it has. The `regex` crate needs about as
/// much time for the class as for a range of this number of characters.
const CHARS_OF_UNICODE_CLASS: u64 = 1 << 16;

/// Estimated number of automaton states of a Unicode class. It needs many states, because its
/// characters are encoded in up to four bytes.
const STATES_OF_UNICODE_CLASS: u64 = 64;

/// Number of automaton states that `\B` adds to [`Translated::states`]. It has only a few states,
/// but the `regex` crate searches with a slower method if the text is not ASCII.
const STATES_OF_NOT_WORD_BOUNDARY: u64 = 64;

/// A translated pattern.
pub(super) struct Translated {
    /// The pattern in the syntax of the `regex` crate, with the option `octal`.
    pub text: String,
    /// The estimated number of automaton states. A search with more states costs more steps of the
    /// budget of the evaluation.
    pub states: u64,
    /// The number of characters of all classes, if a part of the pattern ignores case. Otherwise 0.
    /// For each of these characters, the `regex` crate searches the other case. A class with all
    /// characters of Unicode takes about 5 ms.
    pub folded_chars: u64,
}

/// Translates a pattern. For an invalid pattern, returns the reason.
pub(super) fn translate(source: &str) -> Result<Translated, String> {
    let mut translator = Translator {
        source,
        out: String::with_capacity(source.len()),
        translated: 0,
        class_chars: 0,
        ignores_case: false,
    };
    let parsed = ParserBuilder::new().octal(true).build().parse(source);
    let states = match parsed {
        Ok(ast) => translator.visit(&ast, 1)?,
        Err(error) => return Err(translator.refusal(&error.kind().to_string(), error.span())),
    };
    let rest = &source[translator.translated..];
    Ok(Translated {
        text: translator.out + rest,
        states,
        folded_chars: if translator.ignores_case {
            translator.class_chars
        } else {
            0
        },
    })
}

/// The state of a translation.
struct Translator<'p> {
    source: &'p str,
    /// The translated text.
    out: String,
    /// Number of bytes of `source` whose translation is in `out`.
    translated: usize,
    /// The number of characters of all classes so far.
    class_chars: u64,
    /// True if the pattern contains the flag `i`.
    ignores_case: bool,
}

impl<'p> Translator<'p> {
    fn text(&self, span: &Span) -> &'p str {
        &self.source[span.start.offset..span.end.offset]
    }

    /// Returns the error for a part of the pattern. If the part is empty, the error quotes the rest of
    /// the pattern.
    fn refusal(&self, reason: &str, span: &Span) -> String {
        let part = match self.text(span) {
            "" => &self.source[span.start.offset..],
            part => part,
        };
        format!("{reason}: `{part}`")
    }

    /// Replaces the text at `span` by `text`, and copies the text before it.
    fn replace(&mut self, span: &Span, text: &str) {
        let copied = &self.source[self.translated..span.start.offset];
        self.out.push_str(copied);
        self.out.push_str(text);
        self.translated = span.end.offset;
    }

    /// Translates a part of the pattern. Returns its estimated number of automaton states.
    /// `repeats` is the product of the counts of the repetitions around the part.
    fn visit(&mut self, ast: &Ast, repeats: u64) -> Result<u64, String> {
        match ast {
            Ast::Empty(_) => Ok(0),
            Ast::Dot(_) => Ok(1),
            Ast::Flags(set) => self.flags(&set.flags).map(|()| 0),
            Ast::Literal(literal) => self.literal(literal).map(|()| 1),
            Ast::Assertion(assertion) => self.assertion(assertion),
            Ast::ClassPerl(class) => Ok(self.perl_class(class)),
            Ast::ClassUnicode(class) => self.unicode_class(class),
            Ast::ClassBracketed(class) => self.class(class),
            Ast::Repetition(repetition) => self.repetition(repetition, repeats),
            Ast::Group(group) => {
                match &group.kind {
                    GroupKind::NonCapturing(flags) => self.flags(flags)?,
                    // No CEL function reads the text of a group. In the crate, each group that
                    // captures its text needs memory in each state.
                    kind => {
                        if let GroupKind::CaptureName { name, .. } = kind {
                            self.group_name(name)?;
                        }
                        let opening = Span::new(group.span.start, group.ast.span().start);
                        self.replace(&opening, "(?:");
                    }
                }
                self.visit(&group.ast, repeats)
            }
            Ast::Alternation(alternation) => self.visit_all(&alternation.asts, repeats),
            Ast::Concat(concat) => self.visit_all(&concat.asts, repeats),
        }
    }

    fn visit_all(&mut self, asts: &[Ast], repeats: u64) -> Result<u64, String> {
        let mut states: u64 = 0;
        for ast in asts {
            states = states.saturating_add(self.visit(ast, repeats)?);
        }
        Ok(states)
    }

    fn group_name(&self, name: &CaptureName) -> Result<(), String> {
        let is_valid = |char: char| char.is_ascii_alphanumeric() || char == '_';
        if name.name.chars().all(is_valid) {
            return Ok(());
        }
        Err(self.refusal("invalid group name", &name.span))
    }

    fn flags(&mut self, flags: &Flags) -> Result<(), String> {
        let foreign = [Flag::Unicode, Flag::CRLF, Flag::IgnoreWhitespace];
        if foreign
            .into_iter()
            .any(|flag| flags.flag_state(flag).is_some())
        {
            return Err(self.refusal("unsupported flag", &flags.span));
        }
        self.ignores_case |= flags.flag_state(Flag::CaseInsensitive) == Some(true);
        Ok(())
    }

    fn literal(&self, literal: &Literal) -> Result<(), String> {
        let is_foreign = match &literal.kind {
            // A single digit from 1 to 7 is a backreference, which RE2 does not support.
            LiteralKind::Octal => matches!(self.text(&literal.span).as_bytes(), [_, b'1'..=b'7']),
            LiteralKind::HexFixed(kind) | LiteralKind::HexBrace(kind) => *kind != HexLiteralKind::X,
            _ => false,
        };
        if is_foreign {
            return Err(self.refusal("invalid escape sequence", &literal.span));
        }
        Ok(())
    }

    fn assertion(&mut self, assertion: &Assertion) -> Result<u64, String> {
        let text = match assertion.kind {
            AssertionKind::StartLine
            | AssertionKind::EndLine
            | AssertionKind::StartText
            | AssertionKind::EndText => return Ok(1),
            AssertionKind::WordBoundary => r"(?-u:\b)",
            // The part `(?-u:\B)` is RE2's `\B`, but it also matches between two bytes of one
            // character. The part `(?:\b|\B)` excludes these places, because it matches only
            // between characters.
            AssertionKind::NotWordBoundary => r"(?:(?-u:\B)(?:\b|\B))",
            // In RE2, these two are escaped characters.
            AssertionKind::WordBoundaryStartAngle => "<",
            AssertionKind::WordBoundaryEndAngle => ">",
            AssertionKind::WordBoundaryStart
            | AssertionKind::WordBoundaryEnd
            | AssertionKind::WordBoundaryStartHalf
            | AssertionKind::WordBoundaryEndHalf => {
                return Err(self.refusal("unsupported word boundary", &assertion.span));
            }
        };
        self.replace(&assertion.span, text);
        Ok(match assertion.kind {
            AssertionKind::NotWordBoundary => STATES_OF_NOT_WORD_BOUNDARY,
            _ => 1,
        })
    }

    /// Translates a class such as `\d`. The replacement has the same meaning inside of brackets.
    fn perl_class(&mut self, class: &ClassPerl) -> u64 {
        let text = match (&class.kind, class.negated) {
            (ClassPerlKind::Digit, false) => "[0-9]",
            (ClassPerlKind::Digit, true) => "[^0-9]",
            (ClassPerlKind::Space, false) => r"[\t\n\f\r ]",
            (ClassPerlKind::Space, true) => r"[^\t\n\f\r ]",
            (ClassPerlKind::Word, false) => "[0-9A-Za-z_]",
            (ClassPerlKind::Word, true) => "[^0-9A-Za-z_]",
        };
        self.count_chars(class.negated);
        self.replace(&class.span, text);
        1
    }

    /// Counts the characters of a class of ASCII characters, such as `\d` or `[:alpha:]`, or of its
    /// negation.
    fn count_chars(&mut self, negated: bool) {
        self.class_chars += if negated { u64::from(char::MAX) } else { 128 };
    }

    fn unicode_class(&mut self, class: &ClassUnicode) -> Result<u64, String> {
        match &class.kind {
            ClassUnicodeKind::OneLetter(_) => {}
            // RE2 negates a class whose name begins with `^`.
            ClassUnicodeKind::Named(name) => {
                if let Some(name) = name.strip_prefix('^') {
                    let letter = if class.negated { 'p' } else { 'P' };
                    self.replace(&class.span, &format!(r"\{letter}{{{name}}}"));
                }
            }
            ClassUnicodeKind::NamedValue { .. } => {
                return Err(self.refusal("invalid Unicode class", &class.span));
            }
        }
        self.class_chars += CHARS_OF_UNICODE_CLASS;
        Ok(STATES_OF_UNICODE_CLASS)
    }

    /// Translates a class in brackets, such as `[a-z]`.
    fn class(&mut self, class: &ClassBracketed) -> Result<u64, String> {
        let ClassSet::Item(item) = &class.kind else {
            let reason = r"`&&`, `--` and `~~` need a `\` in a class";
            return Err(self.refusal(reason, &class.span));
        };
        let inner = self.text(&class.span).trim_start_matches(['[', '^']);
        // RE2 reads `[--a]` and `[]-a]` as a range that begins with the first character. The crate
        // does not.
        if inner.starts_with("--") || inner.starts_with("]-") {
            return Err(self.refusal(r"the first character needs a `\`", &class.span));
        }
        let items = match item {
            ClassSetItem::Union(union) => &union.items,
            item => slice::from_ref(item),
        };
        let mut states = 1;
        for item in items {
            states = states.max(self.class_item(item)?);
        }
        Ok(states)
    }

    fn class_item(&mut self, item: &ClassSetItem) -> Result<u64, String> {
        match item {
            ClassSetItem::Empty(_) => {}
            ClassSetItem::Ascii(class) => self.count_chars(class.negated),
            ClassSetItem::Literal(literal) => self.literal(literal)?,
            ClassSetItem::Range(range) => {
                self.literal(&range.start)?;
                self.literal(&range.end)?;
                self.class_chars += u64::from(range.end.c) - u64::from(range.start.c);
            }
            ClassSetItem::Unicode(class) => return self.unicode_class(class),
            ClassSetItem::Perl(class) => return Ok(self.perl_class(class)),
            ClassSetItem::Bracketed(_) | ClassSetItem::Union(_) => {
                return Err(self.refusal(r"`[` needs a `\` in a class", item.span()));
            }
        }
        Ok(1)
    }

    fn repetition(&mut self, repetition: &Repetition, repeats: u64) -> Result<u64, String> {
        let refused = |reason| Err(self.refusal(reason, &repetition.op.span));
        if let Ast::Repetition(_) = *repetition.ast {
            return refused("invalid nested repetition operator");
        }
        let mut times = 1;
        if let RepetitionKind::Range(range) = &repetition.op.kind {
            let (count, text) = match range {
                RepetitionRange::Exactly(count) => (count, format!("{{{count}}}")),
                RepetitionRange::AtLeast(count) => (count, format!("{{{count},}}")),
                RepetitionRange::Bounded(low, high) => (high, format!("{{{low},{high}}}")),
            };
            // In RE2, `{` is a literal character if no valid count follows, as in `{ 2}` or `{02}`.
            // The crate reads these texts as counts, so they are refused.
            if text != self.text(&repetition.op.span).trim_end_matches('?') {
                return refused(r"`{` needs a `\`");
            }
            times = u64::from(*count).max(1);
        }
        let repeats = repeats.saturating_mul(times);
        if repeats > MAX_REPEAT {
            return refused("invalid repeat count");
        }
        let states = self.visit(&repetition.ast, repeats)?;
        Ok(states.saturating_mul(times))
    }
}
