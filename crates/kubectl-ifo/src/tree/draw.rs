//! Draws trees of operations as text. Columns are aligned over the whole output. If the output is
//! too wide for the terminal, the names of objects are cut. In the wide format, the output has no
//! maximum width.

use super::forest::{Forest, TreeObject};
use crate::operations::operation::{InFlightOperation, OperationFacts as _};
use crate::output::plain_text::one_line;
use crate::output::print::{TerminalText, TextStyle, cells};
use jiff::Timestamp;

/// Number of blanks between two columns.
const TREE_GAP: usize = 2;

/// The blanks before a namespace, and before an object without a parent.
const NAMESPACE_INDENT: &str = "  ";
const OBJECT_INDENT: &str = "    ";

/// Smallest width of the column with the names. On a narrower terminal, each line is cut.
const MIN_NAME_WIDTH: usize = 16;

/// The cells of a line. A heading, and an object without an operation, has one cell.
type TreeRow = Vec<TerminalText>;

/// Formats all trees of `forest`.
pub(super) fn draw(forest: &Forest<'_>, now: Timestamp, style: &TextStyle) -> TerminalText {
    let mut drawing = Drawing {
        now,
        style,
        rows: Vec::new(),
    };
    for (component, namespaces) in forest {
        let name = Some(*component).filter(|it| !it.is_empty());
        let heading = one_line(name.unwrap_or("(none)"));
        drawing.rows.push(vec![style.paint.heading(&heading)]);
        for (namespace, tops) in namespaces {
            let namespace = namespace.as_deref();
            let heading = one_line(namespace.unwrap_or("(cluster)"));
            let heading = format!("{NAMESPACE_INDENT}{heading}");
            drawing.rows.push(vec![heading.into()]);
            for top in tops {
                drawing.add_object(top, namespace, OBJECT_INDENT, ["", ""]);
            }
        }
    }
    let mut rows = drawing.rows;
    // A column without any text has the width 0, and is left out.
    let columns = rows.iter().map(Vec::len).max().unwrap_or_default();
    let full = || rows.iter().filter(|it| it.len() > 1);
    let width = |column: usize| full().map(|it| it[column].width()).max();
    let mut widths: Vec<usize> = (0..columns).map(|it| width(it).unwrap_or(1)).collect();
    let screen = style.screen.unwrap_or(usize::MAX);
    // If a line is too wide, the name is cut, because the state is more important.
    let others = widths.iter().skip(1).filter(|it| **it > 0);
    let left = screen.saturating_sub(others.map(|it| it + TREE_GAP).sum());
    for row in rows.iter_mut().filter(|it| it.len() > 1) {
        widths[0] = widths[0].min(left.max(MIN_NAME_WIDTH));
        row[0] = row[0].cut(widths[0]);
    }
    let lines = rows.into_iter().map(|row| {
        let row = row.into_iter().zip(widths.iter().copied());
        cells(row.filter(|it| it.1 > 0), TREE_GAP).cut(screen) + "\n"
    });
    lines.collect()
}

/// The rows that were added so far.
struct Drawing<'a> {
    now: Timestamp,
    style: &'a TextStyle,
    rows: Vec<TreeRow>,
}

impl Drawing<'_> {
    /// Adds the rows of an object and its descendants. `bars` are the bars of the outer levels, and
    /// `own` the bars of the first row of the object and of its further rows. A forest has a
    /// limited depth, so the recursion is limited.
    fn add_object(
        &mut self,
        object: &TreeObject<'_>,
        heading: Option<&str>,
        bars: &str,
        own: [&str; 2],
    ) {
        let [mut bar, further] = own;
        let paint = self.style.paint;
        for operation in &object.operations {
            let name = name(object, heading, operation.spec.item.as_deref());
            let state = state_and_progress(operation, self.style.wide);
            let painted = |text: &str| paint.state(operation.color_state(), text);
            let mut cells: TreeRow = vec![
                format!("{bars}{bar}{name}").into(),
                painted(&one_line(&operation.spec.operation)),
                operation.age(self.now).into(),
                painted(&state),
            ];
            if self.style.wide {
                cells.push(one_line(&operation.metadata.name).into());
                cells.push(one_line(&operation.status.message).into());
            }
            self.rows.push(cells);
            bar = further;
        }
        if object.operations.is_empty() {
            let name = name(object, heading, None);
            let name = paint.dim(&format!("{bars}{bar}{name}"));
            self.rows.push(vec![name]);
        }
        let bars = format!("{bars}{further}");
        for (number, child) in object.children.iter().enumerate() {
            let own = if number + 1 == object.children.len() {
                ["└── ", "    "]
            } else {
                ["├── ", "│   "]
            };
            self.add_object(child, heading, &bars, own);
        }
    }
}

/// Formats `Kind/name`, or `Kind/name/item` if the operation has an item. If the object has another
/// namespace than the heading, its namespace follows in parentheses: `Pod/web (shop)`.
fn name(object: &TreeObject<'_>, heading: Option<&str>, item: Option<&str>) -> String {
    let object = &object.object;
    let item = item.map(|it| format!("/{it}")).unwrap_or_default();
    let namespace = object.namespace.as_deref();
    let namespace = namespace.filter(|it| heading != Some(it));
    let namespace = namespace.map(|it| format!(" ({it})")).unwrap_or_default();
    one_line(&format!("{}/{}{item}{namespace}", object.kind, object.name))
}

/// Formats the state and the progress. If `always` is false, leaves out the usual states
/// `Progressing` and `Active`. A state with a marker, such as `(overdue)`, is never left out.
fn state_and_progress(operation: &InFlightOperation, always: bool) -> String {
    let marked = operation.marked_state();
    match marked.as_str() {
        "Progressing" | "Active" if !always => operation.percent(""),
        _ => one_line(&marked) + &operation.percent(" "),
    }
}
