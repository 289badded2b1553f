//! Tests of the output on a terminal that is too narrow for complete texts. The fake API server
//! serves the kind `VirtualMachine` with the short name `vm`.

use super::pseudo_terminal::Terminal;
use super::tests_with_fake_apiserver::{operation, serve_cluster};
use portable_pty::CommandBuilder;
use serde_json::{Value, json};

const MESSAGE: &str = "moves to another node, which has enough memory for the machine";

/// Returns an operation on a kind that has no short name. The initials of the kind are `vm`.
fn on_volume_mirror() -> Value {
    let mut it = operation(2);
    it["spec"]["subject"]["kind"] = json!("VolumeMirror");
    it
}

fn start(command: &[&str], columns: u16) -> (tokio::runtime::Runtime, Terminal) {
    let mut machine = operation(1);
    machine["status"]["message"] = json!(MESSAGE);
    let (runtime, address) = serve_cluster(vec![machine, on_volume_mirror()]);
    let mut plugin = CommandBuilder::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    plugin.args(command);
    plugin.arg("--server");
    plugin.arg(format!("http://{address}"));
    plugin.env("KUBECONFIG", "/nonexistent");
    plugin.env("NO_PROXY", "127.0.0.1");
    (runtime, Terminal::start(plugin, columns, 24))
}

#[test]
fn list_and_top_show_short_names_that_discovery_serves_and_messages_on_a_second_line() {
    for command in [&["list"][..], &["list", "-w"], &["top"]] {
        for columns in [60, 80, 119] {
            let (_runtime, mut terminal) = start(command, columns);
            terminal.until("the message below its row", |screen| {
                let text = screen.contents();
                let is_row = |it: &&str| it.contains("vm/vm-1 ") || it.contains("Machine/vm-1 ");
                let mut lines = text.lines().skip_while(|it| !is_row(it));
                let row = lines.next().unwrap_or_default();
                let below = lines.next().unwrap_or_default();
                row.starts_with("shop") && below.starts_with("  moves to another node")
            });
            terminal.shows(&["VolumeMirro"]);
        }
        let (_runtime, mut terminal) = start(command, 120);
        terminal.until("the short name and the message in one line", |screen| {
            let text = screen.contents();
            let row = text.lines().find(|it| it.contains(" vm/vm-1 "));
            row.is_some_and(|it| it.contains("  moves to another node"))
        });
        terminal.hides(&["VM/", "VirtualMachine/"]);
        let (_runtime, mut terminal) = start(command, 200);
        terminal.until("complete texts", |screen| {
            let text = screen.contents();
            let row = text.lines().find(|it| it.contains("VirtualMachine/vm-1"));
            row.is_some_and(|it| it.contains(MESSAGE))
        });
    }
}

#[test]
fn a_tree_shows_short_names_before_it_cuts_names() {
    let (_runtime, mut terminal) = start(&["tree"], 38);
    terminal.shows(&[" vm/vm-1 ", " VolumeMirror/vm-2 "]);
    let (_runtime, mut terminal) = start(&["tree"], 119);
    terminal.shows(&[" VirtualMachine/vm-1 ", " VolumeMirror/vm-2 "]);
}
