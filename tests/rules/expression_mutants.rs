//! Creates mutants of a CEL expression. A mutant is the expression with one small change: for
//! example, `==` becomes `!=`. For each mutant, at least one fixture must fail.
//!
//! [`mutants`] splits the expression into tokens, and does not build a syntax tree. It finds the
//! beginning and the end of an operand by the brackets and the precedence of operators.

/// A changed expression.
pub struct Mutant {
    pub text: String,
    /// Description of the change, such as `"==" becomes "!="`.
    pub change: String,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A string literal, with its quotes.
    StringLiteral,
    Number,
    /// An identifier or a keyword, such as `has` or `true`.
    Word,
    /// Any other token, such as an operator, a bracket or a dot.
    Symbol,
}

struct Token<'s> {
    kind: Kind,
    text: &'s str,
    start: usize,
    /// Number of brackets that are open at the token. A bracket counts itself, too. For example,
    /// the tokens of `a && (b)` have the depths 0, 0, 1, 1, 1.
    depth: usize,
}

impl Token<'_> {
    fn end(&self) -> usize {
        self.start + self.text.len()
    }
}

/// The operators of two characters. All other operators have one character.
const TWO_CHARACTER_OPERATORS: [&str; 6] = ["&&", "||", "==", "!=", "<=", ">="];

fn tokens(source: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut at, mut depth) = (0, 0_usize);
    while let Some(first) = source[at..].chars().next() {
        let rest = &source[at..];
        let while_of =
            |inside: fn(char) -> bool| rest.find(|c: char| !inside(c)).unwrap_or(rest.len());
        let (kind, length) = match first {
            '\'' | '"' => {
                let close = rest[1..].find(first).expect("the string literal is closed");
                (Kind::StringLiteral, close + 2)
            }
            '0'..='9' => (Kind::Number, while_of(|c| c.is_ascii_digit() || c == '.')),
            'a'..='z' | 'A'..='Z' | '_' => (
                Kind::Word,
                while_of(|c| c.is_ascii_alphanumeric() || c == '_'),
            ),
            ' ' | '\n' => {
                at += 1;
                continue;
            }
            _ if TWO_CHARACTER_OPERATORS
                .iter()
                .any(|pair| rest.starts_with(pair)) =>
            {
                (Kind::Symbol, 2)
            }
            _ => (Kind::Symbol, first.len_utf8()),
        };
        let text = &rest[..length];
        if matches!(text, "(" | "[" | "{") {
            depth += 1;
        }
        tokens.push(Token {
            kind,
            text,
            start: at,
            depth,
        });
        if matches!(text, ")" | "]" | "}") {
            depth -= 1;
        }
        at += length;
    }
    tokens
}

/// Returns all mutants of the expression `source`.
pub fn mutants(source: &str) -> Vec<Mutant> {
    let tokens = tokens(source);
    let mut all = Vec::new();
    let mut change = |start: usize, end: usize, by: &str| {
        let text = format!("{}{by}{}", &source[..start], &source[end..]);
        let what = format!("{:?} becomes {by:?}", &source[start..end]);
        all.push(Mutant { text, change: what });
    };
    for (index, token) in tokens.iter().enumerate() {
        match (token.kind, token.text) {
            (Kind::StringLiteral, text) => {
                let quote = &text[..1];
                let by = format!("{}~{quote}", &text[..text.len() - 1]);
                change(token.start, token.end(), &by);
            }
            (Kind::Number, text) => {
                if let Ok(number) = text.parse::<u64>() {
                    change(token.start, token.end(), &(number + 1).to_string());
                }
            }
            (Kind::Word, "true") => change(token.start, token.end(), "false"),
            (Kind::Word, "false") => change(token.start, token.end(), "true"),
            (Kind::Word, "exists") => change(token.start, token.end(), "all"),
            (Kind::Word, "all") => change(token.start, token.end(), "exists"),
            (Kind::Word, "has") => {
                let close = end_of_brackets(&tokens, index + 1);
                change(token.start, close, "true");
                change(token.start, close, "false");
            }
            (Kind::Symbol, "!") => change(token.start, token.end(), ""),
            (Kind::Symbol, symbol @ ("==" | "!=" | "<" | "<=" | ">" | ">=")) => {
                change(token.start, token.end(), opposite(symbol));
            }
            (Kind::Symbol, symbol @ ("+" | "-" | "*" | "/")) => {
                change(token.start, token.end(), inverse(symbol));
            }
            (Kind::Symbol, symbol @ ("&&" | "||")) => {
                let neutral = if symbol == "&&" { "true" } else { "false" };
                let (start, end) = operands(&tokens, index, symbol);
                // In a chain such as `a && b && c`, the first operator gives a mutant for `a` and a
                // mutant for `b`. The second operator gives only a mutant for `c`: its left operand
                // is `a && b`, which already has mutants.
                let left_operand = tokens[..index]
                    .iter()
                    .rev()
                    .take_while(|t| t.start >= start);
                let mut left_operand = left_operand.filter(|t| t.depth == token.depth);
                if !left_operand.any(|t| t.text == symbol) {
                    change(start, tokens[index - 1].end(), neutral);
                }
                change(tokens[index + 1].start, end, neutral);
            }
            (Kind::Symbol, "?") => {
                let (start, _) = operands(&tokens, index, "?");
                change(start, tokens[index - 1].end(), "true");
                change(start, tokens[index - 1].end(), "false");
            }
            _ => {}
        }
    }
    all
}

