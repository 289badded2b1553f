//! Tests of the completion script for bash. `transcripts/completion.txt` has the other scripts, and the
//! completion through kubectl.

use std::process::{Command, Stdio};

const PLUGIN: &str = env!("CARGO_BIN_EXE_kubectl-ifo");

/// Runs a command and returns its standard output.
fn stdout_of(command: &mut Command) -> String {
    let output = command
        .env("KUBECONFIG", "/nonexistent")
        .stdin(Stdio::null())
        .output()
        .expect("the program can be started");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("the output is UTF-8")
}

/// Returns the completions in bash for the last of `words`. Returns None if bash is not installed.
fn bash_completions(words: &[&str]) -> Option<Vec<String>> {
    Command::new("bash").arg("--version").output().ok()?;
    let [.., before, current] = words else {
        panic!("the command line must have two words");
    };
    let quoted: Vec<String> = words.iter().map(|it| format!("'{it}'")).collect();
    let line = format!(
        "PATH=$(dirname '{PLUGIN}'):$PATH; source <(kubectl-ifo completion bash); COMP_WORDS=({}); COMP_CWORD={}; \
         it=$(complete -p kubectl-ifo); it=${{it#*-F }}; ${{it%% *}} kubectl-ifo '{current}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words.len() - 1
    );
    let offered = stdout_of(Command::new("bash").args(["-c", &line]));
    Some(offered.split_whitespace().map(str::to_owned).collect())
}

#[test]
fn bash_completes_flags_values_and_visible_commands() {
    let Some(commands) = bash_completions(&["kubectl-ifo", ""]) else {
        return;
    };
    assert!(commands.contains(&"tree".to_owned()), "{commands:?}");
    assert!(
        !commands.iter().any(|it| it.starts_with("__")),
        "{commands:?}"
    );
    for (words, offered) in [
        (&["kubectl-ifo", "list", "-O", ""][..], "yaml"),
        (&["kubectl-ifo", "-O", ""], "yaml"),
        (&["kubectl-ifo", "wait", "--for", ""], "idle"),
        (&["kubectl-ifo", "wait", "--q"], "--quiet-period"),
        (&["kubectl-ifo", "--s"], "--sort-by"),
        (&["kubectl-ifo", "rules", ""], "check"),
        (&["kubectl-ifo", "rules", "test", "--ob"], "--objects"),
    ] {
        let all = bash_completions(words).unwrap_or_default();
        assert!(all.iter().any(|it| it == offered), "{words:?}: {all:?}");
    }
}
