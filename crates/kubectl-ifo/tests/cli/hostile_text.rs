//! Attack: a user who can write an object or a rule set puts commands for a terminal into names,
//! labels and messages. Another user prints the operations. The server, or a proxy before it, can
//! also put such commands into its answers.
//!
//! These tests print such text with every command and in every output format, to a pipe and to a
//! terminal. No command may pass on a character that controls the terminal.

#[path = "hostile_text/cluster.rs"]
mod cluster;

use self::cluster::{Folder, HOSTILE, MARK, NAME, hostile_cluster, refusing_cluster};
use super::fake_apiserver::{execute, serve};
use super::pseudo_terminal::Terminal;
use portable_pty::CommandBuilder;
use std::process::{Command, Stdio};

/// The command lines. After a `+`, some text of the attacker must be printed. `BAD` is a text of the
/// attacker as an argument, `NAME` the name of an operation, and a word with a dot is a file. A line
/// after `--` is completed.
const LINES: &str = "
+ list
+ summary
+ history
+ top
+ tree
+ tree --for VirtualMachine/vm-1
+ get NAME
+ get zqx-missing
+ describe NAME
+ describe VirtualMachine/vm-1
+ describe BAD/a
+ impact worker-3
+ impact BAD
+ wait --for=idle --timeout=0
+ wait --for=idle --timeout=1s
+ wait --for=started --timeout=10s
- wait --for=completed --timeout=1s
+ wait --for=idle --timeout=0 -c BAD
- support-bundle -o bundle.tar.gz
+ support-bundle -o /BAD/BAD.tar.gz
- ui --export /none/page.html
+ ui --no-open --port BAD
+ version
+ version --BAD
- completion bash
- completion zsh
- completion fish
+ completion BAD
+ rules check invalid.yaml
- rules check rules.yaml --cluster
+ rules check BAD
+ rules roles invalid.yaml
- rules roles rules.yaml
+ rules test rules.yaml --objects objects.json
+ rules test rules.yaml --objects objects.json --explain
+ rules test rules.yaml --objects objects.json --expect
+ rules test invalid.yaml --objects objects.json
+ rules replay rules.yaml --stream stream.jsonl
+ rules replay invalid.yaml --stream stream.jsonl
+ rules eval object.metadata --object object.json
+ rules eval object.zqx=='BAD' --object object.json
+ rules eval 'BAD'+1 --object object.json
- -- kubectl-ifo get z
- -- kubectl-ifo list -n z
";

/// The output formats. A command that does not have a format must refuse it without harm.
const FORMATS: [&str; 4] = ["wide", "json", "yaml", "name"];

/// A command line, and true if some text of the attacker must be printed.
struct Run {
    args: Vec<String>,
    shows_text: bool,
}

fn runs(folder: &Folder) -> Vec<Run> {
    let word = |word: &str| match word {
        "NAME" => NAME.to_owned(),
        file if file.starts_with("bundle") => folder.path(file),
        file if [".yaml", ".json"].iter().any(|it| file.contains(it)) => folder.path(file),
        word => word.replace("BAD", "zqx\u{9b}\u{1b}[5m\u{202e}"),
    };
    let lines = LINES.lines().filter_map(|it| it.split_once(' '));
    let runs = lines.map(|(mark, line)| Run {
        args: line.split(' ').map(word).collect(),
        shows_text: mark == "+",
    });
    runs.collect()
}

/// Returns the value of `IFO_COMPLETE` for a command line. It is empty if the command runs.
fn completion(args: &[String]) -> &'static str {
    if args[0] == "--" { "fish" } else { "" }
}

/// Runs the plugin, and returns both outputs as one text.
fn to_pipe(folder: &Folder, args: &[String]) -> String {
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    plugin.env("KUBECONFIG", folder.path("kubeconfig"));
    plugin.env("IFO_COMPLETE", completion(args));
    plugin.current_dir(folder.path("")).stdin(Stdio::null());
    let output = execute(plugin.args(args));
    output.stdout + &output.stderr
}

/// Checks that a text contains no character that could control a terminal, and that no line begins
/// with text of the attacker.
#[track_caller]
fn assert_harmless(text: &str, what: &str) {
    let is_unprintable = |c: char| ifo_api::is_unprintable(c);
    if let Some(at) = text.find(is_unprintable) {
        let start = text.floor_char_boundary(at.saturating_sub(200));
        let end = text.ceil_char_boundary(at + 50);
        panic!("{what}: {:?}", &text[start..end]);
    }
    let forged = text.lines().find(|line| line.starts_with("forged"));
    assert_eq!(forged, None, "{what}: {text}");
}

/// Checks the output of a run.
#[track_caller]
fn check(run: &Run, args: &[String], printed: &str) {
    assert_harmless(printed, &format!("{args:?}"));
    let is_shown = !run.shows_text || printed.contains(MARK);
    assert!(is_shown, "{args:?}: no text of the attacker: {printed}");
}

