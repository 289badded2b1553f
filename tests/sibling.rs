//! The binary of another package of this workspace. Cargo builds it for that package's
//! integration tests, so it is there, and up to date, when the tests of the whole
//! workspace run. To run only some tests that need it, build it first with `cargo build`.

use std::path::{Path, PathBuf};

/// The path of `name` in the folder of `own`, which is a binary of the test's own package.
pub fn sibling(own: &str, name: &str) -> PathBuf {
    let path = Path::new(own).with_file_name(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo build` in the root of the repository",
        path.display()
    );
    path
}
