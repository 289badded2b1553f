//! Tests of the exact lines on the screen of `top`.

use super::*;

#[test]
fn a_medium_screen_shows_the_oldest_first_with_bars_and_counts() {
    TopFixture::with(80, 24, sample_operations()).shows(
        "
1 failing  1 blocked  2 progressing                                         live
oldest first, all namespaces, https://127.0.0.1:6443
NAMESPACE  SUBJECT               OPERATION   STATE        PROGRESS        AGE
-          Node/worker-1         Draining    Blocked      -               120m
  Cannot evict pod shop/web-0: it would violate its budget
shop       vm/database-0         Migrating   Progressing  ████░░░░░  45%  3m10s
  Migration database-0-x is copying memory
shop       dv/disk-7             Importing   Progressing  ▊░░░░░░░░   9%  60s
shop       csv/my-operator.v2.0  Installing  Failing      -               45s
  install strategy failed













q quit  ? help  Enter detail  / filter  s order  c completed                 1/4
",
    );
}

#[test]
fn a_wide_screen_shows_the_message_in_one_line() {
    TopFixture::with(150, 9, sample_operations()).shows(
        "
1 failing  1 blocked  2 progressing                                                                                                               live
oldest first, all namespaces, https://127.0.0.1:6443
NAMESPACE  SUBJECT               OPERATION   STATE        PROGRESS         AGE     MESSAGE
-          Node/worker-1         Draining    Blocked      -                120m    Cannot evict pod shop/web-0: it would violate its budget
shop       vm/database-0         Migrating   Progressing  ████▌░░░░░  45%  3m10s   Migration database-0-x is copying memory
shop       dv/disk-7             Importing   Progressing  ▉░░░░░░░░░   9%  60s     -
shop       csv/my-operator.v2.0  Installing  Failing      -                45s     install strategy failed

q quit  ? help  Enter detail  / filter  s order  c completed                                                                                       1/4
",
    );
}

#[test]
fn a_small_screen_shows_fewer_columns() {
    TopFixture::with(40, 10, sample_operations()).shows(
        "
1 failing  1 blocked  2 progressing live
oldest first, all namespaces, https://1…
SUBJECT      OPERATION  STAT %    AGE
Node/worker… Draining   Bloc -    120m
  Cannot evict pod shop/web-0: it would…
vm/database… Migrating  Prog 45%  3m10s
  Migration database-0-x is copying mem…
dv/disk-7    Importing  Prog 9%   60s
csv/my-oper… Installing Fail -    45s
q quit  ? help  Enter detail         1/4
",
    );
}

#[test]
fn a_row_with_its_message_is_scrolled_into_the_screen() {
    let mut seen = TopFixture::with(80, 9, sample_operations());
    let shown = |seen: &mut TopFixture| seen.lines()[3..8].join("\n");
    seen.press(KeyCode::End);
    assert!(seen.subjects().contains(&"[my-operator.v2.0]".to_owned()));
    let bottom = shown(&mut seen);
    assert!(bottom.contains("csv/my-operator"), "{bottom}");
    assert!(bottom.ends_with("  install strategy failed"), "{bottom}");
    assert!(!bottom.contains("Node/worker-1"), "{bottom}");
    for _ in 0..3 {
        seen.press(KeyCode::Up);
    }
    let top = shown(&mut seen);
    assert!(top.starts_with("-          Node/worker-1"), "{top}");
    // A page has two rows of two lines each, and one row of a page stays visible.
    seen.press(KeyCode::PageDown);
    seen.draw();
    assert_eq!(seen.model.cursor, 1);
}

#[test]
fn operations_that_leave_the_selected_states_disappear() {
    let mut seen = TopFixture::new(80, 24);
    seen.model.filters.states = vec![State::Failing];
    for operation in sample_operations() {
        seen.change(OperationChange::Applied(Box::new(operation)));
    }
    assert_eq!(seen.subjects(), ["[my-operator.v2.0]"]);
    let recovered = operation(
        "ClusterServiceVersion/my-operator.v2.0",
        "Installing",
        "Progressing",
        45,
    );
    seen.change(OperationChange::Applied(Box::new(recovered)));
    assert!(seen.subjects().is_empty());
}

