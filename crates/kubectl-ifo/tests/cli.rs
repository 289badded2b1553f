//! Tests of the kubectl plugin as a program: its output and its exit codes. Most of them are
//! transcripts, which `cli/transcript.rs` describes. The other tests need a terminal, or a server
//! whose answers change.

#[path = "../../../tests/binaries/mod.rs"]
mod binaries;
#[path = "cli/browser.rs"]
mod browser;
#[path = "cli/cluster.rs"]
mod cluster;
#[path = "cli/completion.rs"]
mod completion;
#[path = "cli/fake_apiserver.rs"]
mod fake_apiserver;
#[path = "cli/hostile_files.rs"]
mod hostile_files;
#[path = "cli/hostile_text.rs"]
mod hostile_text;
#[path = "cli/k9s.rs"]
mod k9s;
#[path = "cli/pseudo_terminal.rs"]
mod pseudo_terminal;
#[path = "cli/recordings.rs"]
mod recordings;
#[path = "cli/requests.rs"]
mod requests;
#[path = "cli/terminal.rs"]
mod terminal;
#[path = "cli/top.rs"]
mod top;
#[path = "cli/transcript.rs"]
mod transcript;
#[path = "cli/ui.rs"]
mod ui;
#[path = "cli/waits.rs"]
mod waits;
#[path = "cli/watches.rs"]
mod watches;

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
}
