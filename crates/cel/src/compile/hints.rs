//! Hints for frequent compile errors in CEL expressions. A hint tells the author how to correct the
//! expression.

use super::parse::{COMPREHENSIONS, CompileError};
use crate::library::Function;
use crate::result_kind::ResultKind;

/// Names that exist only in the expressions of an admission policy.
const REQUEST_NAMES: [&str; 5] = [
    "request",
    "oldObject",
    "params",
    "namespaceObject",
    "authorizer",
];

/// Functions of other languages and of other CEL environments, with the CEL text that does the
/// same.
const OTHER_NAMES: [(&str, &str); 16] = [
    ("any", "exists"),
    ("concat", "+"),
    ("count", "filter(…).size()"),
    ("every", "all"),
    ("hasPrefix", "startsWith"),
    ("hasSuffix", "endsWith"),
    ("includes", "contains"),
    ("len", "size"),
    ("length", "size"),
    ("lower", "lowerAscii"),
    ("some", "exists"),
    ("str", "string"),
    ("toLowerCase", "lowerAscii"),
    ("toString", "string"),
    ("toUpperCase", "upperAscii"),
    ("upper", "upperAscii"),
];

/// Returns a hint for `error` in `source`, an expression that must have a result of `kind`. Returns
/// None if no hint is known.
pub(crate) fn hint(source: &str, kind: ResultKind, error: &CompileError) -> Option<String> {
    let (message, line, column) = (&*error.message, error.line, error.column);
    // Such a text begins with a number and calls no function, so it is no expression for a duration.
    let begins_with_number = || {
        let unsigned = source.trim_start().trim_start_matches(['+', '-']);
        unsigned.starts_with(|c: char| c.is_ascii_digit()) && !source.contains('(')
    };
    if kind == ResultKind::Duration && (begins_with_number() || is_plain_text(source)) {
        return Some("write a duration such as 30m or 1h30m".to_owned());
    }
    if message.starts_with("Syntax error") {
        return syntax_hint(source, line, column);
    }
    if let Some(name) = quoted_after(message, "undeclared reference to '") {
        return name_hint(source, name, line, column);
    }
    if let Some(types) = message.strip_prefix("found no matching overload for '") {
        return overload_hint(types);
    }
    if let Some(types) = message.strip_prefix("expected type '") {
        return result_hint(source, types);
    }
    if message.contains("' is not a possible value of the field; possible are '") {
        return value_hint(message);
    }
    let constant_hint = if message.starts_with("invalid duration argument") {
        "a duration is a string such as '90s', '10m' or '1h30m'"
    } else if message.starts_with("invalid timestamp argument") {
        "a timestamp is a string such as '2026-01-31T12:00:00Z'"
    } else if message.starts_with("invalid argument to has() macro") {
        "`has` takes the selection of a field, as in has(object.status.phase). To test a key that is \
         not an identifier, write 'a-b' in object.map"
    } else if message.starts_with("undefined field '") {
        "declare the variable in the list `variables`, before the expression that reads it"
    } else {
        return None;
    };
    Some(constant_hint.to_owned())
}

/// Returns the text in quotes that follows `start`.
fn quoted_after<'m>(message: &'m str, start: &str) -> Option<&'m str> {
    let (_, rest) = message.split_once(start)?;
    rest.split_once('\'').map(|(text, _)| text)
}

fn syntax_hint(source: &str, line: usize, column: usize) -> Option<String> {
    let text: Vec<char> = source
        .lines()
        .nth(line.saturating_sub(1))?
        .chars()
        .collect();
    let at = column.saturating_sub(1);
    let char_at = |at: usize| text.get(at).copied();
    let is_lone = |at: usize, sign: char| {
        let before = at.checked_sub(1).and_then(char_at);
        char_at(at) == Some(sign)
            && char_at(at + 1) != Some(sign)
            && !matches!(before, Some('=' | '!' | '<' | '>' | '&' | '|'))
    };
    // The parser reports some errors one character after the wrong character.
    let has_lone =
        |sign: char| is_lone(at, sign) || at.checked_sub(1).is_some_and(|at| is_lone(at, sign));
    for (sign, hint) in [
        ('=', "write `==` to compare two values"),
        ('&', "write `&&` for \"and\""),
        ('|', "write `||` for \"or\""),
    ] {
        if has_lone(sign) {
            return Some(hint.to_owned());
        }
    }
    if text.windows(3).any(|signs| signs == ['='; 3]) {
        return Some("write `==` to compare two values".to_owned());
    }
    let words: Vec<&str> = source.split_whitespace().collect();
    let reads_values = ["object.", "item.", "variables."]
        .iter()
        .any(|start| source.contains(start));
    if is_plain_text(source) {
        return Some(if reads_values {
            "a string needs quotes inside the YAML quotes. Join strings and values with `+`, as in \
             \"'phase: ' + object.status.phase\""
                .to_owned()
        } else {
            quote_hint(source)
        });
    }
    let operator = |word: &&str| match *word {
        "and" | "AND" => Some("&&"),
        "or" | "OR" => Some("||"),
        "not" | "NOT" => Some("!"),
        _ => None,
    };
    words.iter().find_map(|word| {
        let sign = operator(word)?;
        Some(format!("write `{sign}` for \"{}\"", word.to_lowercase()))
    })
}

