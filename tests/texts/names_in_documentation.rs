//! Checks that the documentation and the comments do not name files, modules and types that no
//! longer exist:
//!
//! - Paths in backticks, such as `src/lib.rs`.
//! - Rust paths in backticks, such as `ifo_engine::detect::Detector`.
//!
//! Also checks that `docs/rules.md` describes each field of a rule.

use super::{files, root};
use ifo_api::schema;
use std::collections::HashSet;
use std::path::Path;

/// The folders whose files are checked if a text names them.
const FOLDERS: [&str; 11] = [
    ".ci/",
    ".github/",
    "benches/",
    "crates/",
    "deploy/",
    "docs/",
    "examples/",
    "fuzz/",
    "rules/",
    "src/",
    "tests/",
];

/// Paths that no file has: a tutorial tells the reader to create the first one, and the second one
/// has a placeholder.
const NO_FILES: [&str; 2] = [
    "rules/backup-rules.yaml",
    "tests/fixtures/cli/output/NAME.txt",
];

/// First parts of Rust paths that are not defined in this repository.
const FOREIGN: [&str; 7] = ["http", "i64", "ifo", "kube", "std", "tokio", "u32"];

/// A Rust file of the repository.
struct Source {
    /// Path relative to the root of the repository, such as `src/detection/mod.rs`.
    path: String,
    text: String,
    /// All words of the text.
    words: HashSet<String>,
    /// The names of the items that the file defines or exports.
    defined: HashSet<String>,
}

impl Source {
    /// Returns true if `name` is the file name or the name of a folder of this file.
    fn is_module(&self, name: &str) -> bool {
        self.path.split(['/', '.']).any(|part| part == name)
    }

    /// Returns true if the file defines an item with this name, or exports it.
    fn defines(&self, name: &str) -> bool {
        self.defined.contains(name)
    }

    /// Returns the comments, without the slashes.
    fn comments(&self) -> String {
        let lines = self.text.lines().map(str::trim_start);
        let comments = lines.filter_map(|line| line.strip_prefix("//"));
        let lines = comments.map(|line| line.trim_start_matches(['/', '!']).trim_start());
        lines.collect::<Vec<_>>().join("\n")
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
}

fn read(path: &Path) -> Source {
    let relative = path.strip_prefix(root()).expect("the file is in the root");
    let text = std::fs::read_to_string(path).expect("the file must be readable");
    Source {
        path: relative.to_string_lossy().into_owned(),
        words: words(&text).map(str::to_owned).collect(),
        defined: text
            .lines()
            .flat_map(defined_in)
            .map(str::to_owned)
            .collect(),
        text,
    }
}

/// Returns the names of the items that a line of Rust defines or exports.
fn defined_in(line: &str) -> Vec<&str> {
    let keywords = [
        "struct", "enum", "trait", "type", "fn", "mod", "const", "static",
    ];
    let line = line.trim_start();
    let words: Vec<&str> = words(line).filter(|word| !word.is_empty()).collect();
    if line.starts_with("//") {
        return Vec::new();
    }
    if line.starts_with("pub use") || line.starts_with("pub(crate) use") {
        return words;
    }
    let pairs = words.windows(2);
    let definitions = pairs.filter(|pair| keywords.contains(&pair[0]));
    definitions.map(|pair| pair[1]).collect()
}

fn sources() -> Vec<Source> {
    let folders = ["src", "crates", "tests", "benches", "examples"];
    let files = folders.map(|folder| files(&root().join(folder), "rs"));
    files.concat().iter().map(|path| read(path)).collect()
}

fn pages() -> Vec<Source> {
    let mut pages = files(&root().join("docs"), "md");
    pages.extend(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|page| root().join(page)));
    pages.iter().map(|path| read(path)).collect()
}

/// Returns the texts in backticks, without those in code blocks.
fn names(text: &str) -> Vec<&str> {
    let prose = text.split("```").step_by(2);
    let lines = prose.flat_map(str::lines);
    lines
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .collect()
}

