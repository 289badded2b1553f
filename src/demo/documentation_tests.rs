//! Checks the output of commands in README.md and in the pages of `docs/`. The operations in this
//! output are those of the demo, 45 s after its start.
//!
//! In a code block of the documentation, a line that begins with `$ ` is a command. The lines up to
//! the next command are its output. The test runs each command, and compares the output:
//!
//! - Commands of the plugin read the demo's operations, records and rule sets from files. If the
//!   documented command has no `--from`, the test adds this flag, and leaves out the note about it.
//! - `kubectl get ifos` prints the table of the server's API.
//! - Other commands need a cluster, so the documentation must not show output for them.
//!
//! The test also writes the files that a page asks the reader to save, and copies the files in
//! `tests/fixtures/docs`. With the environment variable `IFO_UPDATE_DOCS`, the test writes the new
//! output to the pages instead of comparing it.

use super::scene::tests::run_demo;
use super::shipped_rules;
use crate::clock;
use crate::index::{Key, Object, Rv, VersionAssignment, Write};
use crate::resources::tests::{BASE, Fixture, TABLE};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

#[path = "../../tests/binaries/mod.rs"]
mod binaries;

/// The time at which the demo starts.
const START: &str = "2026-01-01T00:00:00Z";

/// The time from the start of the demo to the output. At this time, the demo has operations in all
/// states, and some operations have completed.
const AGE: Duration = Duration::from_secs(45);

/// The longest line of a table in the documentation, in characters. Longer lines are cut.
const WIDTH: usize = 132;

/// The beginning of the note that the plugin prints with the flag `--from`.
const NOTE_ABOUT_FILES: &str = "note: showing the operations in ";

/// The commands of the plugin that need a cluster or a terminal.
const NEED_CLUSTER: [&str; 4] = ["impact", "support-bundle", "top", "wait"];

/// The demo, for the commands of a page.
struct DocumentedDemo {
    /// Serves the table of operations.
    fixture: Fixture,
    /// A folder with the support bundle `bundle` and the files of `tests/fixtures/docs`.
    folder: tempfile::TempDir,
}

