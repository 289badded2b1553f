//! Tests of the screen of `top` after keys, changes of operations, and changes of the size.

use super::model::{LoopAction, MAX_COMPLETED, Model};
use super::view;
use crate::cluster::problem::Problem;
use crate::operations::operation::InFlightOperation;
use crate::operations::operation_source::OperationChange;
use crate::output::columns::OperationColumn;
use crate::output::print::TextStyle;
use crate::output::sort::SortBy;
use crate::test_fixtures::{OperationFixture as _, condition, now, on, short_names};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ifo_api::live::State;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use std::time::Duration;

fn sample_operations() -> Vec<InFlightOperation> {
    let mut migrating = on("shop", "VirtualMachine", "database-0", "Migrating")
        .since(190)
        .state("Progressing", Some(45));
    migrating.status.message = "Migration database-0-x is copying memory".into();
    migrating.spec.initiator = Some("ann".into());
    migrating.status.cancel = Some("virtctl migrate-cancel database-0".into());
    migrating.metadata.labels = [("team".into(), "data".into())].into_iter().collect();
    migrating.status.conditions = vec![condition("Detected", "True")];
    let volume = on("shop", "DataVolume", "disk-7", "Importing")
        .since(60)
        .state("Progressing", Some(9));
    let mut node = on("", "Node", "worker-1", "Draining")
        .since(7200)
        .state("Blocked", None);
    node.status.message = "Cannot evict pod shop/web-0:\nit would violate its budget".into();
    let csv = on("shop", "CSV", "my-operator", "Installing")
        .since(45)
        .state("Failing", None);
    let done = on("shop", "VirtualMachine", "web-1", "Starting")
        .since(30)
        .state("Succeeded", Some(100));
    vec![migrating, volume, node, csv, done]
}

/// A model of `top` with its screen.
struct TopFixture {
    model: Model,
    terminal: Terminal<TestBackend>,
}

impl TopFixture {
    fn new(width: u16, height: u16) -> Self {
        let about = "all namespaces, https://127.0.0.1:6443".to_owned();
        let model = Model {
            about,
            order: SortBy::Column(OperationColumn::Age),
            now: now(),
            style: TextStyle {
                short_names: short_names(),
                ..TextStyle::default()
            },
            ..Model::default()
        };
        Self {
            model,
            terminal: Terminal::new(TestBackend::new(width, height)).unwrap(),
        }
    }

    fn with(width: u16, height: u16, operations: Vec<InFlightOperation>) -> Self {
        let mut seen = Self::new(width, height);
        for operation in operations {
            seen.apply(operation);
        }
        seen.model.change(OperationChange::Synced);
        seen
    }

    fn apply(&mut self, operation: InFlightOperation) {
        self.model
            .change(OperationChange::Applied(Box::new(operation)));
    }

    fn delete(&mut self, operation: InFlightOperation) {
        let change = OperationChange::Deleted(Box::new(operation));
        self.model.change(change);
    }

    fn resize(&mut self, width: u16, height: u16) {
        self.terminal.backend_mut().resize(width, height);
    }

    fn press(&mut self, code: KeyCode) -> LoopAction {
        let action = self.model.key(code.into());
        self.draw();
        action
    }

    fn type_text(&mut self, text: &str) {
        for c in text.chars() {
            self.press(KeyCode::Char(c));
        }
    }

    fn draw(&mut self) {
        self.model.refresh_rows();
        let model = &mut self.model;
        self.terminal
            .draw(|frame| view::draw(model, frame))
            .unwrap();
    }

    /// Returns the lines on the screen, without trailing blanks.
    fn lines(&mut self) -> Vec<String> {
        self.draw();
        let text = self.terminal.backend().to_string();
        // Each line is in quotes. A note about wide characters can follow.
        let lines = text.lines().map(|it| &it[1..it.rfind('"').unwrap()]);
        lines.map(|it| it.trim_end().to_owned()).collect()
    }

