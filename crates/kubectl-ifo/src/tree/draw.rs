//! Formats trees as text.
//!
//! Input: a forest, the time, and the width of the screen. Output: lines with columns that are
//! aligned over the whole output. On a terminal, long cells are cut.

use super::forest::Forest;
use crate::columns::{self};
use crate::operation::ListedOperation;
use crate::output::TextStyle;
use crate::ownership::ResourceIdentity;
use crate::plain_text::{cut, one_line, pad};
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

/// Number of blanks between two columns.
const COLUMN_GAP: usize = 2;

/// Indentation of a namespace, and of a resource without a parent.
const INDENT: usize = 2;
const TOP: &str = "    ";

/// Largest number of levels that are drawn in front of a resource. For a deeper resource, a mark
/// replaces the outer levels. Each level takes as many columns as [`TOP`].
const MAX_LEVELS: usize = 32;
const MIN_LEVELS: usize = 2;
const DEEPER_MARK: &str = "  … ";

/// The columns that are cut on a narrow screen, in this order, with the width that remains. The
/// state (`Failing 32%`) is cut after the names, and its first word (`Blocked`) last.
const CUT_ORDER: [(usize, usize); 7] = [
    (0, 20),
    (1 + OPERATION, 8),
    (0, 10),
    (1 + STATE, 8),
    (0, 8),
    (1 + OPERATION, 4),
    (1 + STATE, 7),
];

/// Heading in place of a namespace for cluster-scoped resources.
const NO_NAMESPACE: &str = "(cluster)";
const NO_COMPONENT: &str = "(none)";

enum TreeRow<'a> {
    Component(&'a str),
    Namespace(&'a str),
    Resource {
        bars: String,
        name: String,
        operation: Option<&'a ListedOperation>,
    },
}

/// Draws.
pub(super) fn draw(forest: &Forest<'_>, now: Timestamp, style: TextStyle) -> String {
    let mut rows = Vec::new();
    for component in &forest.components {
        rows.push(TreeRow::Component(or(component.name, NO_COMPONENT)));
        for namespace in &component.namespaces {
            rows.push(TreeRow::Namespace(namespace.name.unwrap_or(NO_NAMESPACE)));
            for top in &namespace.tops {
                resources(forest, *top, namespace.name, style, &mut rows);
            }
        }
    }
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| match row {
            TreeRow::Resource {
                operation: Some(operation),
                ..
            } => cells(operation, now, style.wide),
            _ => Vec::new(),
        })
        .collect();
    let widths = widths(&rows, &cells, style);
    let mut text = String::new();
    for (row, cells) in rows.iter().zip(&cells) {
        line(row, cells, &widths, style, &mut text);
    }
    text
}

/// Returns the rows of one tree.
fn resources<'a>(
    forest: &Forest<'a>,
    top: usize,
    namespace: Option<&str>,
    style: TextStyle,
    rows: &mut Vec<TreeRow<'a>>,
) {
    let most = match style.screen {
        // Half of the screen is for the bars, and half for the names.
        Some(screen) => (screen / 2 / TOP.len()).clamp(MIN_LEVELS, MAX_LEVELS),
        None => MAX_LEVELS,
    };
    // For each level above: true if another resource follows on that level.
    let mut open: Vec<bool> = Vec::new();
    let mut stack = vec![(top, 0, false)];
    while let Some((number, depth, follows)) = stack.pop() {
        let branch = forest.branch(number);
        open.truncate(depth);
        // The bars of the levels above. The first level has no bar.
        let above = open.get(1..).unwrap_or_default();
        let hidden = depth.saturating_sub(most);
        let mut bars = if hidden > 0 { DEEPER_MARK } else { TOP }.to_owned();
        bars.extend(
            above
                .iter()
                .skip(hidden)
                .map(|open| if *open { "│   " } else { "    " }),
        );
        let (first, further) = match (depth, follows) {
            (0, _) => ("", ""),
            (_, true) => ("├── ", "│   "),
            (_, false) => ("└── ", "    "),
        };
        let mut bar = first;
        for operation in &branch.operations {
            rows.push(TreeRow::Resource {
                bars: format!("{bars}{bar}"),
                name: name(branch.who, operation.item.as_deref(), namespace),
                operation: Some(operation),
            });
            bar = further;
        }
        if branch.operations.is_empty() {
            rows.push(TreeRow::Resource {
                bars: format!("{bars}{bar}"),
                name: name(branch.who, None, namespace),
                operation: None,
            });
        }
        open.push(follows);
        let last = branch.children.last();
        for child in branch.children.iter().rev() {
            stack.push((*child, depth + 1, Some(child) != last));
        }
    }
}

