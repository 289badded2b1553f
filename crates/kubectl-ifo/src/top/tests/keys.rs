//! Tests how the screen of `top` reacts to keys and to changes of operations.

use super::*;

#[test]
fn a_filter_applies_while_it_is_typed() {
    let mut seen = TopFixture::with(60, 9, sample_operations());
    seen.press(KeyCode::Char('/'));
    seen.type_text("virtual Q");
    seen.press(KeyCode::Backspace);
    seen.shows(
        "
1 failing  1 blocked  2 progressing                     live
oldest first, all namespaces, https://127.0.0.1:6443
NS        SUBJECT       OPERATION  STATE        %     AGE
shop      vm/database…  Migrating  Progressing  45%   3m10s
  Migration database-0-x is copying memory



/virtual    1 found
",
    );
    let cursor = seen.terminal.backend().cursor_position();
    assert_eq!((cursor.x, cursor.y), (9, 8));
    seen.press(KeyCode::Enter);
    assert_eq!(seen.subjects(), ["[database-0]"]);
    // `q` is a letter in a filter, and a command elsewhere.
    seen.press(KeyCode::Char('/'));
    assert_eq!(seen.press(KeyCode::Char('q')), LoopAction::Continue);
    assert!(seen.subjects().is_empty());
    // Esc clears the whole filter.
    seen.press(KeyCode::Esc);
    assert_eq!(seen.subjects().len(), 4);
    assert_eq!(seen.press(KeyCode::Char('q')), LoopAction::Quit);
}

#[test]
fn a_filter_supports_shell_editing_keys_and_paste() {
    let mut seen = TopFixture::with(40, 9, sample_operations());
    let control = |c| TopEvent::Key(KeyEvent::new(KeyCode::Char(c), KeyModifiers::CONTROL));
    seen.model.update(TopEvent::Paste("q".to_owned()));
    seen.press(KeyCode::Char('/'));
    seen.model
        .update(TopEvent::Paste("one two\nthree".to_owned()));
    assert_eq!(seen.model.filter, "one two");
    seen.model.update(control('w'));
    assert_eq!(seen.model.filter, "one ");
    seen.model.update(control('u'));
    assert_eq!(seen.model.filter, "");
    seen.type_text(&"x".repeat(150));
    seen.model.update(TopEvent::Paste("x".repeat(150)));
    assert_eq!(seen.model.filter.len(), 200);
    assert_eq!(seen.lines()[8], format!("/{}", "x".repeat(38)));
    assert_eq!(seen.model.update(control('c')), LoopAction::Quit);
}

#[test]
fn the_sort_order_cycles_and_reverses() {
    let mut seen = TopFixture::with(80, 24, sample_operations());
    let age = ["[worker-1]", "database-0", "disk-7", "my-operator.v2.0"];
    assert_eq!(seen.subjects(), age);
    seen.press(KeyCode::Char('s'));
    let progress = ["[database-0]", "disk-7", "worker-1", "my-operator.v2.0"];
    assert_eq!(seen.subjects(), progress);
    seen.press(KeyCode::Right);
    assert_eq!(seen.subjects()[..2], ["[my-operator.v2.0]", "worker-1"]);
    seen.press(KeyCode::Left);
    assert_eq!(seen.subjects(), progress);
    seen.press(KeyCode::Left);
    seen.press(KeyCode::Char('r'));
    let newest: Vec<String> = age
        .iter()
        .rev()
        .map(|it| it.replace(['[', ']'], ""))
        .collect();
    assert_eq!(seen.subjects()[1..], newest[1..]);
}

#[test]
fn completed_operations_are_toggled() {
    let mut seen = TopFixture::with(80, 24, sample_operations());
    assert_eq!(seen.subjects().len(), 4);
    seen.press(KeyCode::Char('c'));
    assert_eq!(seen.subjects().len(), 5);
    assert!(seen.lines()[0].contains("1 completed"));
    seen.press(KeyCode::Char('c'));
    assert_eq!(seen.subjects().len(), 4);
}

