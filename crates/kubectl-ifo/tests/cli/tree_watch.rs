//! Tests of the command `tree --watch` on a terminal, where it redraws its output.

use super::pseudo_terminal::Terminal;
use super::tests_with_fake_apiserver::{operation, serve_cluster};
use portable_pty::CommandBuilder;
use serde_json::json;
use std::time::Duration;

#[test]
fn a_tree_redrawn_in_place_preserves_earlier_terminal_output() {
    let operations = (0..30).map(|number| {
        let mut operation = operation(number);
        operation["status"]["message"] = json!("moves to another node ".repeat(10));
        operation
    });
    let (_runtime, address) = serve_cluster(operations.collect());
    let mut command = CommandBuilder::new("sh");
    command.args(["-c", "echo earlier output; exec \"$0\" \"$@\""]);
    command.arg(env!("CARGO_BIN_EXE_kubectl-ifo"));
    command.args(["tree", "-w", "-o", "wide", "--server"]);
    command.arg(format!("http://{address}"));
    command.env("KUBECONFIG", "/nonexistent");
    command.env("NO_PROXY", "127.0.0.1");
    let mut tree = Terminal::start(command, 80, 24);
    let fills_the_screen = |screen: &vt100::Screen| {
        let text = screen.contents();
        text.starts_with("kubevirt\n  shop\n    VirtualMachine/vm-0")
            && text.lines().all(|line| line.chars().count() <= 80)
            && text.trim_end().ends_with("… 10 more lines")
    };
    tree.until("a tree as large as the terminal", fills_the_screen);
    // The tree is redrawn every second.
    std::thread::sleep(Duration::from_secs(2));
    tree.until("the same tree again", fills_the_screen);
    let above = tree.above();
    assert_eq!(above.matches("earlier output").count(), 1, "{above}");
    assert_eq!(above.matches("VirtualMachine/").count(), 0, "{above}");
}
