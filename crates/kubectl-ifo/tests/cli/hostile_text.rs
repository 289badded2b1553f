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

/// The flags with which a command is run. The test also adds each output format of the command.
struct Run {
    args: Vec<String>,
    /// True if some output of the command must contain text of the attacker.
    shows_text: bool,
}

/// Returns the runs of a command. `command` is its name as in its man page: `rules-check`. Panics
/// for a command that this test does not know, so that each new command gets runs.
fn runs(command: &str, folder: &Folder) -> Vec<Run> {
    let files = [
        "rules.yaml",
        "invalid.yaml",
        "objects.json",
        "object.json",
        "stream.jsonl",
        "bundle.tar.gz",
    ]
    .map(|name| folder.path(name));
    let [rules, invalid, objects, object, stream, bundle] = files.each_ref().map(String::as_str);
    let lines: Vec<Vec<&str>> = match command {
        "list" | "summary" | "history" | "top" => vec![vec![]],
        "tree" => vec![vec![], vec!["--for", "VirtualMachine/vm-1"]],
        "get" => vec![vec![NAME], vec!["zqx-missing"]],
        "describe" => vec![
            vec![NAME],
            vec!["VirtualMachine/vm-1"],
            vec!["zqx\u{9b}/a\u{1b}"],
        ],
        "impact" => vec![vec!["worker-3"], vec!["zqx\u{9b}\u{1b}[5m"]],
        "wait" => vec![
            vec!["--for=idle", "--timeout=0"],
            vec!["--for=idle", "--timeout=1s"],
            vec!["--for=started", "--timeout=10s"],
            vec!["--for=completed", "--timeout=1s"],
            vec!["--for=idle", "--timeout=0", "-c", "zqx\u{9b}\u{1b}[5m"],
        ],
        "support-bundle" => vec![
            vec!["-O", bundle],
            vec!["-O", "/zqx\u{9b}/\u{1b}[5m.tar.gz"],
        ],
        "ui" => vec![
            vec!["--export", "/none/page.html"],
            vec!["--no-open", "--port", "zqx\u{9b}\u{1b}[5m"],
        ],
        "version" => vec![vec![], vec!["--zqx\u{9b}\u{1b}[5m\u{202e}"]],
        "completion" => vec![
            vec!["bash"],
            vec!["zsh"],
            vec!["fish"],
            vec!["zqx\u{9b}\u{1b}[5m"],
        ],
        "rules-check" => vec![
            vec![invalid],
            vec![rules, "--cluster"],
            vec!["zqx\u{9b}\u{1b}[5m"],
        ],
        "rules-roles" => vec![vec![invalid], vec![rules]],
        "rules-test" => vec![
            vec![rules, "--objects", objects],
            vec![rules, "--objects", objects, "--explain"],
            vec![rules, "--objects", objects, "--expect"],
            vec![invalid, "--objects", objects],
        ],
        "rules-replay" => vec![
            vec![rules, "--stream", stream],
            vec![invalid, "--stream", stream],
        ],
        "rules-eval" => vec![
            vec!["object.metadata", "--object", object],
            vec!["object.zqx == '\u{9b}\u{1b}[5m'", "--object", object],
            vec!["'zqx\u{9b}\u{1b}[5m' + 1", "--object", object],
        ],
        "__complete" => vec![vec!["get", ""], vec!["list", "-n", ""]],
        _ => panic!("add the command {command} to this test"),
    };
    lines
        .into_iter()
        .map(|args| Run {
            shows_text: shows_text(command, &args),
            args: args.into_iter().map(str::to_owned).collect(),
        })
        .collect()
}

/// Returns true if the output must contain text of the attacker.
fn shows_text(command: &str, args: &[&str]) -> bool {
    let has_hostile_argument = args.iter().any(|it| it.contains(MARK));
    let prints_only_names_of_files_or_shells = ["completion", "__complete", "support-bundle", "ui"];
    let has_no_text = prints_only_names_of_files_or_shells.contains(&command)
        || (["rules-check", "rules-roles"].contains(&command) && args[0].ends_with("rules.yaml"))
        || (command == "wait" && args.contains(&"--for=completed"));
    if command == "rules-eval" {
        // The errors of other expressions quote the expression only in text.
        return args[0] == "object.metadata";
    }
    has_hostile_argument || !has_no_text
}

/// Returns the names of all commands that are not groups of commands, from the man pages that clap
/// generates: `rules-check`.
fn commands() -> Vec<String> {
    let folder = tempfile::tempdir().expect("a temporary folder can be created");
    let mut man = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    let output = execute(man.arg("__man").arg(folder.path()));
    output.exits(0);
    let pages = std::fs::read_dir(folder.path()).expect("the folder is readable");
    let mut commands: Vec<String> = pages
        .filter_map(|page| {
            let name = page.expect("the folder is readable").file_name();
            let name = name.to_str().expect("the name is UTF-8");
            let command = name.strip_prefix("kubectl-ifo-")?.strip_suffix(".1")?;
            (command != "rules").then(|| command.to_owned())
        })
        .collect();
    assert!(commands.len() > 12, "{commands:?}");
    // This command is hidden, so it has no page. Shells run it.
    commands.push("__complete".to_owned());
    commands
}

/// Returns the words with which the plugin runs a command.
fn words(command: &str) -> Vec<&str> {
    match command.strip_prefix("rules-") {
        Some(name) => vec!["rules", name],
        None => vec![command],
    }
}

/// Returns the command line of a run.
fn command_line(command: &str, run: &Run) -> Vec<String> {
    let words = words(command).into_iter().map(str::to_owned);
    words.chain(run.args.iter().cloned()).collect()
}