#[test]
fn the_cursor_follows_its_operation_and_stays_at_the_top() {
    let mut seen = TopFixture::with(80, 24, sample_operations());
    let older = operation("Pod/older", "Starting", "Progressing", 9000);
    let oldest = operation("Pod/oldest", "Starting", "Progressing", 9999);
    seen.change(OperationChange::Applied(Box::new(older)));
    assert_eq!(seen.subjects()[0], "[older]");
    seen.press(KeyCode::Down);
    assert_eq!(seen.subjects()[1], "[worker-1]");
    seen.change(OperationChange::Applied(Box::new(oldest)));
    assert_eq!(seen.subjects()[2], "[worker-1]");
    let gone = sample_operations().remove(2);
    seen.change(OperationChange::Deleted {
        operation: Box::new(gone),
        was_active: true,
    });
    assert_eq!(seen.subjects()[2], "[database-0]");
    seen.press(KeyCode::End);
    let last = sample_operations().remove(3);
    seen.change(OperationChange::Deleted {
        operation: Box::new(last),
        was_active: true,
    });
    assert_eq!(seen.subjects()[3], "[disk-7]");
}

#[test]
fn the_cursor_is_always_visible() {
    let many = (0..100).map(|number| {
        operation(
            &format!("Pod/p{number:02}"),
            "Starting",
            "Progressing",
            100 - number,
        )
    });
    let mut seen = TopFixture::with(80, 10, many.collect());
    // Header, heading and footer take four of the ten lines, so the table has six rows.
    let first =
        |seen: &mut TopFixture| seen.lines()[3].split_whitespace().nth(1).map(str::to_owned);
    for (key, cursor, top) in [
        (KeyCode::PageDown, 5, 0),
        (KeyCode::PageDown, 10, 5),
        (KeyCode::Char('k'), 9, 5),
        (KeyCode::End, 99, 94),
        (KeyCode::Down, 99, 94),
        (KeyCode::PageUp, 94, 94),
        (KeyCode::Char('b'), 89, 89),
        (KeyCode::Char('j'), 90, 89),
        (KeyCode::Home, 0, 0),
        (KeyCode::Up, 0, 0),
    ] {
        seen.press(key);
        assert_eq!(seen.model.cursor, cursor, "{key:?}");
        assert_eq!(first(&mut seen), Some(format!("Pod/p{top:02}")), "{key:?}");
    }
    seen.press(KeyCode::End);
    seen.resize(80, 8);
    assert!(seen.lines()[6].contains("Pod/p99"));
    seen.resize(80, 40);
    assert_eq!(first(&mut seen), Some("Pod/p64".to_owned()));
}

#[test]
fn help_lists_all_keys_and_returns_to_the_previous_view() {
    let mut seen = TopFixture::with(80, 24, sample_operations());
    seen.press(KeyCode::Enter);
    seen.press(KeyCode::Char('?'));
    let lines = seen.lines();
    for (keys, _) in HELP {
        assert!(lines.iter().any(|line| line.contains(keys)), "{keys}");
    }
    seen.press(KeyCode::Esc);
    assert!(seen.lines()[2].contains("Node/worker-1"));
}

#[test]
fn a_piece_of_work_is_one_row_whose_members_are_toggled() {
    let mut operations = sample_operations();
    for number in [0, 1] {
        operations[number].work = Some("migration".to_owned());
    }
    operations[1].conditions = vec![ConditionView {
        kind: "Overdue".to_owned(),
        status: "True".to_owned(),
        ..ConditionView::default()
    }];
    let mut seen = TopFixture::with(110, 9, operations);
    seen.shows(
        "
1 failing  1 blocked  1 progressing  1 overdue or stalled                                                 live
oldest first, all namespaces, https://127.0.0.1:6443
NAMESPACE  SUBJECT               OPERATION   STATE                  PROGRESS         AGE
-          Node/worker-1         Draining    Blocked                -                120m
  Cannot evict pod shop/web-0: it would violate its budget
shop       vm/database-0         Migrating   Progressing (overdue)  ████▌░░░░░  45%  3m10s
  Migration database-0-x is copying memory
shop       csv/my-operator.v2.0  Installing  Failing                -                45s
q quit  ? help  Enter detail  / filter  s order  c completed                                               1/3
",
    );
    seen.resize(110, 12);
    seen.press(KeyCode::Char('e'));
    let lines = seen.lines();
    assert!(lines[7].contains("└ vm/database-0"), "{lines:?}");
    assert!(lines[9].contains("└ dv/disk-7"), "{lines:?}");
    // The line of the piece and the row of its first member have the same operation. The cursor
    // still moves from the line to this row.
    seen.press(KeyCode::Down);
    seen.press(KeyCode::Down);
    seen.draw();
    assert_eq!(seen.model.cursor, 2);
    seen.press(KeyCode::Char('e'));
    assert_eq!(seen.subjects().len(), 3);
    // A word of a member finds the line of its piece.
    seen.press(KeyCode::Char('/'));
    seen.type_text("disk-7");
    assert_eq!(seen.subjects(), ["[database-0]"]);
}