    #[track_caller]
    fn shows(&mut self, expected: &[&str]) {
        let lines = self.lines();
        for text in expected {
            let is_shown = lines.iter().any(|it| it.contains(text));
            assert!(is_shown, "{text}\n{}", lines.join("\n"));
        }
    }

    /// Returns the names of the subjects in the table. The name under the cursor is in brackets.
    fn subjects(&mut self) -> Vec<String> {
        self.model.refresh_rows();
        let cursor = self.model.cursor;
        let rows = self.model.rows.iter().enumerate();
        let rows = rows.map(|(number, row)| {
            let name = &row.operation.spec.subject.name;
            if number == cursor {
                format!("[{name}]")
            } else {
                name.to_string()
            }
        });
        rows.collect()
    }
}

#[test]
fn the_screen_shows_counts_rows_and_keys() {
    let mut seen = TopFixture::with(160, 9, sample_operations());
    let lines = seen.lines();
    assert!(lines[0].starts_with("1 failing  1 blocked  2 progressing  1 succeeded"));
    assert!(lines[0].ends_with("live"));
    assert!(lines[1].starts_with("by age, all namespaces, https://127.0.0.1:6443"));
    assert!(lines[2].starts_with("NAMESPACE"), "{lines:?}");
    assert!(lines[3].contains("Node/worker-1"), "{lines:?}");
    assert!(lines[3].ends_with("Cannot evict pod shop/web-0: it would violate its budget"));
    assert!(lines[4].contains("45%") && lines[4].contains("3m10s"));
    assert!(lines[8].starts_with("q quit") && lines[8].ends_with("1/4"));
    // If a line has too little room for its message, the message is on the next line.
    seen.resize(60, 12);
    let lines = seen.lines();
    assert!(lines[4].starts_with("  Cannot evict pod"), "{lines:?}");
    seen.resize(160, 9);
    seen.press(KeyCode::Char('c'));
    assert_eq!(seen.subjects().len(), 5);
}

#[test]
fn a_filter_applies_while_it_is_typed() {
    let mut seen = TopFixture::with(60, 9, sample_operations());
    seen.press(KeyCode::Char('/'));
    seen.type_text("-0 VIRTUALQ");
    seen.press(KeyCode::Backspace);
    seen.shows(&["/-0 VIRTUAL"]);
    let cursor = seen.terminal.backend().cursor_position();
    assert_eq!((cursor.x, cursor.y), (11, 8));
    seen.press(KeyCode::Enter);
    assert_eq!(seen.subjects(), ["[database-0]"]);
    seen.shows(&["filter \"-0 VIRTUAL\""]);
    // `q` is a letter in a filter, and a command elsewhere.
    seen.press(KeyCode::Char('/'));
    seen.press(KeyCode::Char('q'));
    seen.shows(&["No operation matches the filter"]);
    seen.press(KeyCode::Esc);
    assert_eq!(seen.subjects().len(), 4);
    assert!(matches!(seen.press(KeyCode::Char('q')), LoopAction::Quit));
}

#[test]
fn a_filter_has_a_limited_length_and_can_be_cleared() {
    let mut seen = TopFixture::with(40, 9, sample_operations());
    let control = |c| KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL);
    seen.press(KeyCode::Char('/'));
    seen.type_text(&"x".repeat(300));
    assert_eq!(seen.model.filter.len(), 200);
    assert_eq!(seen.lines()[8], "x".repeat(39));
    seen.model.key(control('u'));
    assert_eq!(seen.model.filter, "");
    assert!(matches!(seen.model.key(control('c')), LoopAction::Quit));
}

#[test]
fn the_sort_order_cycles_and_reverses() {
    let mut seen = TopFixture::with(80, 24, sample_operations());
    let age = ["[worker-1]", "database-0", "disk-7", "my-operator"];
    assert_eq!(seen.subjects(), age);
    seen.press(KeyCode::Char('s'));
    let progress = ["[database-0]", "disk-7", "worker-1", "my-operator"];
    assert_eq!(seen.subjects(), progress);
    seen.press(KeyCode::Left);
    assert_eq!(seen.subjects(), age);
    seen.press(KeyCode::Left);
    let worst = ["[my-operator]", "worker-1", "database-0", "disk-7"];
    assert_eq!(seen.subjects(), worst);
    seen.press(KeyCode::Right);
    seen.press(KeyCode::Char('r'));
    let newest = ["[my-operator]", "disk-7", "database-0", "worker-1"];
    assert_eq!(seen.subjects(), newest);
}