fn opposite(symbol: &str) -> &'static str {
    match symbol {
        "==" => "!=",
        "!=" => "==",
        "<" => ">=",
        "<=" => ">",
        ">" => "<=",
        _ => "<",
    }
}

fn inverse(symbol: &str) -> &'static str {
    match symbol {
        "+" => "-",
        "-" => "+",
        "*" => "/",
        _ => "*",
    }
}

/// Returns the byte offset after the closing bracket that belongs to the opening bracket
/// `tokens[open]`.
fn end_of_brackets(tokens: &[Token<'_>], open: usize) -> usize {
    let depth = tokens[open].depth;
    let mut inside = tokens[open + 1..].iter();
    let close = inside.find(|token| token.depth == depth && matches!(token.text, ")" | "]" | "}"));
    close
        .expect("each bracket in the expression is closed")
        .end()
}

/// Returns the byte offsets of the beginning of the left operand, and of the end of the right
/// operand. The operator is `tokens[index]`. In a chain such as `a && b && c`, the operands of the
/// second operator are `a && b` and `c`.
fn operands(tokens: &[Token<'_>], index: usize, symbol: &str) -> (usize, usize) {
    let depth = tokens[index].depth;
    let ends = |token: &Token<'_>, left: bool| {
        let looser = match (token.text, symbol) {
            ("?" | ":" | ",", _) | ("||", "&&") => true,
            ("&&" | "||", own) => !left && token.text == own,
            _ => false,
        };
        // A bracket counts itself in its depth. So the nearest bracket with the same depth as the
        // operator encloses the operator. For example, all tokens of `(a && b)` have the depth 1.
        // A bracket with a larger depth belongs to an operand.
        let around =
            token.depth == depth && matches!(token.text, "(" | "[" | "{" | ")" | "]" | "}");
        token.depth < depth || around || (token.depth == depth && looser)
    };
    let first = tokens[..index].iter().rposition(|token| ends(token, true));
    let start = first.map_or(0, |first| first + 1);
    let last = tokens[index + 1..]
        .iter()
        .position(|token| ends(token, false));
    let end = last.map_or(tokens.len(), |last| index + 1 + last) - 1;
    (tokens[start].start, tokens[end].end())
}

#[test]
fn each_mutant_has_one_change() {
    for (source, expected) in [
        ("a == 'b'", &["a != 'b'", "a == 'b~'"][..]),
        ("x > 2", &["x <= 2", "x > 3"]),
        ("!a", &["a"]),
        ("a * b / c", &["a / b / c", "a * b * c"]),
        ("has(a.b)", &["true", "false"]),
        (
            "a && b(c, d) && e",
            &[
                "true && b(c, d) && e",
                "a && true && e",
                "a && b(c, d) && true",
            ],
        ),
        (
            "a || b && c",
            &[
                "false || b && c",
                "a || false",
                "a || true && c",
                "a || b && true",
            ],
        ),
        (
            "l.exists(c, c.t && c.u)",
            &[
                "l.all(c, c.t && c.u)",
                "l.exists(c, true && c.u)",
                "l.exists(c, c.t && true)",
            ],
        ),
        (
            "a && b ? c : d",
            &[
                "true && b ? c : d",
                "a && true ? c : d",
                "true ? c : d",
                "false ? c : d",
            ],
        ),
    ] {
        let found: Vec<String> = mutants(source).into_iter().map(|it| it.text).collect();
        assert_eq!(found, expected);
    }
}
