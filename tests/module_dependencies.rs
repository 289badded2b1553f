//! Checks rules for the source code:
//!
//! - The modules of the engine depend on each other in one direction (`docs/architecture.md`).
//! - No two types have the same name, except types with the name `Error`.
//! - The files of some crates import each other in one direction.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::{Attribute, Item};

/// Returns all Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("the folder must exist") {
        let path = entry.expect("the folder must be readable").path();
        if path.is_dir() {
            found.extend(files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}

/// Searches the Rust files below a folder of the repository for these Rust paths, such as
/// `crate::rules`. Returns the matching lines in the form `FILE: LINE`.
fn lines_with(folder: &str, paths: &[&str]) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for file in files(&root.join(folder)) {
        let text = std::fs::read_to_string(&file).expect("the file must be readable");
        let named = text.lines().filter(|line| {
            let mut paths = paths.iter();
            paths.any(|path| line.contains(path))
        });
        found.extend(named.map(|line| format!("{}: {line}", file.display())));
    }
    found
}

#[test]
fn engine_modules_depend_only_on_modules_earlier_in_the_pipeline() {
    let order = ["rules", "detect", "track", "replay"];
    for (place, module) in order.iter().enumerate().take(3) {
        let later: Vec<String> = order[place + 1..]
            .iter()
            .map(|later| format!("crate::{later}"))
            .collect();
        let later: Vec<&str> = later.iter().map(String::as_str).collect();
        let folder = format!("crates/engine/src/{module}");
        assert_eq!(lines_with(&folder, &later), [""; 0]);
    }
    assert!(!lines_with("crates/engine/src/track", &["crate::detect"]).is_empty());
}

/// Returns true if the attributes contain a `cfg` with `test` or `fuzzing`. The item is then
/// compiled only for tests or for fuzzing.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = attribute
            .meta
            .require_list()
            .map(|list| list.tokens.to_string());
        let is_cfg = attribute.path().is_ident("cfg");
        is_cfg && condition.is_ok_and(|it| it.contains("test") || it.contains("fuzzing"))
    })
}

/// Returns the names of the types that are defined outside of functions and tests.
fn type_names(items: &[Item]) -> Vec<String> {
    let mut names = Vec::new();
    for item in items {
        let (name, attributes) = match item {
            Item::Struct(it) => (&it.ident, &it.attrs),
            Item::Enum(it) => (&it.ident, &it.attrs),
            Item::Trait(it) => (&it.ident, &it.attrs),
            Item::Type(it) => (&it.ident, &it.attrs),
            Item::Mod(it) => {
                let inner = it.content.iter().flat_map(|(_, items)| type_names(items));
                if !is_for_tests(&it.attrs) {
                    names.extend(inner);
                }
                continue;
            }
            _ => continue,
        };
        if !is_for_tests(attributes) {
            names.push(name.to_string());
        }
    }
    names
}

/// A contributor who searches a crate for the name of a type must find only one definition. The name
/// `Error` is an exception: several modules may have a type with this name.
#[test]
fn type_names_are_unique_in_their_crate() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut defined: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let sources = ["src", "crates"].map(|folder| files(&root.join(folder)));
    for file in sources.concat() {
        let path = file
            .strip_prefix(root)
            .expect("the file is in the repository");
        let parts: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        let package = if parts[0] == "crates" {
            parts[1]
        } else {
            "ifo"
        };
        let is_program = parts.iter().all(|part| {
            let name = part.strip_suffix(".rs").unwrap_or(part);
            let others = ["tests", "testing", "benches", "target"];
            !others.contains(&name) && !name.ends_with("_tests")
        });
        if is_program {
            let text = std::fs::read_to_string(&file).expect("the file must be readable");
            let parsed = syn::parse_file(&text).expect("the file must be valid Rust");
            for name in type_names(&parsed.items) {
                defined
                    .entry(format!("{package}: {name}"))
                    .or_default()
                    .push(path.display().to_string());
            }
        }
    }
    assert!(
        defined.contains_key("api: InFlightOperationStatus"),
        "the search must find the types of the workspace"
    );
    defined.retain(|name, files| files.len() > 1 && !name.ends_with(": Error"));
    assert_eq!(defined, BTreeMap::new());
}

/// The folders of the crates whose files import each other in one direction only.
const CRATES_WITHOUT_CYCLES: [&str; 8] = [
    "crates/api/src",
    "crates/apiserver/src",
    "crates/cel/src",
    "crates/client/src",
    "crates/engine/src",
    "crates/kubectl-ifo/src",
    "crates/observe/src",
    "src",
];

/// The path of a module in its crate, such as `["value", "time"]`. The root has the empty path.
type ModulePath = Vec<String>;

/// Returns the path of the module that a file defines.
fn module_of(file: &Path) -> ModulePath {
    let path = file.with_extension("");
    let mut parts: ModulePath = path.iter().map(|it| it.to_string_lossy().into()).collect();
    if let Some("mod" | "lib" | "main") = parts.last().map(String::as_str) {
        parts.pop();
    }
    parts
}

/// Returns the source without comments and without the tests at its end.
fn program_text(text: &str) -> String {
    let program = text
        .split("#[cfg(test)]\nmod tests {")
        .next()
        .unwrap_or_default();
    let lines = program
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    lines.collect::<Vec<_>>().join("\n")
}

