//! Says what to do about a compile error, for mistakes that authors of expressions often make.

use super::op::Function;

/// Names that exist only in the expressions of an admission policy.
const REQUEST_NAMES: [&str; 5] = [
    "request",
    "oldObject",
    "params",
    "namespaceObject",
    "authorizer",
];

/// Returns a hint for the error `message` at `line` and `column` (from 1) of `source`. Returns None
/// if no hint is known.
pub(super) fn hint(source: &str, message: &str, line: usize, column: usize) -> Option<String> {
    if message.starts_with("Syntax error") {
        return syntax_hint(source, line, column);
    }
    if let Some(name) = quoted_after(message, "undeclared reference to '") {
        return name_hint(source, name);
    }
    if let Some(types) = message.strip_prefix("found no matching overload for '") {
        return overload_hint(types);
    }
    if message.starts_with("expected type 'string' but found '") {
        let found = quoted_after(message, "but found '")?;
        return matches!(
            found,
            "int" | "uint" | "double" | "bool" | "timestamp" | "duration"
        )
        .then(|| "convert the value to a text: string(…)".to_owned());
    }
    if message.starts_with("invalid duration argument") {
        return Some("a duration is a text such as '90s', '10m' or '1h30m'".to_owned());
    }
    if message.starts_with("invalid timestamp argument") {
        return Some("a timestamp is a text such as '2026-01-31T12:00:00Z'".to_owned());
    }
    None
}

/// Returns the text in quotes that follows `start`.
fn quoted_after<'m>(message: &'m str, start: &str) -> Option<&'m str> {
    let (_, rest) = message.split_once(start)?;
    rest.split_once('\'').map(|(text, _)| text)
}

fn syntax_hint(source: &str, line: usize, column: usize) -> Option<String> {
    let text = source.lines().nth(line.saturating_sub(1))?;
    let at = column.saturating_sub(1);
    let char_at = |at: usize| text.chars().nth(at);
    let is_lone = |at: usize| {
        let before = at.checked_sub(1).and_then(char_at);
        char_at(at) == Some('=')
            && char_at(at + 1) != Some('=')
            && !matches!(before, Some('=' | '!' | '<' | '>'))
    };
    if is_lone(at) || at.checked_sub(1).is_some_and(is_lone) {
        return Some("write `==` to compare two values".to_owned());
    }
    is_plain_text(source).then(|| quote_hint(source))
}

fn name_hint(source: &str, name: &str) -> Option<String> {
    if REQUEST_NAMES.contains(&name) {
        let hint =
            "a rule evaluates no admission request; it reads `object`, `variables` and `now`";
        return Some(hint.to_owned());
    }
    match name {
        "cel" => {
            return Some("declare a variable of the rule set in place of `cel.bind`".to_owned());
        }
        "math" | "base64" | "regex" => {
            let hint =
                format!("Kubernetes' admission policies do not have the functions of `{name}`");
            return Some(hint);
        }
        _ => {}
    }
    if is_plain_text(source) {
        return Some(quote_hint(source));
    }
    nearest(name).map(|nearest| format!("the most similar name is `{nearest}`"))
}

fn overload_hint(types: &str) -> Option<String> {
    let (operator, rest) = types.split_once('\'')?;
    let arguments = quoted_after(rest, "applied to '(")?.strip_suffix(')')?;
    let (left, right) = arguments.split_once(", ")?;
    let is_number = |ty: &str| matches!(ty, "int" | "uint" | "double");
    let (("string", other) | (other, "string")) = (left, right) else {
        return None;
    };
    let function = match (operator, other) {
        ("_+_", "string") => return None,
        ("_+_", _) => return Some("convert the other value to a text: string(…)".to_owned()),
        (_, "timestamp" | "duration") => other,
        (_, "kubernetes.Quantity") => "quantity",
        (_, other) if is_number(other) => other,
        _ => return None,
    };
    Some(format!("convert the text: {function}(…)"))
}

/// Returns the hint for a text without quotes.
fn quote_hint(source: &str) -> String {
    let source = source.trim();
    let text = if source.chars().count() <= 60 && !source.contains('\n') {
        source
    } else {
        "Blocked"
    };
    format!("a text needs quotes of CEL inside the quotes of YAML, as in \"'{text}'\"")
}