/// Returns the hint for a text that has no CEL quotes. Authors often write only the quotes of YAML.
fn quote_hint(source: &str) -> String {
    let source = source.trim();
    let short = source.chars().count() <= 40 && !source.contains(['\'', '"', '\\', '\n']);
    let example = if short { source } else { "Blocked" };
    format!("a string needs quotes inside the YAML quotes: \"'{example}'\"")
}

fn name_hint(source: &str, name: &str, line: usize, column: usize) -> Option<String> {
    if REQUEST_NAMES.contains(&name) {
        let hint = "there is no admission request. Use `object`, which is the watched object";
        return Some(hint.to_owned());
    }
    let constant_hint = match name {
        "self" | "oldSelf" => "the watched object is `object`",
        "cel" => {
            "`cel.bind` is not in Kubernetes' admission policies. Declare a variable in the list \
             `variables`, and read it as variables.NAME"
        }
        "math" => {
            "`math` is not in Kubernetes' admission policies. For the greatest of some numbers, \
             write [a, b].max(), and for the least, [a, b].min()"
        }
        "base64" => "`base64` is not in Kubernetes' admission policies. Compare the encoded string",
        "regex" => {
            "`regex` is not in Kubernetes' admission policies. Use matches, find, findAll or replace"
        }
        "json" | "yaml" => {
            "there is no function that parses JSON or YAML. Read a part of a string with find"
        }
        "now" => {
            "`now` is a value and not a function. Write it without parentheses: now - duration('10m')"
        }
        "item" => "`item` exists only in a rule with `forEach`",
        _ => "",
    };
    if !constant_hint.is_empty() {
        return Some(constant_hint.to_owned());
    }
    if is_plain_text(source) {
        return Some(quote_hint(source));
    }
    if let Some((_, here)) = OTHER_NAMES.iter().find(|(other, _)| *other == name) {
        return Some(format!("in CEL, write `{here}`"));
    }
    if let Some(nearest) = nearest(name) {
        return Some(format!("did you mean `{nearest}`?"));
    }
    // A name that begins with a capital letter is probably a string without quotes, such as
    // `Running`. Two kinds of names get no hint here:
    //
    // - a name before a dot, an index or an argument list
    // - the name of a function. If a function is unknown, the error has the position after the
    //   name. So the text at this position does not begin with the name.
    let rest: String = (source.lines().nth(line.saturating_sub(1))?.chars())
        .skip(column.saturating_sub(1))
        .collect();
    let after = rest.strip_prefix(name)?.trim_start();
    let begins_with_capital = name.starts_with(|c: char| c.is_ascii_uppercase());
    (begins_with_capital && !after.starts_with(['(', '.', '[']))
        .then(|| format!("a string needs quotes: '{name}'"))
}

/// Returns the hint for a call with arguments of wrong types. `types` is the end of the error
/// message, such as `_+_' applied to '(string, int)'`.
fn overload_hint(types: &str) -> Option<String> {
    let (operator, rest) = types.split_once('\'')?;
    let arguments = quoted_after(rest, "applied to '(")?.strip_suffix(')')?;
    let (left, right) = arguments.split_once(", ")?;
    let other = match (left, right) {
        ("string", other) | (other, "string") => other,
        ("int" | "uint", "double") | ("double", "int" | "uint") => {
            return Some("convert one of the numbers: double(…) or int(…)".to_owned());
        }
        ("timestamp", "int") | ("int", "timestamp") => {
            return Some(
                "convert a number of seconds to a duration: duration(string(…) + 's')".to_owned(),
            );
        }
        ("kubernetes.Quantity", _) | (_, "kubernetes.Quantity") => {
            return Some(
                "compare quantities with isGreaterThan, isLessThan or compareTo".to_owned(),
            );
        }
        _ => return None,
    };
    let function = match (operator, other) {
        ("_+_", "string") => return None,
        ("_+_", _) => return Some("convert the other value to a string: string(…)".to_owned()),
        (_, "kubernetes.Quantity") => "quantity",
        (_, "timestamp" | "duration" | "int" | "uint" | "double") => other,
        (_, "bool") => {
            return Some("a bool is compared with true or false without quotes".to_owned());
        }
        _ => return None,
    };
    Some(format!("convert the string: {function}(…)"))
}

/// Returns the hint for a comparison of a field with a string that the schema does not allow for
/// this field. The hint names the most similar allowed string. `message` quotes the wrong string
/// first, and then the allowed strings. Returns None if no allowed string is similar.
fn value_hint(message: &str) -> Option<String> {
    let mut quoted = message.split('\'').skip(1).step_by(2);
    let found = quoted.next()?;
    nearest_value(found, quoted).map(|value| format!("did you mean '{value}'?"))
}

