//! Draws trees of operations as text. Columns are aligned over the whole output. If the output is too
//! wide for the terminal, kinds are replaced by their short names, and then long cells are cut. In
//! the wide format, the output has no maximum width.

use super::forest::Forest;
use crate::columns::{self};
use crate::listed_operation::ListedOperation;
use crate::output::{TerminalText, TextStyle};
use crate::ownership::ObjectIdentity;
use crate::plain_text::{cut, one_line, pad};
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

/// Number of blanks between two columns.
const COLUMN_GAP: usize = 2;

/// Number of blanks before a namespace.
const INDENT: usize = 2;
/// The indentation of an object without a parent.
const TOP: &str = "    ";

/// Largest number of levels by which an object is indented. The indentation of a level is as wide
/// as [`TOP`]. If an object is on a deeper level, its indentation begins with [`DEEPER_MARK`], and
/// the outermost levels are left out.
const MAX_LEVELS: usize = 32;
/// The limit for the narrowest terminals, in place of [`MAX_LEVELS`].
const MIN_LEVELS: usize = 2;
const DEEPER_MARK: &str = "  … ";

/// The steps in which columns are cut on a narrow terminal. Each step has the index of a column,
/// and the smallest width to which the step can cut this column. Column 0 contains the names of
/// objects. Column `1 + n` contains cell `n` of [`cells`]. The column with the state and the
/// progress (`Failing 32%`) keeps at least 7 terminal columns, which are enough for the states
/// `Failing` and `Blocked`.
const CUT_ORDER: [(usize, usize); 7] = [
    (0, 20),
    (1 + OPERATION, 8),
    (0, 10),
    (1 + STATE, 8),
    (0, 8),
    (1 + OPERATION, 4),
    (1 + STATE, 7),
];

/// Heading of the cluster-scoped objects, in place of a namespace.
const NO_NAMESPACE: &str = "(cluster)";
/// Heading of operations without a component.
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

/// Formats all trees of `forest`.
pub(super) fn draw(forest: &Forest<'_>, now: Timestamp, style: &TextStyle) -> TerminalText {
    let mut rows = rows(forest, style, &ShortNames::default());
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
    let mut widths = widths(&rows, &cells);
    if let Some(screen) = style.width() {
        if excess(&widths, screen) > 0 {
            rows = self::rows(forest, style, &style.short_names);
            widths = self::widths(&rows, &cells);
        }
        cut_columns(&mut widths, screen);
    }
    let mut text = TerminalText::default();
    for (row, cells) in rows.iter().zip(&cells) {
        line(row, cells, &widths, style, &mut text);
    }
    text
}

/// Returns the rows of all trees. A kind that has a short name is replaced by this name.
fn rows<'a>(forest: &Forest<'a>, style: &TextStyle, short_names: &ShortNames) -> Vec<TreeRow<'a>> {
    let mut rows = Vec::new();
    for component in &forest.components {
        rows.push(TreeRow::Component(text_or(component.name, NO_COMPONENT)));
        for namespace in &component.namespaces {
            rows.push(TreeRow::Namespace(namespace.name.unwrap_or(NO_NAMESPACE)));
            for top in &namespace.tops {
                let naming = Naming {
                    heading: namespace.name,
                    short_names,
                };
                add_rows(forest, *top, naming, style, &mut rows);
            }
        }
    }
    rows
}

/// Adds the rows of one tree to `rows`.
fn add_rows<'a>(
    forest: &Forest<'a>,
    top: usize,
    naming: Naming<'_>,
    style: &TextStyle,
    rows: &mut Vec<TreeRow<'a>>,
) {
    let max_levels = match style.screen {
        // The bars take about half of the terminal at most, so that the names are visible.
        Some(screen) => (screen / 2 / TOP.len()).clamp(MIN_LEVELS, MAX_LEVELS),
        None => MAX_LEVELS,
    };
    // For each level above the object: true if another object follows on this level.
    let mut has_sibling: Vec<bool> = Vec::new();
    let mut stack = vec![(top, 0, false)];
    while let Some((index, depth, follows)) = stack.pop() {
        let node = forest.node(index);
        has_sibling.truncate(depth);
        // The bars of the outer levels. The first level has no bar.
        let above = has_sibling.get(1..).unwrap_or_default();
        let hidden = depth.saturating_sub(max_levels);
        let mut bars = if hidden > 0 { DEEPER_MARK } else { TOP }.to_owned();
        bars.extend(
            above
                .iter()
                .skip(hidden)
                .map(|has_sibling| if *has_sibling { "│   " } else { "    " }),
        );
        let (first, further) = match (depth, follows) {
            (0, _) => ("", ""),
            (_, true) => ("├── ", "│   "),
            (_, false) => ("└── ", "    "),
        };
        let mut bar = first;
        for operation in &node.operations {
            rows.push(TreeRow::Resource {
                bars: format!("{bars}{bar}"),
                name: naming.name(node.identity, operation.item.as_deref()),
                operation: Some(operation),
            });
            bar = further;
        }
        if node.operations.is_empty() {
            rows.push(TreeRow::Resource {
                bars: format!("{bars}{bar}"),
                name: naming.name(node.identity, None),
                operation: None,
            });
        }
        has_sibling.push(follows);
        let last = node.children.last();
        for child in node.children.iter().rev() {
            stack.push((*child, depth + 1, Some(child) != last));
        }
    }
}

