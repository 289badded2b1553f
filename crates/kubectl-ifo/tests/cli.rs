//! Tests of the kubectl plugin as a program: its output and its exit codes.

use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

#[path = "../../../tests/binaries/mod.rs"]
mod binaries;
#[path = "cli/completion.rs"]
mod completion;
#[path = "cli/describe_records.rs"]
mod describe_records;
#[path = "cli/filters.rs"]
mod filters;
#[path = "cli/from_files.rs"]
mod from_files;
#[path = "cli/history.rs"]
mod history;
#[path = "cli/hostile_files.rs"]
mod hostile_files;
#[path = "cli/hostile_text.rs"]
mod hostile_text;
#[path = "cli/impact.rs"]
mod impact;
#[path = "cli/incomplete_lists.rs"]
mod incomplete_lists;
#[path = "cli/k9s.rs"]
mod k9s;
#[path = "cli/kubectl_conventions.rs"]
mod kubectl_conventions;
#[path = "cli/narrow_terminal.rs"]
mod narrow_terminal;
#[path = "cli/pieces_of_work.rs"]
mod pieces_of_work;
#[path = "cli/pseudo_terminal.rs"]
mod pseudo_terminal;
#[path = "cli/rules_check.rs"]
mod rules_check;
#[path = "cli/rules_eval.rs"]
mod rules_eval;
#[path = "cli/rules_replay.rs"]
mod rules_replay;
#[path = "cli/rules_roles.rs"]
mod rules_roles;
#[path = "cli/rules_test.rs"]
mod rules_test;
#[path = "cli/states.rs"]
mod states;
#[path = "cli/support_bundle.rs"]
mod support_bundle;
#[path = "cli/tests_with_fake_apiserver.rs"]
mod tests_with_fake_apiserver;
#[path = "cli/top.rs"]
mod top;
#[path = "cli/tree_watch.rs"]
mod tree_watch;
#[path = "cli/ui.rs"]
mod ui;
#[path = "cli/wait_activities.rs"]
mod wait_activities;

/// The result of a command.
struct CommandOutput {
    /// The exit code.
    code: i32,
    stdout: String,
    stderr: String,
}

impl CommandOutput {
    /// Asserts that the command ended with this exit code.
    #[track_caller]
    fn exits(&self, code: i32) {
        assert_eq!(self.code, code, "{}{}", self.stdout, self.stderr);
    }

    /// Asserts that standard output contains this text.
    #[track_caller]
    fn prints(&self, part: impl AsRef<str>) {
        let part = part.as_ref();
        assert!(self.stdout.contains(part), "no {part:?}: {}", self.stdout);
    }

    /// Asserts that standard error contains this text.
    #[track_caller]
    fn says(&self, part: impl AsRef<str>) {
        let part = part.as_ref();
        assert!(self.stderr.contains(part), "no {part:?}: {}", self.stderr);
    }

    /// Asserts that standard error begins with this text.
    #[track_caller]
    fn says_first(&self, part: impl AsRef<str>) {
        let stderr = &self.stderr;
        assert!(stderr.starts_with(part.as_ref()), "{stderr}");
    }

    /// Parses standard output as JSON.
    fn json(&self) -> Value {
        serde_json::from_str(&self.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", self.stdout))
    }
}

/// Runs `kubectl ifo rules` with these arguments in the folder of the fixtures.
fn run_rules(args: &[&str]) -> CommandOutput {
    run_rules_with_input(args, "")
}

/// Runs `kubectl ifo rules` with these arguments in the folder of the fixtures. `input` is its
/// standard input.
fn run_rules_with_input(args: &[&str], input: &str) -> CommandOutput {
    let mut child = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"))
        .arg("rules")
        .args(args)
        .current_dir(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../tests/fixtures/cli"
        ))
        .env_remove("KUBECONFIG")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the plugin can be started");
    let mut stdin = child.stdin.take().expect("the stream is piped");
    // An error is ignored, because a command that does not read its input may have ended.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let Output {
        status,
        stdout,
        stderr,
    } = child
        .wait_with_output()
        .expect("the plugin can be waited for");
    CommandOutput {
        code: status.code().expect("no signal killed the plugin"),
        stdout: String::from_utf8(stdout).expect("the output is UTF-8"),
        stderr: String::from_utf8(stderr).expect("the output is UTF-8"),
    }
}

#[test]
fn wrong_arguments_are_reported_with_exit_code_2() {
    for args in [
        &["check"][..],
        &["test", "rules"],
        &["replay", "rules", "--stream", "x", "--debounce", "soon"],
        &["eval", "1", "--object", "-", "-O", "xml"],
    ] {
        let output = run_rules(args);
        assert_eq!(output.code, 2, "{args:?}: {}", output.stderr);
        assert!(
            output.stderr.starts_with("error: "),
            "{args:?}: {}",
            output.stderr
        );
    }
}

#[test]
fn missing_files_are_named() {
    for args in [
        &["check", "none.yaml"][..],
        &["roles", "none.yaml"],
        &["test", "rules", "--objects", "none.yaml"],
        &["replay", "rules", "--stream", "none.yaml"],
        &["eval", "true", "--object", "none.yaml"],
    ] {
        let output = run_rules(args);
        assert_eq!(output.code, 1, "{args:?}: {}", output.stderr);
        assert!(
            output.stderr.starts_with("error: none.yaml: No such file"),
            "{args:?}: {}",
            output.stderr
        );
    }
}

/// Returns the value at the JSON pointer `pointer` in each element of a list. The value is
/// "missing" if an element has no such value.
fn values_at(list: &Value, pointer: &str) -> Vec<Value> {
    let list = list.as_array().expect("the value is a list");
    let values = list.iter().map(|element| element.pointer(pointer).cloned());
    values
        .map(|value| value.unwrap_or(json!("missing")))
        .collect()
}
