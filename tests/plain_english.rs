//! Checks parts of plain English that a program can check: the length of sentences in the docs, and
//! words that readers had to read twice.

use std::path::{Path, PathBuf};

/// Largest number of words of a sentence in the docs.
const MOST_WORDS: usize = 40;

/// Words without a clear meaning, each with its replacement.
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
    ("enters:", "Input:"),
    ("leaves:", "Output:"),
];

/// Folders whose comments and messages are checked.
const CHECKED: [&str; 5] = ["src", "crates", "tests", "benches", "examples"];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files with this extension in a folder and in the folders in it.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|it| it == extension) {
            found.push(path);
        }
    }
    found
}

/// The pages of the documentation. The catalogue is generated from the rule sets.
fn pages() -> Vec<(PathBuf, String)> {
    let mut pages = files(&root().join("docs"), "md");
    pages.retain(|page| !page.ends_with("rules-catalogue.md"));
    pages.push(root().join("README.md"));
    let read = |page: PathBuf| {
        let text = std::fs::read_to_string(&page).expect("it can be read");
        (page, text)
    };
    pages.into_iter().map(read).collect()
}

/// The paragraphs, list items and table cells of a page, without code blocks.
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
        let paragraph = found.last_mut().expect("there is always one");
        paragraph.push(' ');
        paragraph.push_str(text);
    }
    found
}

/// The sentences of a paragraph. A colon and a semicolon end a sentence, too.
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

/// The unclear words in a text, as messages about `place`.
fn complaints(place: &str, text: &str) -> Vec<String> {
    let text = text.to_lowercase();
    let mut words = text.split(|c: char| c.is_whitespace() || ",.;()".contains(c));
    let unclear = |word: &str| UNCLEAR.iter().find(|(unclear, _)| *unclear == word);
    let found = words.by_ref().filter_map(unclear);
    found
        .map(|(word, instead)| format!("{place}: \"{word}\": {instead}"))
        .collect()
}

#[test]
fn the_docs_have_no_unclear_words() {
    let found: Vec<String> = pages()
        .iter()
        .flat_map(|(page, text)| {
            let paragraphs = paragraphs(text);
            let place = page.display().to_string();
            let of = |paragraph: &String| complaints(&place, paragraph);
            paragraphs.iter().flat_map(of).collect::<Vec<_>>()
        })
        .collect();
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The comment or the messages in a line of Rust. Messages are string literals with a space.
fn prose(line: &str) -> String {
    let line = line.trim_start();
    if line.starts_with("//") {
        return line.to_owned();
    }
    let literals = line.split('"').skip(1).step_by(2);
    let messages: Vec<&str> = literals.filter(|text| text.contains(' ')).collect();
    messages.join(" ")
}

/// True for files with tests only. Their string literals are data.
fn is_test(path: &Path) -> bool {
    path.iter().filter_map(|part| part.to_str()).any(|part| {
        part.starts_with("test") || part.starts_with("fuzzing") || part.contains("_tests")
    })
}

#[test]
fn comments_and_messages_have_no_unclear_words() {
    let mut found = Vec::new();
    for folder in CHECKED {
        for file in files(&root().join(folder), "rs") {
            let path = file.strip_prefix(root()).expect("it is in the repository");
            let text = std::fs::read_to_string(&file).expect("it can be read");
            let mut has_messages = !is_test(path);
            for (number, line) in text.lines().enumerate() {
                has_messages &= !line.contains("#[cfg(test)]");
                if !has_messages && !line.trim_start().starts_with("//") {
                    continue;
                }
                let place = format!("{}:{}", path.display(), number + 1);
                found.extend(complaints(&place, &prose(line)));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn long_sentences_and_unclear_words_are_found() {
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