/// Runs the plugin, and returns both outputs as one text.
fn to_pipe(folder: &Folder, arguments: &[String]) -> String {
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    plugin.env("KUBECONFIG", folder.path("kubeconfig"));
    let output = execute(plugin.args(arguments).stdin(Stdio::null()));
    output.stdout + &output.stderr
}

fn help(command: &str) -> String {
    let mut plugin = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    execute(plugin.args(words(command)).arg("--help")).stdout
}

/// Returns the values of the flag `--output` from the help of a command.
fn formats(command: &str) -> Vec<String> {
    let help = help(command);
    let Some((_, section)) = help.split_once("-O, --output") else {
        return Vec::new();
    };
    let section = section.split("\n  -").next().unwrap_or_default();
    let section = section.split("\n      --").next().unwrap_or_default();
    if let Some((_, values)) = section.split_once("[possible values: ") {
        let (values, _) = values.split_once(']').expect("the list ends");
        return values.split(", ").map(str::to_owned).collect();
    }
    let values = section
        .lines()
        .filter_map(|line| line.trim().strip_prefix("- "));
    values
        .filter_map(|line| Some(line.split_once(':')?.0.to_owned()))
        .collect()
}

/// Checks that a text contains no character that could control a terminal, and that no line begins
/// with text of the attacker.
#[track_caller]
fn assert_harmless(text: &str, what: &str) {
    let is_unprintable = |c: char| ifo_api::is_unprintable(c);
    if let Some(at) = text.find(is_unprintable) {
        let start = text.floor_char_boundary(at.saturating_sub(200));
        panic!(
            "{what}: {:?}",
            &text[start..text.ceil_char_boundary(at + 50)]
        );
    }
    let forged = text.lines().find(|line| line.starts_with("forged"));
    assert_eq!(forged, None, "{what}: {text}");
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
            Some('h' | 'l') => is_top && ["?1049", "?2004", "?25"].contains(&parameters),
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

/// Runs the plugin on a terminal, and returns its output. If `stops_at` is not None, the function
/// stops the plugin after the output contains this text.
fn on_terminal(folder: &Folder, arguments: &[String], stops_at: Option<&str>) -> String {
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    command.args(arguments);
    command.env("KUBECONFIG", folder.path("kubeconfig"));
    Terminal::start(command, 180, 50).whole_output(stops_at)
}

/// Checks the output of a run.
#[track_caller]
fn check(run: &Run, arguments: &[String], printed: &str) {
    let what = format!("{arguments:?}");
    assert_harmless(printed, &what);
    assert!(
        !run.shows_text || printed.contains(MARK),
        "{what}: {printed}"
    );
}

#[test]
fn no_command_prints_control_characters_of_objects_to_a_pipe() {
    let (_runtime, address) = hostile_cluster().serve();
    let folder = Folder::new(address);
    for command in commands().iter().filter(|it| *it != "top") {
        let mut formats = formats(command);
        if command != "version" && help(command).contains("Possible values:\n          - table") {
            assert!(formats.len() >= 3, "{command}: {formats:?}");
        }
        // Without a format, the command has its default format.
        formats.push(String::new());
        for run in runs(command, &folder) {
            for format in &formats {
                let mut arguments = command_line(command, &run);
                if !format.is_empty() {
                    arguments.extend(["-O".to_owned(), format.clone()]);
                }
                check(&run, &arguments, &to_pipe(&folder, &arguments));
            }
        }
    }
}

#[test]
fn no_command_prints_control_characters_of_objects_to_a_terminal() {
    let (_runtime, address) = hostile_cluster().serve();
    let folder = Folder::new(address);
    for command in commands() {
        let is_top = command == "top";
        for run in runs(&command, &folder) {
            let arguments = command_line(&command, &run);
            let mut variants = vec![(arguments.clone(), is_top.then_some(MARK))];
            if help(&command).contains("--watch") {
                let watch = [arguments, vec!["--watch".to_owned()]].concat();
                variants.push((watch, Some(MARK)));
            }
            for (arguments, stops_at) in variants {
                let output = on_terminal(&folder, &arguments, stops_at);
                check(&run, &arguments, &without_own_sequences(&output, is_top));
            }
        }
    }
}

#[test]
fn no_command_prints_control_characters_of_error_answers() {
    let commands = commands();
    // `wait` repeats refused requests until its timeout, so the runs for all codes are parallel.
    std::thread::scope(|scope| {
        for code in [400, 403, 404, 500, 503] {
            let commands = &commands;
            scope.spawn(move || {
                let (_runtime, address) = serve(move |_| refusing_cluster(code));
                let folder = Folder::new(address);
                for command in commands {
                    for run in runs(command, &folder) {
                        let arguments = command_line(command, &run);
                        let printed = to_pipe(&folder, &arguments);
                        assert_harmless(&printed, &format!("{code}: {arguments:?}"));
                    }
                }
            });
        }
    });
}

#[test]
fn no_command_prints_control_characters_of_files() {
    let folder = Folder::new(([127, 0, 0, 1], 1).into());
    let from = ["--from".to_owned(), folder.path("gathered")];
    for command in commands() {
        if !help(&command).contains("--from") || command == "top" {
            continue;
        }
        for mut run in runs(&command, &folder) {
            // The files contain no versions and no records.
            run.shows_text &= !["version", "history", "support-bundle"].contains(&&*command);
            let arguments = [command_line(&command, &run), from.to_vec()].concat();
            check(&run, &arguments, &to_pipe(&folder, &arguments));
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
    assert_eq!(
        without_own_sequences("\u{1b}[1m\u{1b}[31ma\u{1b}[0m\r\n", false),
        "a\n"
    );
}