#[test]
fn the_cursor_follows_its_operation_and_stays_at_the_top() {
    let mut seen = TopFixture::with(80, 24, sample_operations());
    seen.apply(on("shop", "Pod", "older", "Starting").since(9000));
    assert_eq!(seen.subjects()[0], "[older]");
    seen.press(KeyCode::Down);
    assert_eq!(seen.subjects()[1], "[worker-1]");
    seen.apply(on("shop", "Pod", "oldest", "Starting").since(9999));
    assert_eq!(seen.subjects()[2], "[worker-1]");
    seen.delete(sample_operations().remove(2));
    assert_eq!(seen.subjects()[2], "[database-0]");
    seen.press(KeyCode::End);
    seen.delete(sample_operations().remove(3));
    assert_eq!(seen.subjects()[3], "[disk-7]");
}

#[test]
fn the_cursor_is_always_visible() {
    let many = (0..10_000).map(|number| {
        let mut operation = on("a", "Pod", &format!("p{number:04}"), "Starting");
        // The message does not fit on the line, so each row has two lines.
        operation.status.message = "x".repeat(80).into();
        operation.since(10_000 - number)
    });
    let mut seen = TopFixture::with(80, 10, many.collect());
    seen.draw();
    // Header, heading and footer take four of the ten lines, so the table has three rows of two
    // lines. One row of a page stays visible.
    for (key, cursor, first) in [
        (KeyCode::PageDown, 2, 0),
        (KeyCode::PageDown, 4, 2),
        (KeyCode::Char('k'), 3, 2),
        (KeyCode::End, 9_999, 9_997),
        (KeyCode::Down, 9_999, 9_997),
        (KeyCode::PageUp, 9_997, 9_997),
        (KeyCode::PageUp, 9_995, 9_995),
        (KeyCode::Char('j'), 9_996, 9_995),
        (KeyCode::Home, 0, 0),
        (KeyCode::Up, 0, 0),
    ] {
        seen.press(key);
        assert_eq!(seen.model.cursor, cursor, "{key:?}");
        let lines = seen.lines();
        assert!(lines[3].contains(&format!("Pod/p{first:04}")), "{lines:?}");
    }
    seen.press(KeyCode::End);
    seen.resize(80, 8);
    seen.shows(&["Pod/p9999"]);
    seen.resize(80, 14);
    // The frame after a change of the size fills the page.
    seen.draw();
    seen.shows(&["Pod/p9995", "Pod/p9999", "10000/10000"]);
}

#[test]
fn a_piece_of_work_is_one_row_whose_members_are_toggled() {
    let mut operations = sample_operations();
    for number in [0, 1] {
        operations[number].spec.work = Some("migration".into());
    }
    operations[1].status.conditions = vec![condition("Overdue", "True")];
    let mut seen = TopFixture::with(160, 12, operations);
    assert_eq!(seen.subjects(), ["[worker-1]", "database-0", "my-operator"]);
    seen.shows(&["1 overdue or stalled", "Progressing (overdue)"]);
    seen.press(KeyCode::Char('e'));
    seen.shows(&["└ VirtualMachine/database-0", "└ DataVolume/disk-7"]);
    // The line of the piece and the row of its first member have the same operation. The cursor
    // still moves from the line to this row.
    seen.press(KeyCode::Down);
    seen.press(KeyCode::Down);
    assert_eq!(seen.model.cursor, 2);
    seen.press(KeyCode::Char('e'));
    assert_eq!(seen.subjects().len(), 3);
    // A word of a member finds the line of its piece.
    seen.press(KeyCode::Char('/'));
    seen.type_text("disk-7");
    assert_eq!(seen.subjects(), ["[database-0]"]);
}