/// Splits `text` after the identifier at its beginning.
fn split_name(text: &str) -> (&str, &str) {
    let is_part = |c: char| c == '_' || c.is_ascii_alphanumeric();
    text.split_at(text.find(|c| !is_part(c)).unwrap_or(text.len()))
}

/// Adds the paths at the beginning of `text` to `paths`. For `a::{b, c::d}`, these are `a::b` and
/// `a::c::d`. Returns the rest of the text.
fn read_paths<'t>(text: &'t str, start: &[String], paths: &mut Vec<ModulePath>) -> &'t str {
    let mut path = start.to_vec();
    let mut rest = text.trim_start();
    while let (name, after) = split_name(rest)
        && !name.is_empty()
    {
        path.push(name.to_owned());
        let Some(after) = after.strip_prefix("::") else {
            rest = after;
            break;
        };
        rest = after;
    }
    let Some(mut group) = rest.strip_prefix('{').filter(|_| text.len() > rest.len()) else {
        paths.push(path);
        return rest;
    };
    loop {
        group = read_paths(group, &path, paths).trim_start();
        match group.strip_prefix(',').map(str::trim_start) {
            Some(after) if !after.starts_with('}') => group = after,
            after => return after.unwrap_or(group).trim_start_matches('}'),
        }
    }
}

/// Returns the paths in a source that begin with `crate`, `self` or `super`.
fn relative_paths(text: &str) -> Vec<ModulePath> {
    let mut paths = Vec::new();
    for start in ["crate::", "self::", "super::"] {
        for (at, _) in text.match_indices(start) {
            let before = text[..at].chars().next_back().unwrap_or(' ');
            if before != ':' && before != '_' && !before.is_ascii_alphanumeric() {
                read_paths(&text[at..], &[], &mut paths);
            }
        }
    }
    paths
}

/// Returns the files that each file of a crate imports. Test files and fuzz targets are left out.
fn imports(folder: &Path) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let mut texts = BTreeMap::new();
    for file in files(folder) {
        let path = file
            .strip_prefix(folder)
            .expect("the file is in the folder");
        let is_test = |part: &str| {
            let name = part.strip_suffix(".rs").unwrap_or(part);
            ["tests", "testing", "fuzzing", "fuzz_targets"].contains(&name)
                || name.ends_with("_tests")
        };
        if !path.iter().any(|part| is_test(&part.to_string_lossy())) {
            let text = std::fs::read_to_string(&file).expect("the file must be readable");
            // `src` has a library and a program with the same path.
            let module: &mut String = texts.entry(module_of(path)).or_default();
            module.push_str(&program_text(&text));
        }
    }
    let resolve = |module: &ModulePath, path: ModulePath| {
        let mut full = match path[0].as_str() {
            "crate" => Vec::new(),
            _ => module.clone(),
        };
        for name in path {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => drop(full.pop()),
                _ => full.push(name),
            }
        }
        while !texts.contains_key(&full) && full.pop().is_some() {}
        full
    };
    let of = |(module, text): (&ModulePath, &String)| {
        let paths = relative_paths(text).into_iter();
        let imported = paths.map(|path| resolve(module, path));
        let others = imported.filter(|it| it != module).collect();
        (module.clone(), others)
    };
    texts.iter().map(of).collect()
}

/// Returns the files that import themselves through other files.
fn cycle(mut imports: BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> Vec<String> {
    // A file that imports no other remaining file, or that no other remaining file imports, is in no
    // cycle. The search removes such files until there are none.
    loop {
        let before = imports.len();
        let imported: BTreeSet<_> = imports.values().flatten().cloned().collect();
        let remaining: BTreeSet<_> = imports.keys().cloned().collect();
        imports.retain(|module, others| {
            others.retain(|it| remaining.contains(it));
            imported.contains(module) && !others.is_empty()
        });
        if imports.len() == before {
            break;
        }
    }
    imports.keys().map(|module| module.join("::")).collect()
}

#[test]
fn files_import_each_other_in_one_direction() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for folder in CRATES_WITHOUT_CYCLES {
        let imports = imports(&root.join(folder));
        let count: usize = imports.values().map(BTreeSet::len).sum();
        assert!(count > 5, "only {count} imports were found in {folder}");
        let mut cycle = cycle(imports);
        // The election is one state machine in three files.
        cycle.retain(|module| !module.starts_with("replicate::election"));
        assert_eq!(cycle, [""; 0], "{folder}");
    }
}

#[test]
fn a_cycle_of_imports_is_found() {
    let module = |name: &str| vec![name.to_owned()];
    let source = "use super::{a::{self, X}, b::Y};\nfn f() { crate::c::g() }";
    let paths = relative_paths(source).into_iter();
    let paths: Vec<_> = paths.map(|path| path.join("::")).collect();
    let expected = [
        "crate::c::g",
        "super::a::self",
        "super::a::X",
        "super::b::Y",
    ];
    assert_eq!(paths, expected);
    let edge = |from: &str, to: &[&str]| (module(from), to.iter().map(|it| module(it)).collect());
    let acyclic = [edge("a", &["b", "c"]), edge("b", &["c"]), edge("c", &[])];
    assert_eq!(cycle(acyclic.into()), [""; 0]);
    let cyclic = [
        edge("a", &["b"]),
        edge("b", &["c"]),
        edge("c", &["b"]),
        edge("d", &["a"]),
    ];
    assert_eq!(cycle(cyclic.into()), ["b", "c"]);
}
