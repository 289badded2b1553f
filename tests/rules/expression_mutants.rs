//! Creates mutants of a CEL expression. A mutant is the expression with one small change: for
//! example, `==` becomes `!=`. For each mutant, at least one fixture must fail.

use regex::Regex;
use std::sync::LazyLock;

/// A changed expression.
pub struct Mutant {
    pub text: String,
    /// Description of the change, such as `"==" becomes "!="`.
    pub change: String,
}

/// Matches the tokens of an expression: literals, calls of the macro `has`, words and operators.
static TOKEN: LazyLock<Regex> = LazyLock::new(|| {
    let tokens = r#"'[^']*'|"[^"]*"|has\([^)]*\)|\.\?|\w+|&&|\|\||[=!<>]=|[<>!?+*/-]"#;
    Regex::new(tokens).expect("the expression is valid")
});

/// Returns the texts that replace a token in the mutants.
fn replacements(token: &str) -> Vec<String> {
    let all: &[&str] = match token {
        "&&" => &["||"],
        "||" => &["&&"],
        "==" => &["!="],
        "!=" => &["=="],
        "<" => &[">="],
        "<=" => &[">"],
        ">" => &["<="],
        ">=" => &["<"],
        "+" => &["-"],
        "-" => &["+"],
        "*" => &["/"],
        "/" => &["*"],
        "!" => &[""],
        "?" => &["|| true ?"],
        "true" => &["false"],
        "false" => &["true"],
        "exists" => &["all"],
        "all" => &["exists"],
        has if has.starts_with("has(") => &["true", "false"],
        text if text.starts_with(['\'', '"']) => {
            let (content, quote) = text.split_at(text.len() - 1);
            return vec![format!("{content}~{quote}")];
        }
        number => {
            let next = number.parse().map(|number: u64| (number + 1).to_string());
            return next.into_iter().collect();
        }
    };
    all.iter().map(ToString::to_string).collect()
}

/// Returns all mutants of the expression `source`.
pub fn mutants(source: &str) -> Vec<Mutant> {
    let tokens = TOKEN.find_iter(source);
    let mutants = tokens.flat_map(|token| {
        let (before, after) = (&source[..token.start()], &source[token.end()..]);
        let by = replacements(token.as_str()).into_iter();
        by.map(move |by| Mutant {
            text: format!("{before}{by}{after}"),
            change: format!("{:?} becomes {by:?}", token.as_str()),
        })
    });
    mutants.collect()
}

#[test]
fn each_mutant_has_one_change() {
    for (source, expected) in [
        ("a1 == 'b'", &["a1 != 'b'", "a1 == 'b~'"][..]),
        ("x > 2", &["x <= 2", "x > 3"]),
        ("!a ? b : c", &["a ? b : c", "!a || true ? b : c"]),
        (
            "has(a.b) && c",
            &["true && c", "false && c", "has(a.b) || c"],
        ),
        ("l.exists(c, c.t)", &["l.all(c, c.t)"]),
    ] {
        let found: Vec<String> = mutants(source).into_iter().map(|it| it.text).collect();
        assert_eq!(found, expected);
    }
}
