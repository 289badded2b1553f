//! Checks the language of docs, rule sets, comments and messages. Sentences in the docs must not be
//! too long, and no text may contain the words in [`UNCLEAR`].

use super::{files, root};
use std::path::{Path, PathBuf};

/// Largest number of words in a sentence of the docs.
const MOST_WORDS: usize = 40;

/// Words without a clear meaning, each with the advice that the test prints.
const UNCLEAR: [(&str, &str); 10] = [
    (
        "whoever",
        "name the person: the user, the client, the caller",
    ),
    ("somebody", "name the person: a user, another client"),
    ("nobody", "name the person: no user, no client"),
    ("whatever", "say which values are meant"),
    ("anew", "write again"),
    ("told", "write reported, sent or returned"),
    ("beforehand", "write before, or in advance"),
    ("amiss", "name the error"),
    ("enters:", "write Input:"),
    ("leaves:", "write Output:"),
];

/// Folders whose comments are checked. Messages are also checked, except in test code.
const CHECKED: [&str; 5] = ["src", "crates", "tests", "benches", "examples"];

/// Returns the paths and texts of the documentation. The catalogue is not included, because it is
/// generated from the rule sets.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = files(&root().join("docs"), "md");
    pages.retain(|page| !page.ends_with("rules-catalogue.md"));
    pages.push(root().join("README.md"));
    let read = |page: PathBuf| {
        let text = std::fs::read_to_string(&page).expect("the page must be readable");
        (page, text)
    };
    pages.into_iter().map(read).collect()
}

/// Splits a page into its paragraphs, list items and table cells. Skips code blocks.
fn paragraphs(page: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    let mut is_code = false;
    for line in page.lines() {
        let text = line.trim();
        if text.starts_with("```") {
            is_code = !is_code;
        }
        if is_code || text.is_empty() || text.starts_with(['#', '`', '|']) {
            found.push(String::new());
        }
        if is_code || text.starts_with("```") {
            continue;
        }
        if text.starts_with('|') {
            found.extend(text.split('|').map(str::to_owned));
            found.push(String::new());
            continue;
        }
        let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
        if text.starts_with("- ") || (number.len() < text.len() && number.starts_with(". ")) {
            found.push(String::new());
        }
        let paragraph = found
            .last_mut()
            .expect("the list begins with one paragraph");
        paragraph.push(' ');
        paragraph.push_str(text);
    }
    found
}

/// Splits a paragraph into its sentences. A colon and a semicolon also end a sentence.
fn sentences(paragraph: &str) -> impl Iterator<Item = &str> {
    let ends = [". ", "? ", "! ", ": ", "; ", ".)", ".**"];
    let mut rest = paragraph;
    std::iter::from_fn(move || {
        let whole = (!rest.is_empty()).then_some(rest)?;
        let end = ends.iter().filter_map(|end| whole.find(end)).min();
        let (sentence, after) = whole.split_at(end.map_or(whole.len(), |at| at + 1));
        rest = after;
        Some(sentence)
    })
}

#[test]
fn sentences_in_the_docs_are_short() {
    let mut long = Vec::new();
    for (page, text) in pages() {
        for paragraph in paragraphs(&text) {
            for sentence in sentences(&paragraph) {
                let words = sentence.split_whitespace().count();
                if words > MOST_WORDS {
                    long.push(format!("{}: {words} words: {sentence}", page.display()));
                }
            }
        }
    }
    assert!(long.is_empty(), "{}", long.join("\n"));
}

/// Returns a message about each unclear word in a text. The message names the source of the text,
/// `place`.
fn complaints(place: &str, text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let mut words = text.split(|c: char| c.is_whitespace() || ",.;()".contains(c));
    let unclear = |word: &str| UNCLEAR.iter().find(|(unclear, _)| *unclear == word);
    let found = words.by_ref().filter_map(unclear);
    found
        .map(|(word, instead)| format!("{place}: \"{word}\": {instead}"))
        .collect()
}

/// Returns the comment or the messages in a line of Rust. A string literal that contains a space
/// counts as a message.
fn prose(line: &str) -> String {
    let line = line.trim_start();
    if line.starts_with("//") {
        return line.to_owned();
    }
    let literals = line.split('"').skip(1).step_by(2);
    let messages: Vec<&str> = literals.filter(|text| text.contains(' ')).collect();
    messages.join(" ")
}

/// Returns true if the file at `path` contains only tests. In such a file, the string literals are
/// data and not messages, so only the comments are checked.
fn is_test(path: &Path) -> bool {
    path.iter().filter_map(|part| part.to_str()).any(|part| {
        part.starts_with("test") || part.starts_with("fuzzing") || part.contains("_tests")
    })
}

#[test]
fn docs_rules_comments_and_messages_have_no_unclear_words() {
    let mut found = Vec::new();
    for (page, text) in pages() {
        let place = page.display().to_string();
        for paragraph in paragraphs(&text) {
            found.extend(complaints(&place, &paragraph));
        }
    }
    let rules = files(&root().join("rules"), "yaml").into_iter();
    let sources = CHECKED
        .map(|folder| files(&root().join(folder), "rs"))
        .into_iter();
    for file in rules.chain(sources.flatten()) {
        let path = file.strip_prefix(root()).expect("it is in the repository");
        let text = std::fs::read_to_string(&file).expect("the file must be readable");
        let is_rust = path.extension().is_some_and(|it| it == "rs");
        let mut has_messages = !is_test(path);
        for (number, line) in (1..).zip(text.lines()) {
            has_messages &= !line.contains("#[cfg(test)]");
            let has_prose = has_messages || line.trim_start().starts_with("//");
            let line = if !is_rust {
                line.replace(['\'', '"'], " ")
            } else if has_prose {
                prose(line)
            } else {
                continue;
            };
            let place = format!("{}:{number}", path.display());
            found.extend(complaints(&place, &line));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_checks_find_long_sentences_and_unclear_words() {
    let long = format!("One. {}end; short.", "word ".repeat(MOST_WORDS));
    let counts: Vec<usize> = sentences(&long)
        .map(|sentence| sentence.split_whitespace().count())
        .collect();
    assert_eq!(counts, [1, MOST_WORDS + 1, 1]);
    assert_eq!(complaints("here", "For (whoever), reads").len(), 1);
    assert_eq!(
        complaints("here", &prose("warn!(\"told twice\", told)")).len(),
        1
    );
    let page = "# Title\ntext\n- item\n```\ncode\n```\n| a | b |\n";
    let texts = paragraphs(page).join("|");
    assert!(texts.contains("item") && !texts.contains("code"), "{texts}");
}
