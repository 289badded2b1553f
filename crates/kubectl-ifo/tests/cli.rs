//! Tests of the kubectl plugin as a binary: its output and its exit codes.

use serde_json::{Value, json};
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

#[path = "../../../tests/binaries/mod.rs"]
mod binaries;
#[path = "cli/check.rs"]
mod check;
#[path = "cli/cluster.rs"]
mod cluster;
#[path = "cli/completion.rs"]
mod completion;
#[path = "cli/eval.rs"]
mod eval;
#[path = "cli/filters.rs"]
mod filters;
#[path = "cli/habits.rs"]
mod habits;
#[path = "cli/replay.rs"]
mod replay;
#[path = "cli/roles.rs"]
mod roles;
#[path = "cli/screen.rs"]
mod screen;
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/test.rs"]
mod test;
#[path = "cli/top.rs"]
mod top;

/// The output of a command.
struct Said {
    code: i32,
    out: String,
    err: String,
}

impl Said {
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// Runs `kubectl ifo rules …` in the folder of the fixtures.
fn rules(args: &[&str]) -> Said {
    rules_with(args, "")
}

/// The same with standard input.
fn rules_with(args: &[&str], input: &str) -> Said {
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
        .expect("the plugin starts");
    let mut stdin = child.stdin.take().expect("it was asked for");
    // A command that does not read its input can have ended already.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("the plugin ends");
    Said {
        code: status.code().expect("it was not killed"),
        out: String::from_utf8(stdout).expect("text"),
        err: String::from_utf8(stderr).expect("text"),
    }
}

#[test]
fn unknown_arguments_are_reported_with_exit_code_2() {
    for args in [
        &["check"][..],
        &["test", "rules"],
        &["replay", "rules", "--stream", "x", "--debounce", "soon"],
        &["eval", "1", "--object", "-", "-O", "xml"],
    ] {
        let said = rules(args);
        assert_eq!(said.code, 2, "{args:?}: {}", said.err);
        assert!(said.err.starts_with("error: "), "{args:?}: {}", said.err);
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
        let said = rules(args);
        assert_eq!(said.code, 1, "{args:?}: {}", said.err);
        assert!(
            said.err.starts_with("error: none.yaml: No such file"),
            "{args:?}: {}",
            said.err
        );
    }
}

/// The values at `pointer` of each element.
fn each(list: &Value, pointer: &str) -> Vec<Value> {
    let list = list.as_array().expect("a list");
    let values = list.iter().map(|element| element.pointer(pointer).cloned());
    values
        .map(|value| value.unwrap_or(json!("missing")))
        .collect()
}
