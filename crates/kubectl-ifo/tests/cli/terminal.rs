//! Tests of the output on a terminal that is too narrow for complete texts. The fake API server serves the kind `VirtualMachine` with the short name `vm`.

use super::cluster::Cluster;
use super::pseudo_terminal::Terminal;
use portable_pty::CommandBuilder;

const MESSAGE: &str = "moves to another node, which has enough memory for the machine";

/// Runs a command of the plugin on a terminal. `VolumeMirror` has no short name, but its initials are
/// `vm`.
fn start(command: &[&str], columns: u16, operations: &str) -> (tokio::runtime::Runtime, Terminal) {
    let (runtime, address) = Cluster::read(operations).serve();
    let mut plugin = CommandBuilder::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    plugin.args(command);
    plugin.arg("--server");
    plugin.arg(format!("http://{address}"));
    plugin.env("KUBECONFIG", "/nonexistent");
    plugin.env("NO_PROXY", "127.0.0.1");
    (runtime, Terminal::start(plugin, columns, 24))
}

fn two_operations() -> String {
    format!(
        "operations: [{{status: {{message: '{MESSAGE}'}}}}, \
         {{number: 2, spec: {{subject: {{kind: VolumeMirror}}}}}}]"
    )
}

#[test]
fn list_and_top_show_short_names_that_discovery_serves_and_messages_on_a_second_line() {
    for command in [&["list"][..], &["top"]] {
        let start = |columns| start(command, columns, &two_operations());
        for columns in [60, 119] {
            let (_runtime, mut terminal) = start(columns);
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
        let (_runtime, mut terminal) = start(120);
        terminal.until("the short name and the message in one line", |screen| {
            let text = screen.contents();
            let row = text.lines().find(|it| it.contains(" vm/vm-1 "));
            row.is_some_and(|it| it.contains("  moves to another node"))
        });
        terminal.hides(&["VM/", "VirtualMachine/"]);
        let (_runtime, mut terminal) = start(200);
        terminal.until("complete texts", |screen| {
            let text = screen.contents();
            let row = text.lines().find(|it| it.contains("VirtualMachine/vm-1"));
            row.is_some_and(|it| it.contains(MESSAGE))
        });
    }
}

#[test]
fn a_tree_is_cut_at_the_right() {
    for (columns, machine) in [(16, " VirtualMach…"), (119, " VirtualMachine/vm-1 ")] {
        let (_runtime, mut terminal) = start(&["tree"], columns, &two_operations());
        terminal.shows(&[machine]);
    }
}
