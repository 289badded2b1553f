use super::super::test_fixtures::{OperationFixture as _, mixed, now, on, short_names, snapshot};
use super::*;
use crate::output::colors::Paint;
use unicode_width::UnicodeWidthStr as _;

fn printed(format: Format, screen: Option<usize>, color: bool) -> TerminalText {
    if !format.is_table() {
        return objects(&mixed(), format, false).expect("the sample operations can be encoded");
    }
    let style = TextStyle {
        screen,
        wide: format == Format::Wide,
        paint: Paint { on: color },
        short_names: short_names(),
        ..TextStyle::default()
    };
    table_in(&mixed(), &style)
}

fn table_in(operations: &[InFlightOperation], style: &TextStyle) -> TerminalText {
    let rows: Vec<Row> = operations.iter().map(Row::from).collect();
    Table::text(&rows, now(), style)
}

#[test]
fn list_output_equals_the_snapshot() {
    for (name, format, screen, color) in [
        ("list-pipe", Format::Table, None, false),
        ("list-80", Format::Table, Some(80), false),
        ("list-120", Format::Table, Some(120), false),
        ("list-color", Format::Table, None, true),
        ("list-wide", Format::Wide, None, false),
        ("list-json", Format::Json, None, false),
        ("list-yaml", Format::Yaml, None, false),
        ("list-name", Format::Name, None, false),
    ] {
        snapshot(name, &printed(format, screen, color));
    }
}

/// Returns operations with long kinds, names and messages. The kind `VirtualMachineImage` has no
/// short name, but its initials are the short name of another kind.
fn long() -> Vec<InFlightOperation> {
    let migration = "kubevirt-migrate-vm-x7k2p";
    vec![
        on(
            "team-b",
            "VirtualMachineInstanceMigration",
            migration,
            "Migrating",
        )
        .since(65)
        .state("Blocked", Some(45))
        .message("no node has enough memory for the target pod"),
        on("team-b", "DataVolume", "disk-0", "ImportInProgress")
            .since(600)
            .message("importing"),
        on("team-b", "VirtualMachineImage", "ubuntu", "Downloading").since(30),
        on("", "Node", "worker-12.example.com", "Draining").since(7_500),
    ]
}

fn table(operations: &[InFlightOperation], width: usize) -> String {
    let style = TextStyle {
        screen: Some(width),
        short_names: short_names(),
        ..TextStyle::default()
    };
    table_in(operations, &style).to_string()
}

#[test]
fn kinds_are_shortened_before_messages_and_messages_before_names() {
    let complete = "VirtualMachineInstanceMigration/kubevirt-migrate-vm-x7k2p";
    let short = "vmim/kubevirt-migrate-vm-x7k2p";
    let message = "no node has enough memory for the target pod";
    for width in [60, 80, 100, 119, 120, 200] {
        let text = table(&long(), width);
        snapshot(&format!("list-long-{width}"), &text);
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
        for part in ["AGE", "65s", "10m", "125m"] {
            assert!(text.contains(part), "{width}: {part}\n{text}");
        }
        let lines = |part: &str| text.lines().position(|line| line.contains(part));
        match width {
            60 => {}
            80 => assert!(text.contains("\n  no node has enough memory"), "{text}"),
            100 | 119 | 120 => {
                let subject = lines(short).unwrap_or_else(|| panic!("{width}: {text}"));
                // The message is complete on the second line.
                assert_eq!(lines(&format!("  {message}")), Some(subject + 1), "{text}");
                assert!(text.contains("VirtualMachineImage/ubuntu"), "{text}");
            }
            _ => assert_eq!(lines(complete), lines(message), "{text}"),
        }
    }
    // The texts of this operation are short, so nothing is shortened.
    let few = table(&mixed()[3..], 80);
    assert!(few.contains("VirtualMachine/backend"), "{few}");
    for width in [20, 30, 40, 60] {
        let all = table(&long(), width);
        assert!(all.lines().all(|line| line.width() <= width), "{all}");
        assert!(
            all.contains("AGE") && all.contains("125m"),
            "{width}:\n{all}"
        );
    }
}

#[test]
fn a_message_with_enough_room_is_cut_on_its_line() {
    let operation = on("shop", "VirtualMachine", "web", "Migrating");
    let operations = [operation.since(5).message(&"m".repeat(200))];
    for width in [120, 160] {
        let text = table(&operations, width);
        let row = text.lines().nth(1).unwrap_or_default();
        assert!(row.contains(" vm/web ") && row.ends_with("m…"), "{text}");
        assert_eq!((text.lines().count(), row.width()), (2, width), "{text}");
    }
    for width in [40, 80, 119] {
        let text = table(&operations, width);
        assert_eq!(text.lines().count(), 3, "{text}");
        assert!(text.ends_with("m…\n") && text.contains("\n  m"), "{text}");
    }
}
