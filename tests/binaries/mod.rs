//! Finds the binary of another package of this workspace. `cargo test` in the root builds it first,
//! because that package has integration tests. Before you run a single test target, build the
//! binary with `cargo build`.

use std::path::{Path, PathBuf};

/// Returns the path of `name` in the folder of `own`, which is a binary of the test's own package.
pub fn other_binary(own: &str, name: &str) -> PathBuf {
    let path = Path::new(own).with_file_name(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo build` in the root of the repository",
        path.display()
    );
    path
}
