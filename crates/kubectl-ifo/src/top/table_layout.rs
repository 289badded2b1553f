//! Chooses the columns of the table in `top` and their widths, so that the table fits on the
//! terminal. If complete texts do not fit, kinds are replaced by their short names. If there is then
//! too little space for messages, each message is on a second line. The least important of the
//! other columns is dropped first.

use super::row::{CellWidths, TopRow};
use crate::columns::OperationColumn;
use crate::output::MIN_MESSAGE_WIDTH;

use OperationColumn::{Age, Message, Namespace, Operation, Progress, State, Subject};

/// The columns from left to right, each with its smallest useful width. At this width, the state
/// has four letters, and the progress has no bar.
const COLUMNS: [(OperationColumn, usize); 6] = [
    (Namespace, 8),
    (Subject, 12),
    (Operation, 8),
    (State, 4),
    (Progress, 4),
    (Age, 6),
];

/// The columns in the order in which they are dropped. The subject always stays.
const DROP_ORDER: [OperationColumn; 5] = [Namespace, Age, Progress, State, Operation];

/// Widths of a short and of a long progress bar with its percentage, in terminal columns. The table
/// has long bars only if they take no space from messages.
const BAR: usize = 10;
const LONG_BAR: usize = 15;

/// Smallest width, in terminal columns, at which the table has two blanks between columns. On a
/// narrower terminal, the table has one blank.
const WIDE_TERMINAL: usize = 60;

/// The columns of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopLayout {
    /// The columns from left to right, with their widths.
    pub(super) columns: Vec<(OperationColumn, usize)>,
    /// Number of blanks between two columns.
    pub(super) gap: usize,
    /// True if kinds are replaced by their short names.
    pub(super) has_short_kinds: bool,
    /// True if each message is on a second line.
    pub(super) has_messages_below: bool,
}

impl TopLayout {
    /// Chooses the columns for a terminal that is `width` terminal columns wide. `widths` has the
    /// width of the widest text in each column.
    pub(super) fn new(widths: CellWidths, width: usize) -> Self {
        let gap = if width < WIDE_TERMINAL { 1 } else { 2 };
        let has_short_kinds = complete_width(widths, gap) > width;
        let subject = if has_short_kinds {
            widths.short_subject
        } else {
            widths.subject
        };
        // The columns get the free space in these steps. In each step, one column may grow up to
        // the given width.
        let steps = [
            (State, widths.state.clamp(5, 11)),
            (Operation, widths.operation.clamp(9, 12)),
            (Subject, subject.clamp(12, 20)),
            (State, widths.state.clamp(5, 30)),
            (Progress, BAR),
            (Operation, widths.operation.clamp(9, 20)),
            (Subject, subject.clamp(12, 24)),
            (Namespace, widths.namespace.clamp(9, 20)),
            (Subject, subject.clamp(12, 60)),
            (Operation, widths.operation.clamp(9, 32)),
            (Namespace, widths.namespace.clamp(9, 40)),
        ];
        let mut columns = COLUMNS.to_vec();
        for dropped in DROP_ORDER {
            if total(&columns, gap) <= width {
                break;
            }
            columns.retain(|(column, _)| *column != dropped);
        }
        let mut free = width.saturating_sub(total(&columns, gap));
        if columns.len() == 1 {
            columns[0].1 = width;
            free = 0;
        }
        for (wanted, most) in steps {
            let Some((_, width)) = columns.iter_mut().find(|(column, _)| *column == wanted) else {
                continue;
            };
            let more = most.saturating_sub(*width);
            // There are three texts for a state: the complete text, the text without markers such
            // as "(overdue)", and its first four letters. So the column grows only if a longer
            // text fits.
            if wanted == State && more > free {
                continue;
            }
            let more = more.min(free);
            *width += more;
            free -= more;
        }
        let heading = Message.header().len();
        let has_message = free >= gap + widths.message.clamp(heading, MIN_MESSAGE_WIDTH);
        let of_message = if has_message {
            gap + widths.message.max(heading)
        } else {
            0
        };
        let more = free.saturating_sub(of_message).min(LONG_BAR - BAR);
        if let Some((_, width)) = columns.iter_mut().find(|it| it.0 == Progress) {
            *width += more;
            free -= more;
        }
        if has_message {
            columns.push((Message, free - gap));
        }
        Self {
            columns,
            gap,
            has_short_kinds,
            has_messages_below: !has_message,
        }
    }

    /// Returns the number of lines that a row takes.
    pub(super) fn lines(&self, row: &TopRow) -> usize {
        1 + usize::from(self.has_messages_below && !row.message.is_empty())
    }
}

/// Returns the width of a table in which all texts are complete.
fn complete_width(widths: CellWidths, gap: usize) -> usize {
    let columns = [
        (Namespace, widths.namespace.max(9)),
        (Subject, widths.subject.max(12)),
        (Operation, widths.operation.max(9)),
        (State, widths.state.max(5)),
        (Progress, BAR),
        (Age, 6),
        (Message, widths.message),
    ];
    let count = if widths.message > 0 { 7 } else { 6 };
    total(&columns[..count], gap)
}

fn total(columns: &[(OperationColumn, usize)], gap: usize) -> usize {
    let widths: usize = columns.iter().map(|(_, width)| width).sum();
    widths + gap * columns.len().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    /// The widths of the texts for an operation `Migrating` in the state `Progressing` on
    /// `VirtualMachine/database-0` in `shop`.
    const WIDTHS: CellWidths = CellWidths {
        subject: 25,
        short_subject: 13,
        namespace: 4,
        operation: 9,
        state: 11,
        message: 40,
    };

    fn shown(width: usize) -> Vec<OperationColumn> {
        let layout = TopLayout::new(WIDTHS, width);
        layout
            .columns
            .into_iter()
            .map(|(column, _)| column)
            .collect()
    }

    #[test]
    fn a_table_is_never_wider_than_the_terminal() {
        for width in 0..300 {
            let layout = TopLayout::new(WIDTHS, width);
            let needed = total(&layout.columns, layout.gap);
            assert!(needed <= width, "{width}: {layout:?}");
        }
    }

    #[test]
    fn columns_are_dropped_by_priority() {
        assert_eq!(shown(10), [Subject]);
        assert_eq!(shown(25), [Subject, Operation]);
        assert_eq!(shown(40), [Subject, Operation, State, Progress, Age]);
        let all = [Namespace, Subject, Operation, State, Progress, Age, Message];
        assert_eq!(shown(80), all[..6]);
        assert_eq!(shown(120), all);
    }

    #[test]
    fn kinds_are_shortened_before_messages_are_cut() {
        let layout = |width| TopLayout::new(WIDTHS, width);
        for width in [40, 80, 100, 119, 120] {
            let it = layout(width);
            let message = it.columns.iter().find(|(column, _)| *column == Message);
            let is_cut = message.is_none_or(|(_, width)| *width < WIDTHS.message);
            assert!(it.has_short_kinds || !is_cut, "{width}: {it:?}");
            assert_eq!(it.has_messages_below, message.is_none(), "{width}: {it:?}");
        }
        assert!(layout(80).has_messages_below && layout(80).has_short_kinds);
        assert!(!layout(119).has_messages_below);
        let complete = layout(200);
        assert!(!complete.has_short_kinds && !complete.has_messages_below);
        // Without messages, complete kinds fit on a narrower terminal.
        let silent = TopLayout::new(
            CellWidths {
                message: 0,
                ..WIDTHS
            },
            90,
        );
        assert!(!silent.has_short_kinds, "{silent:?}");
    }
}
