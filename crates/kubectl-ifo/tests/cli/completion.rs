//! Tests of shell completion, both with the plugin's own script and through kubectl. Also tests the
//! man pages.

use super::fake_apiserver::{LIVE, json_response, list_response, not_found, operation, serve};
use serde_json::json;
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
        "source <('{PLUGIN}' completion bash); COMP_WORDS=({}); COMP_CWORD={}; \
         it=$(complete -p kubectl-ifo); it=${{it#*-F }}; ${{it%% *}} kubectl-ifo '{current}' '{before}'; echo \"${{COMPREPLY[@]}}\"",
        quoted.join(" "),
        words.len() - 1
    );
    let offered = stdout_of(Command::new("bash").args(["-c", &line]));
    Some(offered.split_whitespace().map(str::to_owned).collect())
}

/// Returns the completions in kubectl for the last of `words`. Leaves out the last line of the
/// output, `:4`, which stops the shell from completing file names.
fn kubectl_completions(words: &[&str]) -> Vec<String> {
    let output = stdout_of(Command::new(PLUGIN).args(["__complete", "--"]).args(words));
    let lines = output.lines().filter(|line| *line != ":4");
    lines
        .filter_map(|line| line.split('\t').next().map(str::to_owned))
        .collect()
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

#[test]
fn no_script_contains_a_hidden_command() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = stdout_of(Command::new(PLUGIN).args(["completion", shell]));
        assert!(
            !script.contains("__complete") && !script.contains("__man"),
            "{shell}"
        );
    }
}

#[test]
fn kubectl_completion_offers_values_and_not_commands_after_a_flag() {
    for (words, offered) in [
        (&["-"][..], "--sort-by"),
        (&["-O", ""], "yaml"),
        (&["tree", "-O", ""], "yaml"),
        (&["-n", "a", "tree", "--fo"], "--for"),
        (&["wait", "--for", ""], "idle"),
        (&["list", "--state", ""], "Failing"),
        (&[""], "tree"),
        (&["-n", "a", ""], "tree"),
    ] {
        let all = kubectl_completions(words);
        assert!(all.iter().any(|it| it == offered), "{words:?}: {all:?}");
    }
    let all = kubectl_completions(&["--context", ""]);
    assert!(!all.contains(&"tree".to_owned()), "{all:?}");
}

#[test]
fn completed_names_come_from_the_cluster_and_namespace_of_the_flags() {
    let (_runtime, address) = serve(|request| match request.uri().path() {
        "/api/v1/namespaces" => json_response(&json!({
            "metadata": {},
            "items": [{"metadata": {"name": "shop"}}, {"metadata": {"name": "team-b"}}],
        })),
        "/apis/live.ifo.kubevirt.io/v1alpha1/namespaces/shop/inflightoperations" | LIVE => {
            list_response(&[operation(1)], "")
        }
        _ => not_found(),
    });
    let server = format!("http://{address}");
    let offered = |words: &[&str]| {
        let words = words
            .iter()
            .map(|it| if *it == "S" { &*server } else { *it });
        kubectl_completions(&words.collect::<Vec<_>>())
    };
    let vm = &["vm-1-migrating"][..];
    for (words, names) in [
        (&["get", "-s", "S", ""][..], vm),
        (&["-s", "S", "get", ""], vm),
        (&["-w", "get", "-O", "json", "-s", "S", "vm"], vm),
        (&["describe", "-n", "shop", "-s", "S", ""], vm),
        (&["get", "-s", "S", "-wn", ""], &["shop", "team-b"]),
        (&["tree", "-s", "S", "--namespace", "te"], &["team-b"]),
        (&["-s", "S", "--namespace=te"], &["team-b"]),
        (&["-s", "S", "-nte"], &["-nteam-b"]),
        // kubectl's scripts add `--output=` to each completion, so the plugin prints only the
        // value.
        (&["list", "--output=j"], &["json"]),
    ] {
        assert_eq!(offered(words), names, "{words:?}");
    }
    for words in [
        &["get", "-s", "S", "-n", "nosuch", ""][..],
        &["get", "-s", "S", "--context", "nope", ""],
        &["get", "-s", "S", "--kubeconfig", "/nope", ""],
        &["rules", "test", "-s", "S", ""],
        &["list", "-s", "S", ""],
    ] {
        let all = offered(words);
        assert!(!all.contains(&vm[0].to_owned()), "{words:?}: {all:?}");
    }
}

#[test]
fn a_man_page_keeps_the_line_breaks_of_examples_and_describes_each_flag() {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    stdout_of(Command::new(PLUGIN).arg("__man").arg(folder.path()));
    let page = |name: &str| {
        let page = std::fs::read_to_string(folder.path().join(name));
        page.unwrap_or_else(|error| panic!("{name}: {error}"))
    };
    let list = page("kubectl-ifo-list.1");
    assert!(list.contains(".SH EXAMPLES\n.nf\n"), "{list}");
    assert!(list.contains("Bearer token"), "{list}");
    assert!(!list.contains(".SH EXTRA"), "{list}");
    let first = page("kubectl-ifo.1");
    assert!(first.contains("sort\\-by"), "{first}");
}
