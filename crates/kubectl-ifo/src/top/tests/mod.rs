//! Tests of the screen of `top` after keys, changes of operations, and changes of the size.

use super::keys::HELP;
use super::model::{LoopAction, Model, TopEvent, TopOrder, TopWatchState};
use super::theme::Theme;
use super::view;
use crate::colors::Paint;
use crate::listed_operation::{ConditionView, ListedOperation};
use crate::operation_source::OperationChange;
use crate::problem::Problem;
use crate::snapshots::short_names;
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ifo_api::live::State;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

mod keys;
mod rendering;

fn now() -> Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

/// Creates an operation in `shop` that began `age` seconds ago.
fn operation(subject: &str, operation: &str, state: &str, age: i64) -> ListedOperation {
    let (kind, name) = subject.split_once('/').unwrap();
    let mut it = ListedOperation {
        namespace: Some("shop".to_owned()),
        name: format!("{name}-{}", operation.to_lowercase()),
        operation: operation.to_owned(),
        component: "kubevirt".to_owned(),
        state: state.to_owned(),
        active: !matches!(state, "Succeeded" | "Failed"),
        started: Some(now() - SignedDuration::from_secs(age)),
        ..ListedOperation::default()
    };
    it.subject.kind = kind.to_owned();
    it.subject.api_version = "kubevirt.io/v1".to_owned();
    it.subject.name = name.to_owned();
    it.subject.namespace = Some("shop".to_owned());
    it.subject.uid = Some(name.to_owned());
    it
}

fn sample_operations() -> Vec<ListedOperation> {
    let mut migrating = operation("VirtualMachine/database-0", "Migrating", "Progressing", 190);
    migrating.progress = Some(45);
    migrating.message = "Migration database-0-x is copying memory".to_owned();
    migrating.reason = "CopyingMemory".to_owned();
    migrating.rule_set = "vm-lifecycle-rules".to_owned();
    migrating.labels = [("team", "data"), ("tier", "1")]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
    migrating.conditions = ["Progressing", "Detected", "Completed"]
        .map(|kind| ConditionView {
            kind: kind.to_owned(),
            status: if kind == "Completed" { "False" } else { "True" }.to_owned(),
            reason: "Migrating".to_owned(),
            message: String::new(),
            last_transition_time: Some(now() - SignedDuration::from_secs(190)),
        })
        .into();
    let owner = OwnerReference {
        kind: "VirtualMachinePool".to_owned(),
        name: "database".to_owned(),
        uid: "pool".to_owned(),
        ..OwnerReference::default()
    };
    migrating.subject.owner_references = vec![owner.clone()];
    let mut volume = operation("DataVolume/disk-7", "Importing", "Progressing", 60);
    volume.progress = Some(9);
    volume.subject.owner_references = vec![OwnerReference {
        kind: "VirtualMachine".to_owned(),
        name: "database-0".to_owned(),
        uid: "database-0".to_owned(),
        ..OwnerReference::default()
    }];
    let mut node = operation("Node/worker-1", "Draining", "Blocked", 7200);
    node.subject.namespace = None;
    node.message = "Cannot evict pod shop/web-0:\nit would violate its budget".to_owned();
    let mut csv = operation(
        "ClusterServiceVersion/my-operator.v2.0",
        "Installing",
        "Failing",
        45,
    );
    csv.message = "install strategy failed".to_owned();
    let mut done = operation("VirtualMachine/web-1", "Starting", "Succeeded", 30);
    done.progress = Some(100);
    vec![migrating, volume, node, csv, done]
}

/// A model of `top` with its screen.
struct TopFixture {
    model: Model,
    terminal: Terminal<TestBackend>,
    theme: Theme,
}

impl TopFixture {
    fn new(width: u16, height: u16) -> Self {
        let about = "all namespaces, https://127.0.0.1:6443".to_owned();
        let mut seen = Self {
            model: Model::new(about, TopOrder::Age, false, now()),
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
            theme: Theme::default(),
        };
        seen.model.set_short_names(short_names());
        seen.model.update(TopEvent::Resize(width, height));
        seen
    }

    fn with(width: u16, height: u16, operations: Vec<ListedOperation>) -> Self {
        let mut seen = Self::new(width, height);
        for operation in operations {
            seen.change(OperationChange::Applied(Box::new(operation)));
        }
        seen.change(OperationChange::Synced);
        seen
    }

    fn change(&mut self, change: OperationChange) {
        assert_eq!(
            self.model.update(TopEvent::Change(change)),
            LoopAction::Continue
        );
    }

    fn resize(&mut self, width: u16, height: u16) {
        self.terminal.backend_mut().resize(width, height);
        self.model.update(TopEvent::Resize(width, height));
    }

    fn press(&mut self, code: KeyCode) -> LoopAction {
        self.model.update(TopEvent::Key(code.into()))
    }

    fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            self.press(KeyCode::Char(c));
        }
    }

    fn draw(&mut self) {
        self.model.refresh_rows();
        let (model, theme) = (&self.model, self.theme);
        self.terminal
            .draw(|frame| view::draw(model, theme, frame))
            .unwrap();
    }

    /// Returns the lines on the screen, without trailing blanks.
    fn lines(&mut self) -> Vec<String> {
        self.draw();
        let buffer = self.terminal.backend().buffer();
        let width = usize::from(buffer.area.width.max(1));
        buffer
            .content()
            .chunks(width)
            .map(|row| {
                let mut line = String::new();
                let mut hidden = 0;
                for cell in row {
                    // A wide character takes two cells, and the second cell is invisible.
                    if hidden == 0 {
                        line.push_str(cell.symbol());
                        hidden = unicode_width::UnicodeWidthStr::width(cell.symbol()).max(1);
                    }
                    hidden -= 1;
                }
                line.trim_end().to_owned()
            })
            .collect()
    }

    #[track_caller]
    fn shows(&mut self, expected: &str) {
        let lines = self.lines();
        let expected: Vec<&str> = expected.strip_prefix('\n').unwrap().lines().collect();
        let shown = lines.join("\n");
        assert_eq!(
            shown.trim_end(),
            expected.join("\n").trim_end(),
            "\n{shown}\n"
        );
    }

    /// Returns the names of the subjects in the table. The name under the cursor is in brackets.
    fn subjects(&mut self) -> Vec<String> {
        self.model.refresh_rows();
        let cursor = self.model.cursor;
        let rows = self.model.table_rows.iter().enumerate();
        let rows = rows.map(|(number, row)| {
            let name = &row.operation.subject.name;
            if number == cursor {
                format!("[{name}]")
            } else {
                name.clone()
            }
        });
        rows.collect()
    }
}