/// Returns the text in `values` that is most similar to `found`, without regard to case. A text is
/// similar if at most half of its letters differ. Returns None if no text is similar.
pub fn nearest_value<'v>(
    found: &str,
    values: impl IntoIterator<Item = &'v str>,
) -> Option<&'v str> {
    let lower = found.to_lowercase();
    values
        .into_iter()
        .map(|value| {
            let distance = strsim::damerau_levenshtein(&lower, &value.to_lowercase());
            (distance, value)
        })
        .filter(|(distance, value)| *distance * 2 <= value.chars().count())
        .min()
        .map(|(_, value)| value)
}

/// Returns the hint for a result of a wrong type. `types` is the rest of the error message after
/// `expected type '`. An example of the whole message: `expected type 'string' but found 'int'`.
fn result_hint(source: &str, types: &str) -> Option<String> {
    let (wanted, rest) = types.split_once('\'')?;
    let found = quoted_after(rest, "but found '")?;
    let hint = match (wanted, found) {
        ("string", "int" | "uint" | "double" | "timestamp" | "duration") => {
            "convert the value to a string: string(…)"
        }
        ("string", "bool") => {
            "choose between two strings, as in object.status.ok ? 'Succeeded' : 'Failed'"
        }
        ("bool", "string" | "int" | "uint" | "double") => {
            "compare the value, as in object.status.phase == 'Running'"
        }
        ("duration", "string") => "convert the string: duration(…)",
        ("duration", "int" | "uint" | "double") => {
            "convert a number of seconds to a duration: duration(string(…) + 's')"
        }
        ("number or quantity", "string") => "convert the string: quantity(…), int(…) or double(…)",
        // A string literal is probably the command in the field `cancel`.
        ("list(string)", "string") if source.trim_start().starts_with(['\'', '"']) => {
            "write a list of words: ['kubectl', 'delete', 'pod', object.metadata.name]"
        }
        ("list(string)", "string") => "put the string into a list: [object.spec.nodeName]",
        (wanted, found)
            if found
                .strip_prefix("optional_type(")
                .is_some_and(|of| of.starts_with(wanted) || of.starts_with("dyn")) =>
        {
            "read the value of an optional with `orValue`, as in object.?status.?phase.orValue('')"
        }
        _ => return None,
    };
    Some(hint.to_owned())
}

/// Returns true if `source` looks like plain words, such as `Waiting for the node!`, and not like
/// an expression. Such a text is one word, or has two words next to each other. It has no operator
/// and no quotes.
fn is_plain_text(source: &str) -> bool {
    let source = source.trim().trim_end_matches(['.', '!', '?', ':', '…']);
    let is_word = |word: &str| {
        let word = word.trim_matches(|c: char| c.is_ascii_punctuation() && c != '_');
        !word.is_empty()
            && word
                .chars()
                .all(|c| c.is_alphanumeric() || "_-'./".contains(c))
    };
    let has_operator = [
        "==", "!=", "&&", "||", " in ", "\"", "<", ">", " and ", " or ", "not ",
    ]
    .iter()
    .any(|operator| source.contains(operator));
    // An apostrophe inside of a word, as in `node's`, is no quote.
    let letters: Vec<char> = source.chars().collect();
    let has_quote = letters.iter().enumerate().any(|(at, c)| {
        let is_letter = |at: Option<usize>| {
            at.and_then(|at| letters.get(at))
                .is_some_and(|c| c.is_alphabetic())
        };
        *c == '\'' && !(is_letter(at.checked_sub(1)) && is_letter(Some(at + 1)))
    });
    if has_operator || has_quote || !source.contains(char::is_alphabetic) {
        return false;
    }
    let words: Vec<&str> = source.split_whitespace().collect();
    match words.as_slice() {
        [word] => word
            .chars()
            .all(|c| c.is_alphanumeric() || c == '_' || c == '-'),
        words => words
            .windows(2)
            .any(|pair| pair.iter().all(|word| is_word(word))),
    }
}

/// Returns the function, macro or name that is most similar to `name`. It differs from `name` in at
/// most a third of its letters. Returns None if there is no such function, macro or name.
fn nearest(name: &str) -> Option<&'static str> {
    const OTHERS: [&str; 7] = [
        "has",
        "optMap",
        "optFlatMap",
        "object",
        "variables",
        "now",
        "item",
    ];
    let lower = name.to_lowercase();
    Function::all()
        .map(|function| function.name)
        .chain(COMPREHENSIONS.map(|(name, ..)| name))
        .chain(OTHERS)
        .map(|other| {
            let distance = strsim::damerau_levenshtein(&lower, &other.to_lowercase());
            (distance, other)
        })
        .filter(|(distance, other)| *distance * 3 <= other.len())
        .min()
        .map(|(_, other)| other)
}
