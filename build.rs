//! Build script. The binary contains files for the demo: the shipped rule sets and the scenes
//! (recordings of changes to objects). The script compresses these files, so the binary is 570 KB
//! smaller. The server decompresses the files only for the demo.

use std::path::Path;

fn main() {
    let out = std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    // The script reads the variable when it runs. With `env!`, it would keep the folder in which it
    // was compiled, and fail if two clones share a target folder.
    let root = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR");
    let root = Path::new(&root);
    for folder in ["rules", "src/demo/scenes"] {
        compress(&root.join(folder), &Path::new(&out).join(folder));
    }
}

/// Compresses the files below the folder `from`. The results have the same paths below `to`, plus
/// the suffix `.lz4`.
fn compress(from: &Path, to: &Path) {
    println!("cargo::rerun-if-changed={}", from.display());
    std::fs::create_dir_all(to).expect("the output folder is writable");
    for entry in std::fs::read_dir(from).expect("the folder is readable") {
        let path = entry.expect("the folder is readable").path();
        let name = path.file_name().expect("a file has a name");
        let name = name.to_str().expect("the names of the files are UTF-8");
        if path.is_dir() {
            compress(&path, &to.join(name));
        } else {
            let text = std::fs::read(&path).expect("the file is readable");
            let compressed = lz4_flex::block::compress_prepend_size(&text);
            std::fs::write(to.join(format!("{name}.lz4")), compressed)
                .expect("the output folder is writable");
        }
    }
}