/// The facts on which the names of objects in a tree depend.
#[derive(Clone, Copy)]
struct Naming<'a> {
    /// The namespace in the heading above the tree.
    heading: Option<&'a str>,
    short_names: &'a ShortNames,
}

impl Naming<'_> {
    /// Formats `Kind/name`, or `Kind/name/item` if the operation has an item. If the object has
    /// another namespace than the heading, its namespace follows in parentheses: `Pod/web (shop)`.
    fn name(&self, identity: ObjectIdentity<'_>, item: Option<&str>) -> String {
        let kind = self.short_names.name(identity.api_version, identity.kind);
        let mut name = format!("{kind}/{}", identity.name);
        if let Some(item) = item {
            name.push('/');
            name.push_str(item);
        }
        if let Some(namespace) = identity.namespace
            && self.heading != Some(namespace)
        {
            name = format!("{name} ({namespace})");
        }
        one_line(&name)
    }
}

/// Indexes of the cells that have the colour of the state.
const OPERATION: usize = 0;
const STATE: usize = 2;

fn cells(operation: &ListedOperation, now: Timestamp, wide: bool) -> Vec<String> {
    let mut cells = vec![
        one_line(&operation.operation),
        columns::age(operation, now),
        state_and_progress(operation, wide),
    ];
    if wide {
        cells.push(one_line(&operation.name));
        cells.push(one_line(&operation.message));
    }
    cells
}

/// Formats the state and the progress. If `always` is false, leaves out the usual states
/// `Progressing` and `Active`. A state with a marker, such as `(overdue)`, is never left out.
fn state_and_progress(operation: &ListedOperation, always: bool) -> String {
    let marked = operation.marked_state();
    let usual = matches!(marked.as_str(), "Progressing" | "Active");
    let state = if usual && !always {
        None
    } else {
        Some(one_line(&marked))
    };
    match state {
        Some(state) => state + &operation.percent(" "),
        None => operation.percent(""),
    }
}

/// Computes the width of each column. Column 0 contains the names of objects with their bars.
fn widths(rows: &[TreeRow<'_>], cells: &[Vec<String>]) -> Vec<usize> {
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
    widths
}

/// Returns by how many terminal columns the tree is too wide.
fn excess(widths: &[usize], screen: usize) -> usize {
    let columns = widths.iter().filter(|width| **width > 0).count();
    let total = widths.iter().sum::<usize>() + COLUMN_GAP * columns.saturating_sub(1);
    total.saturating_sub(screen)
}

/// Narrows the columns until the tree fits on the terminal, in the steps of [`CUT_ORDER`].
fn cut_columns(widths: &mut [usize], screen: usize) {
    for (column, least) in CUT_ORDER {
        let excess = excess(widths, screen);
        if let Some(width) = widths.get_mut(column) {
            *width -= excess.min(width.saturating_sub(least));
        }
    }
}

fn line(
    row: &TreeRow<'_>,
    cells: &[String],
    widths: &[usize],
    style: &TextStyle,
    text: &mut TerminalText,
) {
    let paint = style.paint;
    let screen = style.width().unwrap_or(usize::MAX);
    match row {
        TreeRow::Component(name) => *text += paint.heading(&cut(&one_line(name), screen)),
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
            *text += paint.dim(&cut(name, room));
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
            // Blanks are written only if a text follows, so that no line ends with blanks.
            let mut blanks = width.saturating_sub(subject.width());
            let columns = cells.iter().zip(&widths[1..]).enumerate();
            for (column, (cell, width)) in columns.filter(|(_, (_, width))| **width > 0) {
                let room = screen.saturating_sub(used + COLUMN_GAP);
                let most = room.min(*width);
                let cell = match cell.rsplit_once(' ') {
                    // If the cell does not fit, its last word is left out. This word is the
                    // progress, or a marker of the state.
                    Some((state, _)) if column == STATE && cell.width() > most => cut(state, most),
                    _ => cut(cell, most),
                };
                blanks += COLUMN_GAP;
                if !cell.is_empty() {
                    text.push_str(&pad("", std::mem::take(&mut blanks)));
                    *text += match column {
                        OPERATION | STATE => paint.state(operation.color_state(), &cell),
                        _ => (&cell).into(),
                    };
                }
                blanks += width.saturating_sub(cell.width());
                used += COLUMN_GAP + width;
            }
        }
    }
    text.push_str("\n");
}

fn text_or<'a>(text: &'a str, otherwise: &'a str) -> &'a str {
    if text.is_empty() { otherwise } else { text }
}
