//! The list of fuzz targets. A fuzz target is a function that tests code with input from outside,
//! such as a request of a client or an expression of a rule. The function receives this input as
//! bytes, and panics if the tested code violates a guarantee.
//!
//! The binaries in `fuzz/` run the targets with random input. A test in this file runs each target
//! with its corpus, which is the folder of stored inputs.

/// A fuzz target, which checks one input.
pub type FuzzTarget = fn(&[u8]);

/// All fuzz targets, each with its name. The binary of a target in `fuzz/targets` and its folder in
/// `fuzz/corpus` have the same name.
pub const TARGETS: &[(&str, FuzzTarget)] = &[
    ("accept", aggregated_apiserver::serve::fuzzing::accept),
    (
        "continue_token",
        aggregated_apiserver::serve::fuzzing::continue_token,
    ),
    ("expression", ifo_cel::fuzzing::check_expression),
    (
        "field_selector",
        aggregated_apiserver::serve::fuzzing::field_selector,
    ),
    (
        "label_selector",
        aggregated_apiserver::serve::fuzzing::label_selector,
    ),
    ("query", aggregated_apiserver::serve::fuzzing::query),
    ("request", aggregated_apiserver::serve::fuzzing::request),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::PathBuf;

    fn fuzz(folder: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("fuzz")
            .join(folder)
    }

    /// Returns the names of the files in a folder, without extensions.
    fn names(folder: &str) -> BTreeSet<String> {
        let entries = fs::read_dir(fuzz(folder)).unwrap();
        let paths = entries.map(|entry| entry.unwrap().path());
        paths
            .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn every_target_has_a_binary_and_a_corpus() {
        let targets: BTreeSet<String> =
            TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(names("targets"), targets);
        assert_eq!(names("corpus"), targets);
    }

    #[test]
    fn every_fuzz_target_passes_on_its_corpus() {
        for (target, check) in TARGETS {
            for file in fs::read_dir(fuzz("corpus").join(target)).unwrap() {
                let path = file.unwrap().path();
                // The test harness prints this line only if the check fails.
                println!("{}", path.display());
                check(&fs::read(&path).unwrap());
            }
        }
    }
}
