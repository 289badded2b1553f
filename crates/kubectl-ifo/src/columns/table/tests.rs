//! Tests of tables to which a watch adds rows.

use super::*;
use crate::operation::InFlightOperation;
use crate::test_snapshots::{now, operation, short_names};
use serde_json::json;

fn growing_table(operations: &[InFlightOperation], screen: Option<usize>) -> Table {
    let style = TextStyle {
        screen,
        short_names: short_names(),
        ..TextStyle::default()
    };
    let rows: Vec<Row> = operations.iter().map(Row::from).collect();
    Table::growing(&rows, now(), &style)
}

fn rollout() -> InFlightOperation {
    let message = "1 of 3 replicas are up to date";
    let more = json!({"status": {"message": message, "progress": 33}});
    operation("team-a", "Deployment/payment-service", "Rollout", 65, more)
}

#[test]
fn a_table_that_starts_empty_shows_later_rows_completely() {
    let mut table = growing_table(&[], Some(200));
    let header = table.header();
    assert!(header.contains("MESSAGE"), "{header}");
    let row = table.further_row(&Row::from(&rollout()), now());
    for part in [
        "Deployment/payment-service",
        "Rollout",
        "Progressing",
        "33%",
        "1 of 3 replicas are up to date",
    ] {
        assert!(row.contains(part), "{part}: {row}");
    }
    // The message is below its heading.
    assert_eq!(row.find("1 of 3"), header.find("MESSAGE"), "{header}{row}");
    // If there is no space for messages, the heading `MESSAGE` is left out, too.
    let mut narrow = growing_table(&[], Some(80));
    assert!(!narrow.header().contains("MESSAGE"), "{}", narrow.header());
    let row = narrow.further_row(&Row::from(&rollout()), now());
    assert!(row.contains("Deployment/payment-serv"), "{row}");
    assert!(row.contains("Progressing") && row.contains("65s"), "{row}");
}

#[test]
fn rows_may_exceed_their_columns_but_not_the_terminal_width() {
    let few = [operation("a", "VM/b", "Up", 5, json!({}))];
    let long = "VirtualMachineInstanceMigration/kubevirt-migrate-vm-x7k2p";
    let long_operation = operation("a-long-namespace", long, "Migrating", 65, json!({}));
    for width in [20, 40, 60, 80, 100, 120, 200] {
        let mut table = growing_table(&few, Some(width));
        let mut text = table.header() + &table.further_row(&Row::from(&few[0]), now());
        for operation in [&long_operation, &rollout(), &few[0]] {
            text += &table.further_row(&Row::from(operation), now());
        }
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
        if width >= 80 {
            assert!(text.contains("Progressing"), "{text}");
            assert!(text.contains("Deployment/payment-s"), "{text}");
        }
    }
    // A long row widens its columns. The next row uses these widths, too.
    let mut table = growing_table(&few, Some(200));
    let first = table.further_row(&Row::from(&long_operation), now());
    let second = table.further_row(&Row::from(&few[0]), now());
    assert!(first.contains(long), "{first}");
    assert_eq!(
        first.find("Migrating"),
        second.find("Up"),
        "{first}{second}"
    );
    // One long name does not take the space of the messages in all later rows.
    let mut table = growing_table(&few, Some(130));
    table.further_row(&Row::from(&long_operation), now());
    let row = table.further_row(&Row::from(&rollout()), now());
    assert!(row.contains("1 of 3"), "{row}");
}