/// Removes the styles and the movements of the cursor that the plugin itself uses. All other escape
/// sequences stay in the text.
fn without_own_sequences(output: &str, is_top: bool) -> String {
    let output = output.replace("\r\n", "\n").replace("\r\u{1b}[K", "");
    let mut rest = output.as_str();
    let mut text = String::new();
    while let Some((before, after)) = rest.split_once("\u{1b}[") {
        text.push_str(before);
        let end = after.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(0);
        let (parameters, command) = (&after[..end], after[end..].chars().next());
        let is_allowed = match command {
            // `top` uses any of 256 colours, but neither blinking text (5, 6) nor hidden text (8).
            Some('m') if is_top => !["5", "6", "8"].contains(&parameters),
            // Reset, bold, dim and the colours of states.
            Some('m') => ["0", "1", "2", "31", "32", "33", "35", "36"].contains(&parameters),
            Some('H' | 'J' | 'K') => is_top || parameters.is_empty(),
            Some('h' | 'l') => is_top && ["?1049", "?25"].contains(&parameters),
            _ => false,
        };
        if is_allowed {
            rest = &after[end + 1..];
        } else {
            // The escape character stays in the text, so that the check finds it.
            text.push_str("\u{1b}[");
            rest = after;
        }
    }
    text + rest
}

#[test]
fn each_command_has_a_run() {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let mut man = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    execute(man.arg("__man").arg(folder.path())).exits(0);
    let pages = std::fs::read_dir(folder.path()).expect("the folder is readable");
    let names = pages.map(|it| it.expect("the folder is readable").file_name());
    let names: Vec<String> = names
        .filter_map(|it| {
            let name = it.to_str()?.strip_prefix("kubectl-ifo-")?;
            Some(name.strip_suffix(".1")?.replace("rules-", "rules "))
        })
        .collect();
    assert!(names.len() > 12, "{names:?}");
    for name in names {
        let has_run = LINES
            .lines()
            .any(|it| it[it.len().min(2)..].starts_with(&name));
        assert!(has_run, "add the command {name} to this test");
    }
}

#[test]
fn no_command_prints_control_characters_of_objects_to_a_pipe() {
    let (_runtime, address) = hostile_cluster().serve();
    let folder = Folder::new(address);
    for run in runs(&folder).iter().filter(|it| it.args[0] != "top") {
        check(run, &run.args, &to_pipe(&folder, &run.args));
        // The flag `-O` of this command names a file.
        let has_format = run.args[0] != "support-bundle";
        for format in FORMATS.iter().filter(|_| has_format) {
            let args = [&run.args[..], &["-O".to_owned(), (*format).to_owned()]].concat();
            let printed = to_pipe(&folder, &args);
            assert_harmless(&printed, &format!("{args:?}"));
            if !printed.contains("try '--help'") {
                check(run, &args, &printed);
            }
        }
    }
}

#[test]
fn no_command_prints_control_characters_of_objects_to_a_terminal() {
    let (_runtime, address) = hostile_cluster().serve();
    let folder = Folder::new(address);
    for run in runs(&folder) {
        let is_top = run.args[0] == "top";
        let mut variants = vec![(run.args.clone(), is_top)];
        if ["list", "summary", "tree"].contains(&&*run.args[0]) {
            variants.push(([&run.args[..], &["--watch".to_owned()]].concat(), true));
        }
        for (args, is_endless) in variants {
            let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
            command.args(&args);
            command.env("KUBECONFIG", folder.path("kubeconfig"));
            command.env("IFO_COMPLETE", completion(&args));
            let mut terminal = Terminal::start(command, 180, 50);
            let output = terminal.whole_output(is_endless.then_some(MARK));
            check(&run, &args, &without_own_sequences(&output, is_top));
        }
    }
}

#[test]
fn no_command_prints_control_characters_of_error_answers() {
    // `wait` repeats refused requests until its timeout, so the runs for all codes are parallel.
    std::thread::scope(|scope| {
        for code in [400, 403, 404, 500, 503] {
            scope.spawn(move || {
                let (_runtime, address) = serve(move |_| refusing_cluster(code));
                let folder = Folder::new(address);
                for run in runs(&folder) {
                    let printed = to_pipe(&folder, &run.args);
                    assert_harmless(&printed, &format!("{code}: {:?}", run.args));
                }
            });
        }
    });
}

#[test]
fn no_command_prints_control_characters_of_files() {
    let folder = Folder::new(([127, 0, 0, 1], 1).into());
    let from = ["--from".to_owned(), folder.path("gathered")];
    for run in runs(&folder) {
        if ["list", "summary", "tree", "get", "describe"].contains(&&*run.args[0]) {
            let args = [&run.args[..], &from].concat();
            check(&run, &args, &to_pipe(&folder, &args));
        }
    }
}

/// The text of the attacker must stay harmful. Otherwise, the other tests would check nothing.
#[test]
fn the_checks_find_control_characters() {
    for c in HOSTILE.chars().filter(|c| ifo_api::is_unprintable(*c)) {
        let found = std::panic::catch_unwind(|| assert_harmless(&format!("a{c}"), "check"));
        assert!(found.is_err(), "{c:?}");
    }
    for sequence in [
        "\u{1b}[5m",
        "\u{1b}]0;a\u{7}",
        "\u{1b}[2J",
        "\u{1b}[?25l",
        "a\rb",
    ] {
        assert_eq!(without_own_sequences(sequence, false), sequence);
    }
    let styled = "\u{1b}[1m\u{1b}[31ma\u{1b}[0m\r\n";
    assert_eq!(without_own_sequences(styled, false), "a\n");
}
