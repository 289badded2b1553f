//! Tests with hostile regular expressions, and with random mutations of patterns and expressions. The
//! compiler and the evaluation must not panic, and must end.

use super::hostile_expressions::compiles_and_evaluates;
use super::same_results_as_kubernetes::Answers;
use super::*;
use crate::fuzzing::Random;

#[test]
fn patterns_compile_within_a_size_limit() {
    for pattern in [
        r"\\pL{1000}",
        r"(\\pL{100}){10}",
        "((((((((((a{2}){2}){2}){2}){2}){2}){2}){2}){2}){2}",
        "(a*)*b",
        "[[:alpha:]]{1000}",
        "(?i)\\\\w{500}",
    ] {
        for literal in [
            format!("'aaaa'.matches('{pattern}')"),
            format!("'aaaa'.matches('' + '{pattern}')"),
            format!("'aaaa'.find('' + '{pattern}')"),
        ] {
            // A pattern that is too large is refused: a literal during compilation, and a computed
            // pattern during the evaluation.
            compiles_and_evaluates(&literal);
        }
    }
}

#[test]
fn mutated_patterns_do_not_panic() {
    let pieces = [
        "(",
        ")",
        "[",
        "]",
        "{",
        "}",
        "[:",
        ":]",
        "[:alpha:]",
        "^",
        "$",
        ".",
        "*",
        "+",
        "?",
        "|",
        "-",
        ",",
        "\\",
        "\\p",
        "\\pL",
        "\\Q",
        "\\E",
        "\\x",
        "\\d",
        "\\W",
        "\\b",
        "(?",
        "(?i)",
        "(?P<",
        ">",
        ":",
        "a",
        "é",
        "1",
        "2",
        "0",
        "7",
        "9",
        "🎉",
        " ",
        "\n",
    ];
    let mut random = Random::new(0x9e37_79b9_7f4a_7c15);
    let mut compiled = 0;
    for _ in 0..20_000 {
        let pattern: String = (0..=random.below(8))
            .map(|_| pieces[random.below(pieces.len())])
            .collect();
        if let Ok(pattern) = crate::regex::pattern::LiteralPatterns::default().get(&pattern) {
            compiled += 1;
            pattern.matches("aé-19 \n");
        }
    }
    assert!(compiled > 2_000, "only {compiled} patterns compiled");
}

/// The texts that mutations insert into an expression.
const PIECES: [&str; 79] = [
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ".",
    ",",
    ":",
    "?",
    "'",
    "\"",
    "\\",
    "!",
    "-",
    "+",
    "*",
    "/",
    "%",
    "==",
    "<",
    "&&",
    "||",
    " in ",
    "object",
    "now",
    "x",
    "1",
    "1u",
    "1.5",
    "'a'",
    "null",
    "é",
    "\n",
    "has(",
    ".map(x,",
    ".all(x,",
    ".exists_one(x,",
    ".matches(",
    "timestamp(",
    "duration(",
    "`",
    "9223372036854775807",
    "-9223372036854775808",
    ".size()",
    ".join(",
    ".split(",
    ".format([",
    "%.3f%s%x",
    "quantity('",
    "1.5Gi",
    "//",
    "b'",
    "r'",
    "\u{0}",
    ".?",
    "[?",
    "{?",
    ".optMap(x,",
    ".optFlatMap(x,",
    ".transformList(i,x,",
    ".transformMap(i,x,",
    ".transformMapEntry(i,x,",
    ".existsOne(i,x,",
    ".sortBy(x,",
    "url(",
    "ip(",
    "cidr(",
    "semver(",
    "format.",
    "sets.",
    ".validate(",
    "optional.",
    ".orValue(",
    ".flatten(",
    "lists.range(",
    ".findAll(",
    ".getQuery()",
    ".slice(",
];

#[test]
fn mutated_expressions_neither_panic_nor_hang() {
    let answers = Answers::load();
    let object = answers.object_named("custom");
    let whole = whole_object();
    let doc = Doc::parse(object.as_bytes(), &whole).unwrap();
    let seeds = answers.expressions();
    let mut random = Random::new(0x2545_f491_4f6c_dd1d);
    let mut sources = Vec::new();
    for _ in 0..4_000 {
        let seed = seeds[random.below(seeds.len())];
        let mut text: Vec<char> = seed.chars().take(300).collect();
        for _ in 0..=random.below(3) {
            let at = random.below(text.len() + 1);
            match random.below(4) {
                0 if at < text.len() => {
                    text.remove(at);
                }
                1 => {
                    let other: Vec<char> = seeds[random.below(seeds.len())].chars().collect();
                    let from = random.below(other.len());
                    let to = (from + random.below(12)).min(other.len());
                    text.splice(at..at, other[from..to].iter().copied());
                }
                2 if at < text.len() => text.truncate(at),
                _ => {
                    let piece = PIECES[random.below(PIECES.len())];
                    text.splice(at..at, piece.chars());
                }
            }
        }
        sources.push(text.into_iter().collect::<String>());
    }
    let mut compiled = 0;
    for (source, program) in sources
        .iter()
        .zip(compile_all(&sources, &Environment::default()))
    {
        if let Ok(program) = program {
            compiled += 1;
            let projected = Doc::parse(object.as_bytes(), &program.projection).unwrap();
            let expected = evaluate(&program, &doc, &mut full_budget());
            assert_eq!(
                evaluate(&program, &projected, &mut full_budget()),
                expected,
                "{source}"
            );
        }
    }
    assert!(compiled > 300, "only {compiled} expressions compiled");
}