#[test]
fn operations_that_leave_the_selected_states_disappear() {
    let mut seen = TopFixture::new(80, 24);
    seen.model.filters.states = vec![State::Failing];
    for operation in sample_operations() {
        seen.apply(operation);
    }
    assert_eq!(seen.subjects(), ["[my-operator]"]);
    let recovered = sample_operations().remove(3).state("Progressing", None);
    seen.apply(recovered);
    assert!(seen.subjects().is_empty());
}

#[test]
fn a_deleted_operation_stays_only_if_it_had_completed() {
    let mut seen = TopFixture::with(80, 24, Vec::new());
    seen.model.shows_completed = true;
    let pod = |number: usize, state: &str| {
        on("a", "Pod", &format!("{number:05}"), "Starting").state(state, None)
    };
    seen.apply(pod(0, "Progressing"));
    seen.delete(pod(0, "Progressing"));
    assert!(seen.subjects().is_empty());
    let ended = |number: usize| {
        let seconds = i64::try_from(number).unwrap();
        pod(number, "Succeeded").ended(90_000 - seconds)
    };
    for number in 0..=MAX_COMPLETED {
        seen.apply(ended(number));
    }
    assert_eq!(seen.subjects().len(), MAX_COMPLETED + 1);
    seen.delete(ended(MAX_COMPLETED));
    let subjects = seen.subjects();
    assert_eq!(subjects.len(), MAX_COMPLETED);
    assert!(!subjects.iter().any(|it| it.contains("00000")));
}

#[test]
fn the_state_of_the_watch_is_shown() {
    let mut seen = TopFixture::new(80, 6);
    seen.shows(&["none in flight", "live", "No operations in flight"]);
    seen.model.filters.component = vec!["kubevirt".to_owned()];
    seen.shows(&["No operations in flight match"]);
    let incomplete = "the rule set vm-rules does not work".to_owned();
    seen.model.incomplete = Some(incomplete.clone());
    seen.shows(&[&incomplete]);
    let lost = || Problem::Unreachable("https://127.0.0.1:6443: connection refused".to_owned());
    seen.model.change(OperationChange::Incomplete(None));
    seen.model.now = now() + Duration::from_secs(4);
    // The interruption begins with the last answer.
    seen.model.change(OperationChange::Lost(lost()));
    seen.model.now = now() + Duration::from_secs(12);
    // A further failure does not change the time at which the interruption began.
    seen.model.change(OperationChange::Lost(lost()));
    seen.shows(&["lost 12s ago", "cannot reach the cluster at https://"]);
    seen.model.change(OperationChange::Synced);
    seen.shows(&["live"]);
}

#[test]
fn the_detail_page_shows_an_operation_and_scrolls() {
    let mut seen = TopFixture::with(80, 50, sample_operations());
    seen.press(KeyCode::Down);
    seen.press(KeyCode::Enter);
    seen.shows(&[
        "VirtualMachine/database-0 in shop",
        "State:                Progressing",
        "Message:              Migration database-0-x is copying memory",
        "Initiator:            ann",
        "To Stop It:           virtctl migrate-cancel database-0",
        "progress: 45",
        "<not shown: being read>",
    ]);
    let mut later = sample_operations().remove(0);
    later.status.progress = Some(46);
    seen.apply(later.clone());
    seen.shows(&["progress: 46"]);
    seen.resize(20, 6);
    seen.press(KeyCode::End);
    seen.shows(&["data"]);
    seen.press(KeyCode::Home);
    seen.shows(&["VirtualMachine/datab"]);
    seen.delete(later);
    assert_eq!(seen.subjects().len(), 3);
    assert!(seen.model.detail.is_none());
}

#[test]
fn no_screen_size_is_too_small() {
    for height in 1..9 {
        for width in (1..45).step_by(3) {
            let mut seen = TopFixture::with(width, height, sample_operations());
            seen.type_text("j? /xc");
            for key in [KeyCode::Esc, KeyCode::Enter, KeyCode::End] {
                seen.press(key);
            }
            seen.resize(height, width);
            seen.draw();
        }
    }
}