#[test]
fn wide_characters_keep_their_columns() {
    let mut wide = operation(
        "VirtualMachine/数据库-東京-サーバー-0",
        "Migrating",
        "Progressing",
        5,
    );
    wide.message = "移行しています".to_owned();
    wide.progress = Some(50);
    let mut narrow = operation("VirtualMachine/x", "Migrating", "Progressing", 4);
    narrow.message = "é\u{301}\u{1b}[31m".to_owned();
    TopFixture::with(120, 6, vec![wide.clone(), narrow]).shows(
        "
2 progressing                                                                                                       live
NAMESPACE  SUBJECT                                OPERATION  STATE        PROGRESS         AGE     MESSAGE
shop       VirtualMachine/数据库-東京-サーバー-0  Migrating  Progressing  █████░░░░░  50%  5s      移行しています
shop       VirtualMachine/x                       Migrating  Progressing  -                4s      é́�[31m

q quit  ? help  Enter detail  / filter  s order  c completed                                                         1/2
",
    );
    TopFixture::with(40, 6, vec![wide]).shows(
        "
1 progressing                       live
SUBJECT       OPERATION STAT %    AGE
vm/数据库-東… Migrating Prog 50%  5s
  移行しています

q quit  ? help  Enter detail         1/1
",
    );
}

#[test]
fn nothing_is_in_flight_only_if_the_first_list_is_complete() {
    let mut seen = TopFixture::new(60, 6);
    seen.shows(
        "
                                                     listing
NS        SUBJECT       OPERATION  STATE  PROGRESS    AGE



q quit  ? help  Enter detail  / filter  s order
",
    );
    seen.change(OperationChange::Synced);
    seen.shows(
        "
nothing in flight                                       live
NS        SUBJECT       OPERATION  STATE  PROGRESS    AGE
No operations in flight; c shows completed ones, too.


q quit  ? help  Enter detail  / filter  s order
",
    );
}

#[test]
fn a_lost_connection_is_shown_with_its_reason_until_the_data_is_complete() {
    let mut seen = TopFixture::with(80, 9, sample_operations());
    let lost = || Problem::Unreachable {
        server: "https://127.0.0.1:6443".to_owned(),
        why: "connection refused".to_owned(),
    };
    seen.change(OperationChange::Lost(lost()));
    let later = now() + SignedDuration::from_secs(12);
    seen.model.update(TopEvent::Tick(later));
    // A further failure does not change the time at which the interruption began.
    seen.change(OperationChange::Lost(lost()));
    seen.shows(
        "
1 failing  1 blocked  2 progressing                                 lost 12s ago
cannot reach the cluster at https://127.0.0.1:6443: connection refused; check -…
NAMESPACE  SUBJECT               OPERATION   STATE        PROGRESS        AGE
-          Node/worker-1         Draining    Blocked      -               120m
  Cannot evict pod shop/web-0: it would violate its budget
shop       vm/database-0         Migrating   Progressing  ████░░░░░  45%  3m22s
  Migration database-0-x is copying memory
shop       dv/disk-7             Importing   Progressing  ▊░░░░░░░░   9%  72s
q quit  ? help  Enter detail  / filter  s order  c completed                 1/4
",
    );
    seen.change(OperationChange::Synced);
    assert_eq!(seen.model.watch_state, TopWatchState::Live);
}

#[test]
fn the_detail_view_shows_everything_known_of_an_operation() {
    let mut seen = TopFixture::with(80, 24, sample_operations());
    seen.press(KeyCode::Down);
    seen.press(KeyCode::Enter);
    seen.shows(
        "
1 failing  1 blocked  2 progressing                                         live
oldest first, all namespaces, https://127.0.0.1:6443
VirtualMachine/database-0 in shop  Migrating, Progressing

Started      3m10s ago, 2026-01-01T11:56:50Z
Progress     █████████████▌░░░░░░░░░░░░░░░░ 45%
Message      Migration database-0-x is copying memory
Reason       CopyingMemory
Component    kubevirt
Rule set     vm-lifecycle-rules
Object       database-0-migrating

Owners and what they own
VirtualMachinePool/database  -
└─ VirtualMachine/database-0  Migrating Progressing 45% 3m10s
   └─ DataVolume/disk-7  Importing Progressing 9% 60s

Conditions
Progressing  True    3m10s  Migrating
Detected     True    3m10s  Migrating
Completed    False   3m10s  Migrating

Labels
q quit  ? help  Esc back  ↑↓ scroll
",
    );
    // The page shows each new version of the operation. It stays open after the server has deleted
    // the operation.
    let mut later = sample_operations().remove(0);
    later.progress = Some(46);
    seen.change(OperationChange::Applied(Box::new(later.clone())));
    assert!(seen.lines()[5].contains("46%"));
    seen.change(OperationChange::Deleted {
        operation: Box::new(later),
        was_active: true,
    });
    assert!(
        seen.lines()
            .iter()
            .any(|line| line.contains("has deleted this operation"))
    );
    seen.press(KeyCode::Esc);
    assert_eq!(seen.subjects().len(), 3);
}

#[test]
fn the_detail_view_scrolls_to_its_end() {
    let mut seen = TopFixture::with(40, 10, sample_operations());
    seen.press(KeyCode::Down);
    seen.press(KeyCode::Enter);
    seen.shows(
        "
1 failing  1 blocked  2 progressing live
oldest first, all namespaces, https://1…
VirtualMachine/database-0 in shop
Migrating, Progressing

Started      3m10s ago,
             2026-01-01T11:56:50Z
Progress     █████████▉░░░░░░░░░░░░ 45%
Message      Migration database-0-x is
q quit  ? help  Esc back  ↑↓ scroll
",
    );
    seen.press(KeyCode::End);
    let end = seen.lines();
    assert_eq!(end[8], "tier=1");
    seen.press(KeyCode::PageDown);
    assert_eq!(seen.lines(), end);
    seen.press(KeyCode::Home);
    assert!(seen.lines()[2].contains("VirtualMachine/database-0"));
}

#[test]
fn no_screen_size_is_too_small() {
    for height in 1..15 {
        for width in 1..45 {
            let mut seen = TopFixture::with(width, height, sample_operations());
            for key in [
                '\n', 'j', '?', ' ', '\u{1b}', '/', 'x', 'y', 'z', '\u{1b}', 'c',
            ] {
                let code = match key {
                    '\n' => KeyCode::Enter,
                    '\u{1b}' => KeyCode::Esc,
                    key => KeyCode::Char(key),
                };
                seen.press(code);
                seen.draw();
            }
            // The terminal has a new size (width and height are swapped), but the event for the new
            // size has not arrived. So the model still has the old size.
            seen.terminal.backend_mut().resize(height, width);
            seen.draw();
        }
    }
}

#[test]
fn states_have_colors_and_the_cursor_line_is_highlighted() {
    let mut seen = TopFixture::with(80, 24, sample_operations());
    seen.theme = Paint { on: true }.into();
    seen.draw();
    let color = |seen: &TopFixture, text: &str| {
        let buffer = seen.terminal.backend().buffer();
        let row = (3..10).find_map(|y| {
            let row: Vec<_> = (0..80).map(|x| buffer[(x, y)].clone()).collect();
            let line: String = row.iter().map(ratatui::buffer::Cell::symbol).collect();
            // All characters before the text are ASCII, so the byte offset `at` is also the column.
            line.find(text).map(|at| row[at].clone())
        });
        row.unwrap()
    };
    assert_eq!(color(&seen, "Failing").fg, Color::Red);
    assert_eq!(color(&seen, "Progressing").fg, Color::Cyan);
    let blocked = color(&seen, "Blocked");
    assert_eq!(blocked.fg, Color::Yellow);
    assert!(blocked.modifier.contains(Modifier::REVERSED));
    seen.theme = Theme::default();
    seen.draw();
    let buffer = seen.terminal.backend().buffer();
    assert!(buffer.content().iter().all(|cell| cell.fg == Color::Reset));
    assert!(
        color(&seen, "Blocked")
            .modifier
            .contains(Modifier::REVERSED)
    );
}

#[test]
fn a_frame_renders_only_visible_operations() {
    let many = (0..10_000).map(|number| {
        operation(
            &format!("Pod/p{number:05}"),
            "Starting",
            "Progressing",
            number,
        )
    });
    let mut seen = TopFixture::with(80, 24, many.collect());
    let lines = seen.lines();
    assert!(lines[0].starts_with("10000 progressing"));
    assert!(lines[23].ends_with("1/10000"));
    assert!(lines[3].contains("Pod/p09999") && lines[22].contains("Pod/p09980"));
}