/// Returns true if `path` is a Rust path of lower-case modules, possibly with an item at its end.
fn is_rust_path(path: &str) -> bool {
    let is_word = |part: &str| !part.is_empty() && words(part).count() == 1;
    path.contains("::")
        && path.split("::").all(is_word)
        && path.starts_with(|c: char| c.is_ascii_lowercase())
}

/// Returns true if the modules and the item in a Rust path exist. The path may begin with the name of
/// a crate. In other paths, only the last two parts are checked.
fn exists(path: &str, sources: &[Source]) -> bool {
    let mut parts: Vec<&str> = path.split("::").collect();
    parts.retain(|part| !["crate", "self", "super"].contains(part));
    if FOREIGN.contains(&parts[0]) {
        return true;
    }
    if let Some(name) = parts[0].strip_prefix("ifo_") {
        let folder = format!("crates/{name}/");
        let of_crate = |part: &&str| {
            let mut files = sources.iter().filter(|it| it.path.starts_with(&folder));
            files.any(|file| file.is_module(part) || file.defines(part))
        };
        return parts[1..].iter().all(of_crate);
    }
    let [.., module, item] = parts[..] else {
        return true;
    };
    let has_module = |file: &&Source| file.is_module(module) || file.defines(module);
    let mut files = sources.iter().filter(has_module);
    files.any(|file| file.is_module(item) || file.words.contains(item))
}

/// Returns a message about each name in backticks that does not exist.
fn stale_names(place: &str, text: &str, sources: &[Source]) -> Vec<String> {
    let is_path = |name: &&str| {
        let plain = |c: char| c.is_alphanumeric() || "/._-".contains(c);
        FOLDERS.iter().any(|folder| name.starts_with(folder)) && name.chars().all(plain)
    };
    let is_stale = |name: &&str| {
        if is_path(name) {
            return !NO_FILES.contains(name) && !root().join(name).exists();
        }
        is_rust_path(name) && !exists(name, sources)
    };
    let stale = names(text).into_iter().filter(is_stale);
    stale.map(|name| format!("{place}: `{name}`")).collect()
}

#[test]
fn names_in_the_documentation_and_in_comments_exist() {
    let sources = sources();
    let pages = pages();
    let stale: Vec<String> = pages
        .iter()
        .flat_map(|page| stale_names(&page.path, &page.text, &sources))
        .chain(
            sources
                .iter()
                .flat_map(|file| stale_names(&file.path, &file.comments(), &sources)),
        )
        .collect();
    assert!(stale.is_empty(), "{}", stale.join("\n"));
}

#[test]
fn the_check_finds_names_that_do_not_exist() {
    let sources = sources();
    let stale = |text: &str| stale_names("here", text, &sources).len();
    assert_eq!(
        stale("`src/detection/mod.rs` `docs/rules.md` `ifo_engine::detect::Detector`"),
        0
    );
    assert_eq!(stale("`src/indices.rs`"), 1);
    assert_eq!(stale("`ifo_client::kinds`"), 1);
    assert_eq!(stale("`discovered_kinds::Species`"), 1);
    assert_eq!(stale("```\n`src/indices.rs`\n```"), 0);
}

#[test]
fn each_field_of_a_rule_is_in_a_table_of_the_documentation() {
    let schema = schema::rule_set();
    let rules = &schema["properties"]["spec"]["properties"]["rules"];
    let fields = rules["items"]["properties"].as_object().map(|it| it.keys());
    let page = std::fs::read_to_string(root().join("docs/rules.md")).expect("the page exists");
    // The table of the required fields describes `operation` and `expression` together.
    let optional = fields.expect("the rules have fields");
    let optional = optional.filter(|it| !matches!(it.as_str(), "operation" | "expression"));
    let missing: Vec<_> = optional
        .filter(|field| !page.contains(&format!("\n| `{field}` |")))
        .collect();
    assert!(
        missing.is_empty(),
        "docs/rules.md has no row for {missing:?}"
    );
}
