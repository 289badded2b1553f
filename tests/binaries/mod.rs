//! Finds the binaries of other packages in this workspace. `cargo test` in the root folder builds
//! them, because their packages have integration tests. To run a single test target, first build
//! the binaries with `cargo build`.

use std::path::{Path, PathBuf};

/// Returns the path of the binary `name`. It is in the same folder as `own`, a binary of the
/// package that the test belongs to.
pub fn other_binary(own: &str, name: &str) -> PathBuf {
    let path = Path::new(own).with_file_name(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo build` in the root of the repository",
        path.display()
    );
    path
}
