//! The attacker sends a file to an engineer, for example as a support bundle. The
//! file is small, but takes much memory when it is decompressed or decoded. The plugin must refuse
//! the file and name the limit. The system limits the memory of the plugin in these tests. A plugin
//! that needs more is killed.

#![cfg(target_os = "linux")]

use super::CommandOutput;
use super::fake_apiserver::execute;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tar::{EntryType, Header};

/// Largest virtual memory of the plugin in KiB: 768 MiB.
const MEMORY: &str = "786432";

/// Runs the plugin with limited memory.
fn with_limited_memory(args: &[&str]) -> CommandOutput {
    let mut command = Command::new("sh");
    command
        .args(["-c", "ulimit -v \"$0\" && exec \"$@\"", MEMORY])
        .arg(env!("CARGO_BIN_EXE_kubectl-ifo"))
        .args(args)
        // Each thread of the runtime, and each arena of the allocator, reserves virtual memory.
        .envs([("TOKIO_WORKER_THREADS", "1"), ("MALLOC_ARENA_MAX", "1")])
        .env_remove("KUBECONFIG")
        .stdin(Stdio::null());
    execute(&mut command)
}

/// Writes a file that consists of several parts. Each part is compressed once, and written as often
/// as its number says. So the test needs little time to write a file with gigabytes of content.
fn write_compressed(folder: &Path, name: &str, parts: &[(&[u8], usize)]) -> PathBuf {
    let mut file = Vec::new();
    for (content, times) in parts {
        let mut part = GzEncoder::new(Vec::new(), Compression::best());
        part.write_all(content).expect("memory is writable");
        let part = part.finish().expect("memory is writable");
        (0..*times).for_each(|_| file.extend(&part));
    }
    let path = folder.join(name);
    std::fs::write(&path, &file).expect("the folder is writable");
    assert!(file.len() < 3 << 20, "the file has {} bytes", file.len());
    path
}

/// Returns the header of an entry in a tar archive.
fn header(name: &str, kind: EntryType, size: u64) -> Vec<u8> {
    let mut header = Header::new_gnu();
    header.set_path(name).expect("the name is short");
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header.set_mtime(0);
    header.set_cksum();
    header.as_bytes().to_vec()
}

/// Runs `list --from` with this file. Returns standard error of the plugin, which must fail.
fn refused(path: &Path) -> String {
    let path = path.to_str().expect("the path is UTF-8");
    let output = with_limited_memory(&["list", "--from", path]);
    assert_eq!(output.code, 1, "{}{}", output.stdout, output.stderr);
    output.says(path);
    output.stderr
}

const MEBIBYTE: usize = 1 << 20;

#[test]
fn long_names_in_an_archive_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let name = vec![b'a'; MEBIBYTE];
    for kind in [EntryType::GNULongName, EntryType::XHeader] {
        let size = 2048 * name.len() as u64;
        let parts: [(&[u8], usize); 2] = [(&header("x", kind, size), 1), (&name, 2048)];
        let path = write_compressed(folder.path(), "names.tar.gz", &parts);
        let error = refused(&path);
        assert!(error.contains("is larger than 64 KiB"), "{error}");
    }
}

#[test]
fn an_entry_and_a_file_that_are_too_large_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let zeros = vec![0; MEBIBYTE];
    let entry = header("bundle/huge.yaml", EntryType::Regular, 1 << 40);
    let parts: [(&[u8], usize); 2] = [(&entry, 1), (&zeros, 1024)];
    let error = refused(&write_compressed(folder.path(), "entry.tar.gz", &parts));
    let limit = "the file bundle/huge.yaml is larger than 256 MiB";
    assert!(error.contains(limit), "{error}");
    let spaces = vec![b' '; MEBIBYTE];
    let path = write_compressed(folder.path(), "file.gz", &[(&spaces, 1024)]);
    let error = refused(&path);
    assert!(error.contains("is larger than 256 MiB"), "{error}");
}

#[test]
fn an_archive_that_ends_early_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let entry = header("a.yaml", EntryType::Regular, 1000);
    let path = write_compressed(folder.path(), "short.tar.gz", &[(&entry, 1)]);
    let error = refused(&path);
    assert!(
        error.contains("the archive ends within an entry"),
        "{error}"
    );
}

#[test]
fn many_small_values_are_refused_before_they_are_decoded() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let start = b"{\"apiVersion\":\"live.ifo.kubevirt.io/v1alpha1\",\
                  \"kind\":\"InFlightOperationList\",\"items\":[";
    let items = b"{\"a\":0},".repeat(MEBIBYTE / 2);
    let end = b"{}]}";
    let parts: [(&[u8], usize); 3] = [(start, 1), (&items, 8), (end, 1)];
    let error = refused(&write_compressed(folder.path(), "list.gz", &parts));
    assert!(error.contains("more than 2048 MiB of memory"), "{error}");
}

#[test]
fn repeated_long_strings_in_yaml_are_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let start = format!(
        "apiVersion: live.ifo.kubevirt.io/v1alpha1\nkind: List\na: &a {}\nitems:\n",
        "x".repeat(MEBIBYTE)
    );
    let items = b"- *a\n".repeat(10_000);
    let parts: [(&[u8], usize); 2] = [(start.as_bytes(), 1), (&items, 1)];
    refused(&write_compressed(folder.path(), "aliases.gz", &parts));
}

#[test]
fn a_recording_with_many_small_values_is_refused() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let rules = folder.path().join("rules.yaml");
    let text = "{apiVersion: ifo.kubevirt.io/v1alpha1, kind: OperationRuleSet, metadata: {name: a}, \
                spec: {component: a, target: {group: '', version: v1, resource: pods}, rules: \
                [{operation: Running, expression: 'true'}]}}";
    std::fs::write(&rules, text).expect("the folder is writable");
    let stream = folder.path().join("stream.json");
    std::fs::write(&stream, b"{\"a\":0}\n".repeat(4 * MEBIBYTE)).expect("the folder is writable");
    let [rules, stream] = [&rules, &stream].map(|it| it.to_str().expect("the path is UTF-8"));
    let output = with_limited_memory(&["rules", "replay", rules, "--stream", stream]);
    assert_eq!(output.code, 1, "{}{}", output.stdout, output.stderr);
    let limit = "more than 2048 MiB of memory";
    output.says(limit);
}

#[test]
fn long_names_of_an_ordinary_archive_are_read() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let operation = super::fake_apiserver::operation(1).to_string();
    let long = format!("{}/operation.json", "folder/".repeat(30));
    for name in ["operation.json", long.as_str()] {
        let mut archive = tar::Builder::new(Vec::new());
        let mut header = Header::new_gnu();
        header.set_size(operation.len() as u64);
        archive
            .append_data(&mut header, name, operation.as_bytes())
            .expect("memory is writable");
        let bytes = archive.into_inner().expect("memory is writable");
        let path = write_compressed(folder.path(), "bundle.tar.gz", &[(&bytes, 1)]);
        let path = path.to_str().expect("the path is UTF-8");
        let output = with_limited_memory(&["list", "--from", path]);
        output.exits(0);
        output.prints("vm-1");
    }
}
