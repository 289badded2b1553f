//! Checks rules for the source code:
//!
//! - The modules of the engine depend on each other in one direction (`docs/architecture.md`).
//! - No two types of a crate have the same name, except types with the name `Error`.
//! - The files of a crate import each other in one direction.

use regex::{Captures, Regex};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use walkdir::WalkDir;

/// The folders of the crates.
const CRATES: [&str; 8] = [
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

/// Returns all Rust files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = WalkDir::new(folder).into_iter();
    let entries = entries.map(|entry| entry.expect("the folder must be readable"));
    let files = entries.filter(|entry| entry.file_type().is_file());
    let paths = files.map(walkdir::DirEntry::into_path);
    paths
        .filter(|path| path.extension().is_some_and(|it| it == "rs"))
        .collect()
}

/// Returns the source of each module of a crate, without comments. Test files and fuzz targets are left
/// out, and so are the tests at the end of a file.
fn modules(folder: &str) -> BTreeMap<ModulePath, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let mut modules: BTreeMap<ModulePath, String> = BTreeMap::new();
    for file in files(&folder) {
        let path = file
            .strip_prefix(&folder)
            .expect("the file is in the folder")
            .with_extension("");
        let mut parts: ModulePath = path.iter().map(|it| it.to_string_lossy().into()).collect();
        let others = ["tests", "testing", "fuzzing", "fuzz_targets"];
        if parts
            .iter()
            .any(|it| others.contains(&&**it) || it.ends_with("_tests"))
        {
            continue;
        }
        // `src` has a library and a program with the same path.
        parts.pop_if(|last| ["mod", "lib", "main"].contains(&&**last));
        let text = std::fs::read_to_string(&file).expect("the file must be readable");
        let program = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        let source = modules.entry(parts).or_default();
        for line in program
            .lines()
            .filter(|it| !it.trim_start().starts_with("//"))
        {
            source.push_str(line);
            source.push('\n');
        }
    }
    modules
}

static GROUP: LazyLock<Regex> = LazyLock::new(|| regex(r"([a-zA-Z0-9_:]+)::\{([^{}]*)\}"));
static PATH: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?:^|[^:a-zA-Z0-9_])((?:crate|self|super)(?:::[a-zA-Z0-9_]+)+)"));
static TYPE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"(?m)^(?:pub(?:\(\w+\))? )?(?:struct|enum|trait|type) (\w+)"));

fn regex(text: &str) -> Regex {
    Regex::new(text).expect("the expression is valid")
}

/// Returns the paths in a source that begin with `crate`, `self` or `super`.
fn relative_paths(source: &str) -> Vec<ModulePath> {
    // `a::{b, c::d}` becomes `a::b, a::c::d`.
    let mut source = source.to_owned();
    while GROUP.is_match(&source) {
        let expand = |found: &Captures<'_>| {
            let items = found[2]
                .split(',')
                .map(str::trim)
                .filter(|item| !item.is_empty());
            let paths = items.map(|item| format!("{}::{item}", &found[1]));
            paths.collect::<Vec<_>>().join(", ")
        };
        source = GROUP.replace_all(&source, expand).into_owned();
    }
    let paths = PATH.captures_iter(&source).map(|found| found[1].to_owned());
    paths
        .map(|path| path.split("::").map(str::to_owned).collect())
        .collect()
}

/// Returns the modules that each module of a crate imports.
fn imports(folder: &str) -> BTreeMap<ModulePath, BTreeSet<ModulePath>> {
    let modules = modules(folder);
    let resolve = |module: &ModulePath, path: ModulePath| {
        let mut full = if path[0] == "crate" {
            Vec::new()
        } else {
            module.clone()
        };
        for name in path {
            match name.as_str() {
                "crate" | "self" => {}
                "super" => drop(full.pop()),
                _ => full.push(name),
            }
        }
        while !modules.contains_key(&full) && full.pop().is_some() {}
        full
    };
    let of = |(module, source): (&ModulePath, &String)| {
        let imported = relative_paths(source)
            .into_iter()
            .map(|path| resolve(module, path));
        (module.clone(), imported.filter(|it| it != module).collect())
    };
    modules.iter().map(of).collect()
}

/// Returns the modules that import themselves through other modules.
fn cycle(mut imports: BTreeMap<ModulePath, BTreeSet<ModulePath>>) -> Vec<String> {
    // A module that imports no other remaining module, or that no other remaining module imports, is in
    // no cycle. The search removes such modules until there are none.
    loop {
        let before = imports.len();
        let imported: BTreeSet<_> = imports.values().flatten().cloned().collect();
        let remaining: BTreeSet<_> = imports.keys().cloned().collect();
        imports.retain(|module, others| {
            others.retain(|it| remaining.contains(it));
            imported.contains(module) && !others.is_empty()
        });
        if imports.len() == before {
            return imports.keys().map(|module| module.join("::")).collect();
        }
    }
}

#[test]
fn engine_modules_depend_only_on_modules_earlier_in_the_pipeline() {
    let order = ["rules", "detect", "track", "replay"];
    let place = |module: &ModulePath| {
        order
            .iter()
            .position(|it| module.first().is_some_and(|name| name == it))
    };
    for (module, imported) in imports("crates/engine/src") {
        let Some(own) = place(&module) else { continue };
        let mut places = imported.iter().filter_map(place);
        assert!(
            places.all(|it| it <= own),
            "{module:?} imports {imported:?}"
        );
    }
}

#[test]
fn files_import_each_other_in_one_direction() {
    for folder in CRATES {
        let imports = imports(folder);
        let count: usize = imports.values().map(BTreeSet::len).sum();
        assert!(count > 5, "only {count} imports were found in {folder}");
        let mut cycle = cycle(imports);
        // The election is one state machine in three files.
        cycle.retain(|module| !module.starts_with("replicate::election"));
        assert_eq!(cycle, [""; 0], "{folder}");
    }
}

/// A contributor who searches a crate for the name of a type must find only one definition. The name
/// `Error` is an exception: several modules may have a type with this name.
#[test]
fn type_names_are_unique_in_their_crate() {
    for folder in CRATES {
        let mut defined: BTreeMap<String, Vec<ModulePath>> = BTreeMap::new();
        for (module, source) in modules(folder) {
            for found in TYPE.captures_iter(&source) {
                let places = defined.entry(found[1].to_owned()).or_default();
                places.push(module.clone());
            }
        }
        assert!(
            defined.len() > 2,
            "only {} types in {folder}",
            defined.len()
        );
        defined.retain(|name, places| places.len() > 1 && name != "Error");
        assert_eq!(defined, BTreeMap::new(), "{folder}");
    }
}

#[test]
fn a_cycle_of_imports_is_found() {
    let source = "use super::{a::{self, X}, b::Y};\nfn f() { crate::c::g() }";
    let paths = relative_paths(source).into_iter();
    let paths: Vec<_> = paths.map(|path| path.join("::")).collect();
    let expected = [
        "super::a::self",
        "super::a::X",
        "super::b::Y",
        "crate::c::g",
    ];
    assert_eq!(paths, expected);
    let edge = |from: &str, to: &[&str]| {
        let module = |name: &str| vec![name.to_owned()];
        (module(from), to.iter().map(|it| module(it)).collect())
    };
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
