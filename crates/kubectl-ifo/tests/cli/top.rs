//! Tests of the command `top` on a pseudo-terminal. In most tests, the server is `ifo-apiserver` in
//! demo mode, which reads objects from files.

use super::binaries::other_binary;
use super::cluster::Cluster;
use super::pseudo_terminal::{DEADLINE, Terminal};
use portable_pty::CommandBuilder;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const RULES: &str = r#"{
    "apiVersion": "ifo.kubevirt.io/v1alpha1",
    "kind": "OperationRuleSet",
    "metadata": {"name": "vm-rules"},
    "spec": {
        "component": "tests",
        "target": {"group": "kubevirt.io", "version": "v1", "resource": "virtualmachines"},
        "rules": [{
            "operation": "Migrating",
            "expression": "object.status.printableStatus == 'Migrating'",
            "message": "'to another node'"
        }]
    }
}"#;

/// A server in demo mode, whose objects are files in a folder. The process is killed when this
/// value is dropped.
struct Demo {
    child: Child,
    folder: tempfile::TempDir,
}

impl Demo {
    /// Starts the server with a migrating `VirtualMachine` for each name in `machines`. Waits until
    /// the server has read all objects. Until then, lists have a warning.
    fn start(machines: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("objects")).unwrap();
        std::fs::create_dir(path("rules")).unwrap();
        std::fs::write(path("rules/rules.json"), RULES).unwrap();
        let child = Command::new(other_binary(
            env!("CARGO_BIN_EXE_kubectl-ifo"),
            "ifo-apiserver",
        ))
        .args(["demo", "--debounce-threshold=0", "--kubeconfig-out"])
        .arg(path("kubeconfig"))
        .arg("--objects")
        .arg(path("objects"))
        .arg("--rules")
        .arg(path("rules"))
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
        let demo = Self { child, folder };
        for name in machines {
            demo.write_machine(name, "Migrating");
        }
        let started = Instant::now();
        while !demo.kubeconfig().exists() {
            assert!(started.elapsed() < DEADLINE, "the demo must start");
            std::thread::sleep(Duration::from_millis(50));
        }
        while !demo.list_is_complete() {
            assert!(
                started.elapsed() < DEADLINE,
                "the demo must read the objects"
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        demo
    }

    /// Returns true if `kubectl ifo list` succeeds without a warning.
    fn list_is_complete(&self) -> bool {
        let listed = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"))
            .args(["list", "--kubeconfig"])
            .arg(self.kubeconfig())
            .output()
            .unwrap();
        listed.status.success() && listed.stderr.is_empty()
    }

    fn kubeconfig(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }

    /// Writes the file of the `VirtualMachine` `name`. `state` is its `printableStatus`.
    fn write_machine(&self, name: &str, state: &str) {
        let text = format!(
            "apiVersion: kubevirt.io/v1\nkind: VirtualMachine\nmetadata:\n  name: {name}\n  \
             namespace: shop\nstatus:\n  printableStatus: {state}\n"
        );
        // This function writes the file outside of the folder `objects` and then moves it into the
        // folder. So the server never reads an incomplete file.
        let temporary = self.folder.path().join(format!("{name}.new"));
        std::fs::write(&temporary, text).unwrap();
        let path = self.folder.path().join(format!("objects/{name}.yaml"));
        std::fs::rename(&temporary, path).unwrap();
    }

    fn stop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn start_top(&self, args: &[&str]) -> Terminal {
        Terminal::start(top_command(&self.kubeconfig(), args), 80, 24)
    }
}

impl Drop for Demo {
    fn drop(&mut self) {
        self.stop();
    }
}

fn top_command(kubeconfig: &Path, args: &[&str]) -> CommandBuilder {
    let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_kubectl-ifo"));
    command.args(["top", "--kubeconfig"]);
    command.arg(kubeconfig);
    command.args(args);
    command
}

#[test]
fn operations_appear_and_disappear_and_can_be_filtered_and_opened() {
    let demo = Demo::start(&["database-0", "web-0"]);
    let mut top = demo.start_top(&[]);
    top.shows(&["2 progressing", "live", "VirtualMachine/web-0"]);
    assert!(top.is(|screen| screen.alternate_screen() && screen.hide_cursor()));
    demo.write_machine("web-1", "Migrating");
    top.shows(&["3 progressing", "VirtualMachine/web-1"]);
    demo.write_machine("web-0", "Running");
    top.shows(&["2 progressing"]);
    top.hides(&["VirtualMachine/web-0"]);
    // The key `c` shows completed operations.
    top.type_text("c");
    top.shows(&["VirtualMachine/web-0", "1 ended"]);
    top.type_text("/data");
    top.hides(&["VirtualMachine/web-0", "VirtualMachine/web-1"]);
    top.type_text("\r\r");
    top.shows(&["State:", "to another node", "component:"]);
    top.resize(40, 10);
    top.hides(&["component:"]);
    top.shows(&["VirtualMachine/database-0", "Message:"]);
    top.resize(100, 80);
    // The rule is read from the server.
    top.shows(&["expression:", "UID:"]);
    top.type_text("\x1b");
    top.shows(&["filter \"data\""]);
    top.type_text("q");
    assert!(top.restored().success());
    // `top` leaves no text on the screen.
    assert_eq!(top.text().trim(), "");
}

#[test]
fn keys_and_signals_that_end_top_restore_the_terminal() {
    let demo = Demo::start(&["web-0"]);
    let mut top = demo.start_top(&[]);
    top.shows(&["VirtualMachine/web-0"]);
    top.type_text("/\x03");
    assert!(top.restored().success());
    for (signal, code) in [("TERM", 143), ("INT", 130), ("HUP", 129), ("QUIT", 131)] {
        let mut top = demo.start_top(&[]);
        top.shows(&["VirtualMachine/web-0"]);
        top.signal(signal);
        assert_eq!(top.restored().exit_code(), code, "{signal}");
    }
}

#[test]
fn a_lost_server_is_reported_and_quitting_works() {
    let mut demo = Demo::start(&["web-0"]);
    let mut top = demo.start_top(&[]);
    top.shows(&["VirtualMachine/web-0", "live"]);
    demo.stop();
    top.shows(&["VirtualMachine/web-0", "lost ", "cannot reach the cluster"]);
    top.type_text("q");
    assert!(top.restored().success());
}

#[test]
fn a_startup_error_is_one_line_on_the_normal_screen() {
    let mut demo = Demo::start(&["web-0"]);
    demo.stop();
    let mut top = demo.start_top(&[]);
    assert_eq!(top.restored().exit_code(), 1);
    top.shows(&["error: cannot reach the cluster"]);
    let mut top = demo.start_top(&["--context", "none"]);
    assert_eq!(top.restored().exit_code(), 1);
    top.shows(&["error: failed to load current context: none"]);
}

#[test]
fn an_unknown_kind_is_reported_before_the_alternate_screen() {
    let (_runtime, address) = Cluster::read("{}").serve();
    let server = format!("http://{address}");
    let args = ["--server", &server, "--kind", "Typo"];
    let mut top = Terminal::start(top_command(Path::new("/dev/null"), &args), 80, 24);
    assert_eq!(top.restored().exit_code(), 2);
    top.shows(&["error: there is no kind \"Typo\""]);
}

#[test]
fn without_a_terminal_the_error_names_another_command() {
    let output = Command::new(env!("CARGO_BIN_EXE_kubectl-ifo"))
        .arg("top")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "");
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.ends_with(": kubectl ifo list\n"), "{error}");
}

#[test]
fn colors_are_on_unless_disabled() {
    let demo = Demo::start(&["web-0"]);
    let has_colors = |screen: &vt100::Screen| {
        let (rows, cols) = screen.size();
        (0..rows.get()).any(|row| {
            (0..cols.get()).any(|col| {
                screen.cell(row, col).is_some_and(|cell| {
                    cell.fgcolor() != vt100::Color::Default
                        || cell.bgcolor() != vt100::Color::Default
                })
            })
        })
    };
    let mut top = demo.start_top(&[]);
    top.shows(&["live", "VirtualMachine/web-0"]);
    assert!(top.is(has_colors));
    let mut top = demo.start_top(&["--no-color"]);
    top.shows(&["live", "VirtualMachine/web-0"]);
    assert!(!top.is(has_colors));
}