impl DocumentedDemo {
    async fn start() -> Self {
        let [operations, records] = run_demo(AGE).await;
        let mut fixture = Fixture::new();
        for (number, (key, object)) in operations.iter().enumerate() {
            let put = Write::Put {
                key: key.clone(),
                object: Object::decode(
                    object.to_string().as_bytes(),
                    ifo_api::Collection::of(&key.namespace),
                )
                .unwrap(),
            };
            let rv = VersionAssignment::Exact(Rv(200 + number as u64));
            fixture.live.commit(vec![put], rv).unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let demo = Self { fixture, folder };
        demo.write_bundle(&operations, &records);
        for file in std::fs::read_dir(root().join("tests/fixtures/docs")).unwrap() {
            let file = file.unwrap();
            let copy = demo.folder.path().join(file.file_name());
            std::fs::copy(file.path(), copy).unwrap();
        }
        demo
    }

    /// Writes a file, and creates its folder.
    fn write(&self, path: &str, text: &str) {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Writes the files of a support bundle that the plugin reads.
    fn write_bundle(&self, operations: &[(Key, Value)], records: &[(Key, Value)]) {
        let rule_sets = shipped_rules::shipped();
        let rule_sets = rule_sets.iter().map(|it| serde_json::to_value(it).unwrap());
        let rule_sets: Vec<Value> = rule_sets.collect();
        let objects = |all: &[(Key, Value)]| all.iter().map(|it| it.1.clone()).collect();
        let mut parts = Vec::new();
        for (path, items) in [
            (
                "live.ifo.kubevirt.io/v1alpha1/inflightoperations",
                objects(operations),
            ),
            (
                "live.ifo.kubevirt.io/v1alpha1/operationrecords",
                objects(records),
            ),
            ("ifo.kubevirt.io/v1alpha1/operationrulesets", rule_sets),
        ] {
            let path = format!("apis/{path}.json");
            parts.push(json!({"path": path, "result": "Read", "count": items.len()}));
            let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
            self.write(&format!("bundle/{path}"), &list.to_string());
        }
        let index = json!({
            "created": clock::now(), "redacted": false, "pluginVersion": "", "parts": parts,
            "serverNamespace": "ifo-system",
        });
        self.write("bundle/bundle.json", &index.to_string());
    }

    /// Runs a command, and returns its output. Returns None if the command needs a cluster.
    async fn output(&self, command: &str) -> Option<String> {
        let (command, most_lines) = match command.split_once(" | head -") {
            Some((command, lines)) => (command, lines.parse().expect("a number of lines")),
            None => (command, usize::MAX),
        };
        let words: Vec<&str> = command.split_whitespace().collect();
        let (stdout, stderr) = match words[..] {
            _ if command.contains(['|', '&', '\'', '"']) => return None,
            ["kubectl", "get", "ifos", ref flags @ ..] => (self.table(flags).await?, String::new()),
            ["kubectl", "ifo", command, ..] if NEED_CLUSTER.contains(&command) => return None,
            ["kubectl", "ifo", ref arguments @ ..] => self.plugin(arguments),
            _ => return None,
        };
        let stdout = stdout.lines().take(most_lines).map(|line| {
            let line = line.trim_end();
            match line.char_indices().nth(WIDTH) {
                Some((end, _)) => format!("{}…\n", &line[..end]),
                None => format!("{line}\n"),
            }
        });
        // The plugin prints this note first.
        let (first, last): (Vec<&str>, Vec<&str>) = stderr
            .split_inclusive('\n')
            .partition(|line| line.starts_with(NOTE_ABOUT_FILES));
        Some(first.concat() + &stdout.collect::<String>() + &last.concat())
    }

    /// Runs the plugin, and returns its standard output and its standard error.
    fn plugin(&self, arguments: &[&str]) -> (String, String) {
        let exe = std::env::current_exe().unwrap();
        let folder = exe.parent().expect("the test is in target/PROFILE/deps");
        let plugin = binaries::other_binary(&folder.to_string_lossy(), "kubectl-ifo");
        let mut command = Command::new(plugin);
        command.args(arguments).current_dir(self.folder.path());
        let reads_bundle = arguments.first() != Some(&"rules") && !arguments.contains(&"--from");
        if reads_bundle {
            command.args(["--from", "bundle"]);
        }
        let output = command.env_clear().output().unwrap();
        let stdout = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        let lines = stderr.split_inclusive('\n');
        let lines = lines.filter(|line| !reads_bundle || !line.starts_with(NOTE_ABOUT_FILES));
        (stdout, lines.collect())
    }

    /// Prints the table of operations as kubectl does. Returns None for flags that the test does not
    /// know.
    async fn table(&self, flags: &[&str]) -> Option<String> {
        let namespace = match flags {
            ["-A"] => None,
            ["-n", namespace] => Some(*namespace),
            _ => return None,
        };
        let path = match namespace {
            Some(namespace) => format!("{BASE}/namespaces/{namespace}/inflightoperations"),
            None => format!("{BASE}/inflightoperations"),
        };
        let table = self.fixture.json(&path, &[("accept", TABLE)]).await;
        let columns = table["columnDefinitions"].as_array().unwrap();
        let shown: Vec<usize> = (0..columns.len())
            .filter(|number| columns[*number]["priority"] == 0)
            .collect();
        let headers = shown
            .iter()
            .map(|it| columns[*it]["name"].as_str().unwrap());
        let mut lines = vec![vec!["NAMESPACE".to_owned()]];
        lines[0].extend(headers.map(str::to_uppercase));
        for row in table["rows"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let mut line = vec![text(&row["object"]["metadata"]["namespace"])];
            line.extend(shown.iter().map(|number| text(&row["cells"][*number])));
            lines.push(line);
        }
        if namespace.is_some() {
            for line in &mut lines {
                line.remove(0);
            }
        }
        let widths: Vec<usize> = (0..lines[0].len())
            .map(|column| {
                let cells = lines.iter().map(|line| line[column].chars().count());
                cells.max().unwrap_or_default()
            })
            .collect();
        let printed = lines.iter().map(|line| {
            let cells = line.iter().zip(&widths);
            let cells = cells.map(|(cell, width)| format!("{cell:width$}   "));
            cells.collect::<String>() + "\n"
        });
        Some(printed.collect())
    }

    /// Returns a page with the current output of its commands.
    async fn update(&self, page: &str) -> String {
        let mut updated = String::new();
        let mut saved_as = None;
        let mut lines = page.lines().peekable();
        while let Some(line) = lines.next() {
            updated.extend([line, "\n"]);
            if let Some((_, rest)) = line.split_once("Save this") {
                saved_as = rest.split('`').nth(1);
            }
            if line == "```yaml"
                && let Some(path) = saved_as.take()
            {
                let text: Vec<&str> = lines.clone().take_while(|line| *line != "```").collect();
                self.write(path, &text.join("\n"));
            }
            let Some(command) = line.strip_prefix("$ ") else {
                continue;
            };
            let mut before = String::new();
            while let Some(line) =
                lines.next_if(|line| !line.starts_with("$ ") && !line.starts_with("```"))
            {
                before.extend([line, "\n"]);
            }
            match self.output(command).await {
                Some(output) => updated.push_str(&output),
                None => assert_eq!(
                    before, "",
                    "this test cannot run `{command}`, so the documentation must not show its output"
                ),
            }
        }
        updated
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns README.md and the pages in `docs/`.
fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("README.md")];
    for entry in std::fs::read_dir(root().join("docs")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
    pages.sort();
    pages
}

#[tokio::test(start_paused = true)]
async fn the_documentation_shows_the_real_output_of_commands() {
    let _simulated = clock::simulated::begin(START.parse().unwrap());
    let demo = DocumentedDemo::start().await;
    for path in pages() {
        let page = std::fs::read_to_string(&path).unwrap();
        let updated = demo.update(&page).await;
        if std::env::var_os("IFO_UPDATE_DOCS").is_some() {
            std::fs::write(&path, updated).unwrap();
        } else {
            let hint = "to update it, set the environment variable IFO_UPDATE_DOCS";
            assert!(page == updated, "{}: {hint}:\n{updated}", path.display());
        }
    }
}
