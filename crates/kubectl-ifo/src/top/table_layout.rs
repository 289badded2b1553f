//! Chooses the columns of the table in `top` and their widths, so that the table fits on the
//! terminal. The least important column is dropped first.

use super::row::CellWidths;
use crate::columns::OperationColumn;

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

/// Smallest width of the message, which is the last column, in terminal columns. If there is less
/// space, the table has no message.
const MIN_MESSAGE_WIDTH: usize = 12;

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
}

impl TopLayout {
    /// Chooses the columns for a terminal that is `width` terminal columns wide. `widths` has the
    /// width of the widest text in each column.
    pub(super) fn new(widths: CellWidths, width: usize) -> Self {
        let clamped_width = |at: usize, least, most| widths[at].clamp(least, most);
        // The columns get the free space in these steps. In each step, one column may grow up to
        // the given width.
        let steps = [
            (State, clamped_width(3, 5, 11)),
            (Operation, clamped_width(2, 9, 12)),
            (Subject, clamped_width(0, 12, 20)),
            (State, clamped_width(3, 5, 30)),
            (Progress, 10),
            (Operation, clamped_width(2, 9, 20)),
            (Subject, clamped_width(0, 12, 24)),
            (Namespace, clamped_width(1, 9, 20)),
            (Subject, clamped_width(0, 12, 60)),
            (Progress, 15),
            (Operation, clamped_width(2, 9, 32)),
            (Namespace, clamped_width(1, 9, 40)),
        ];
        let gap = if width < WIDE_TERMINAL { 1 } else { 2 };
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
        if free >= gap + MIN_MESSAGE_WIDTH {
            columns.push((Message, free - gap));
        }
        Self { columns, gap }
    }
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
    const WIDTHS: CellWidths = [25, 4, 9, 11];

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
}