/// Formats `Kind/name`, with the item, and with the namespace if it differs from the heading.
fn name(who: ResourceIdentity<'_>, item: Option<&str>, heading: Option<&str>) -> String {
    let mut name = format!("{}/{}", who.kind, who.name);
    if let Some(item) = item {
        name.push('/');
        name.push_str(item);
    }
    if let Some(namespace) = who.namespace
        && heading != Some(namespace)
    {
        name = format!("{name} ({namespace})");
    }
    one_line(&name)
}

/// Formats the cells that have the colour of the state.
const OPERATION: usize = 0;
const STATE: usize = 2;

fn cells(operation: &ListedOperation, now: Timestamp, wide: bool) -> Vec<String> {
    let mut cells = vec![
        one_line(&operation.operation),
        columns::age(operation, now),
        how_it_goes(operation, wide),
    ];
    if wide {
        cells.push(one_line(&operation.name));
        cells.push(one_line(&operation.message));
    }
    cells
}

/// Formats the state, unless it is Progressing, and the progress.
fn how_it_goes(operation: &ListedOperation, always: bool) -> String {
    let usual = matches!(operation.state.as_str(), "Progressing" | "Active");
    let state = if usual && !always {
        None
    } else {
        Some(one_line(&operation.state))
    };
    match state {
        Some(state) => state + &operation.percent(" "),
        None => operation.percent(""),
    }
}

/// Computes the widths of the resources, and of the cells after them.
fn widths(rows: &[TreeRow<'_>], cells: &[Vec<String>], style: TextStyle) -> Vec<usize> {
    let mut widths = vec![0];
    for (row, cells) in rows.iter().zip(cells) {
        if let TreeRow::Resource {
            bars,
            name,
            operation: Some(_),
        } = row
        {
            widths.resize(cells.len() + 1, 0);
            widths[0] = widths[0].max(bars.width() + name.width());
            for (width, cell) in widths[1..].iter_mut().zip(cells) {
                *width = (*width).max(cell.width());
            }
        }
    }
    if let Some(screen) = style.width() {
        for (column, least) in CUT_ORDER {
            let columns = widths.iter().filter(|width| **width > 0).count();
            let total = widths.iter().sum::<usize>() + COLUMN_GAP * columns.saturating_sub(1);
            let excess = total.saturating_sub(screen);
            if let Some(width) = widths.get_mut(column) {
                *width -= excess.min(width.saturating_sub(least));
            }
        }
    }
    widths
}

fn line(
    row: &TreeRow<'_>,
    cells: &[String],
    widths: &[usize],
    style: TextStyle,
    text: &mut String,
) {
    let paint = style.paint;
    let screen = style.width().unwrap_or(usize::MAX);
    match row {
        TreeRow::Component(name) => text.push_str(&paint.heading(&cut(&one_line(name), screen))),
        TreeRow::Namespace(name) => {
            let line = format!("{:INDENT$}{}", "", one_line(name));
            text.push_str(&cut(&line, screen));
        }
        TreeRow::Resource {
            bars,
            name,
            operation: None,
        } => {
            let room = screen.saturating_sub(bars.width());
            text.push_str(&cut(bars, screen));
            text.push_str(&paint.dim(&cut(name, room)));
        }
        TreeRow::Resource {
            bars,
            name,
            operation: Some(operation),
        } => {
            let width = widths[0].min(screen);
            let subject = cut(&format!("{bars}{name}"), width);
            text.push_str(&subject);
            let mut used = width;
            // Blanks are written only before a later text.
            let mut blanks = width.saturating_sub(subject.width());
            let columns = cells.iter().zip(&widths[1..]).enumerate();
            for (column, (cell, width)) in columns.filter(|(_, (_, width))| **width > 0) {
                let room = screen.saturating_sub(used + COLUMN_GAP);
                let most = room.min(*width);
                let cell = match cell.rsplit_once(' ') {
                    // The state without the progress.
                    Some((state, _)) if column == STATE && cell.width() > most => cut(state, most),
                    _ => cut(cell, most),
                };
                blanks += COLUMN_GAP;
                if !cell.is_empty() {
                    text.push_str(&pad("", std::mem::take(&mut blanks)));
                    text.push_str(&match column {
                        OPERATION | STATE => paint.state(&operation.state, &cell),
                        _ => cell.clone(),
                    });
                }
                blanks += width.saturating_sub(cell.width());
                used += COLUMN_GAP + width;
            }
        }
    }
    text.push('\n');
}

fn or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}
