//! Finds the binaries of other packages in this workspace. `cargo test` in the root folder builds
//! these binaries, because their packages have integration tests. Before you run a single test
//! target, build the binaries with `cargo build`.

use std::path::{Path, PathBuf};

/// Returns the path of the binary `name`, which is in the same folder as `own`. `own` is the path
/// of a binary of the package that the test belongs to.
pub fn other_binary(own: &str, name: &str) -> PathBuf {
    let path = Path::new(own).with_file_name(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo build` in the root of the repository",
        path.display()
    );
    path
}

/// Returns the path of the example `name`. `own` is the path of a binary of the package that the test
/// belongs to. `cargo test` builds the examples of all packages.
#[allow(dead_code, reason = "not every test target runs an example")]
pub fn example(own: &str, name: &str) -> PathBuf {
    let path = Path::new(own).with_file_name("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: run `cargo build --examples` in the root of the repository",
        path.display()
    );
    path
}