/// Returns true if `source` looks like words and not like an expression: it has no operator, no
/// call, no selection of a field, and no quotes.
fn is_plain_text(source: &str) -> bool {
    let source = source.trim().trim_end_matches(['.', '!', '?', ':']);
    source.contains(char::is_alphabetic)
        && !source.contains([
            '(', ')', '[', ']', '{', '}', '.', '<', '>', '=', '&', '|', '+', '*', '/', '%', '"',
            '\'', '`', '\\', '?',
        ])
        && !source.contains(" in ")
}

/// Returns the function or macro whose name differs from `name` only in a few letters.
fn nearest(name: &str) -> Option<&'static str> {
    const MACROS: [&str; 13] = [
        "has",
        "all",
        "exists",
        "exists_one",
        "existsOne",
        "map",
        "filter",
        "sortBy",
        "optMap",
        "optFlatMap",
        "transformList",
        "transformMap",
        "transformMapEntry",
    ];
    const VARIABLES: [&str; 4] = ["object", "variables", "now", "item"];
    let lower = name.to_lowercase();
    Function::names()
        .chain(MACROS)
        .chain(VARIABLES)
        .map(|other| {
            (
                strsim::damerau_levenshtein(&lower, &other.to_lowercase()),
                other,
            )
        })
        .filter(|(distance, other)| *distance * 3 <= other.len())
        .min()
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::super::{Environment, ResultKind, compile};

    #[test]
    fn frequent_mistakes_have_a_hint() {
        for (source, hint) in [
            ("object.spec.paused = true", "write `==`"),
            ("object.a = 'b' && object.c == 1", "write `==`"),
            ("Blocked", "quotes of CEL inside the quotes of YAML"),
            ("Copying the disk, please wait", "quotes of CEL"),
            ("Waiting for the node!", "quotes of CEL"),
            ("request.object.spec == 1", "no admission request"),
            ("oldObject.spec != object.spec", "no admission request"),
            ("cel.bind(x, object.a, x)", "declare a variable"),
            (
                "math.greatest(1, 2) == 2",
                "do not have the functions of `math`",
            ),
            ("object.name.startswith('a')", "`startsWith`"),
            ("objct.name == 'a'", "`object`"),
            ("'a' + 1", "string(…)"),
            ("size(object.a) + ' of 3'", "string(…)"),
            ("string(object.a) < now", "timestamp(…)"),
            ("string(object.a) > duration('1s')", "duration(…)"),
            ("string(object.a) == 1", "int(…)"),
            ("duration('10 min') > duration('1s')", "'10m'"),
            ("now > timestamp('yesterday')", "2026-01-31T12:00:00Z"),
        ] {
            let error = compile(source, ResultKind::Any, &Environment::default());
            let error = error.expect_err(source);
            let found = error.hint.as_deref().unwrap_or_default();
            assert!(found.contains(hint), "{source}: {error}: {found:?}");
        }
        let number = compile("1", ResultKind::String, &Environment::default());
        let number = number.expect_err("the result is not a string");
        assert_eq!(
            number.hint.as_deref(),
            Some("convert the value to a text: string(…)")
        );
    }

    #[test]
    fn other_errors_have_no_hint() {
        for source in [
            "object.a ==",
            "[1, 2",
            "object.xyzzy()",
            "has(object)",
            "1 + true",
        ] {
            let error = compile(source, ResultKind::Any, &Environment::default());
            assert_eq!(error.expect_err(source).hint, None, "{source}");
        }
    }

    #[test]
    fn the_excerpt_marks_the_position() {
        let source = "object.a == 1 &&\n  object.b = 'ü'";
        let error = compile(source, ResultKind::Any, &Environment::default());
        let error = error.expect_err(source);
        assert_eq!(error.excerpt(source), "  object.b = 'ü'\n           ^");
        let source = "\u{1F389} && object.ä";
        let error = compile(source, ResultKind::Any, &Environment::default());
        let error = error.expect_err(source);
        assert!(error.excerpt(source).ends_with('^'));
        let long = format!("{} = 1", "object.aa + ".repeat(30));
        let error = compile(&long, ResultKind::Any, &Environment::default());
        let error = error.expect_err("`=` is no operator");
        let excerpt = error.excerpt(&long);
        let lines: Vec<&str> = excerpt.lines().collect();
        assert!(lines[0].chars().count() <= 82, "{excerpt}");
        let at = lines[1].chars().count() - 1;
        assert!(
            lines[0].chars().skip(at).take(2).any(|c| c == '='),
            "{excerpt}"
        );
    }
}
