//! Draws trees of operations as text. Columns are aligned over the whole output. If the output is too
//! wide for the terminal, kinds are replaced by their short names, and then each line is
//! cut. In the wide format, the output has no maximum width.

use super::forest::{Forest, TreeObject};
use crate::operation::{InFlightOperation, OperationFacts as _};
use crate::output::{TerminalText, TextStyle, cells};
use crate::plain_text::one_line;
use ifo_client::short_names::ShortNames;
use jiff::Timestamp;
use unicode_width::UnicodeWidthStr as _;

/// Number of blanks between two columns.
const TREE_GAP: usize = 2;

/// The blanks before a namespace, and before an object without a parent.
const NAMESPACE_INDENT: &str = "  ";
const OBJECT_INDENT: &str = "    ";

/// The columns. The first column has the names of objects with their bars.
const NAME: usize = 0;
const OPERATION: usize = 1;
const STATE: usize = 3;

/// Formats all trees of `forest`.
pub(super) fn draw(forest: &Forest<'_>, now: Timestamp, style: &TextStyle) -> TerminalText {
    let no_short_names = ShortNames::default();
    let mut drawing = Drawing::new(&no_short_names, now, style);
    drawing.add_forest(forest);
    if let Some(screen) = style.width()
        && drawing.excess(screen) > 0
    {
        drawing = Drawing::new(&style.short_names, now, style);
        drawing.add_forest(forest);
    }
    let lines = drawing.rows.iter().map(|row| drawing.line(row));
    lines
        .map(|line| line.cut(style.width().unwrap_or(usize::MAX)) + "\n")
        .collect()
}

/// A line of the output: a heading, or the cells of an object with or without an operation.
enum TreeRow<'a> {
    Heading(TerminalText),
    Resource(Vec<String>, Option<&'a InFlightOperation>),
}

struct Drawing<'a> {
    short_names: &'a ShortNames,
    now: Timestamp,
    style: &'a TextStyle,
    rows: Vec<TreeRow<'a>>,
    widths: Vec<usize>,
}

impl<'a> Drawing<'a> {
    fn new(short_names: &'a ShortNames, now: Timestamp, style: &'a TextStyle) -> Self {
        Self {
            short_names,
            now,
            style,
            rows: Vec::new(),
            widths: Vec::new(),
        }
    }

    fn add_forest(&mut self, forest: &Forest<'a>) {
        for component in &forest.components {
            let name = match component.name {
                "" => "(none)".to_owned(),
                name => one_line(name),
            };
            let heading = self.style.paint.heading(&name);
            self.rows.push(TreeRow::Heading(heading));
            for namespace in &component.namespaces {
                let name = namespace.name.as_deref();
                let heading = format!(
                    "{NAMESPACE_INDENT}{}",
                    one_line(name.unwrap_or("(cluster)"))
                );
                self.rows.push(TreeRow::Heading(heading.into()));
                for top in &namespace.resources {
                    self.add_object(top, name, OBJECT_INDENT, ["", ""]);
                }
            }
        }
    }

    /// Adds the rows of an object and its descendants. `bars` are the bars of the outer levels, and
    /// `own` the bars of the first row of the object and of its further rows. A forest has a limited
    /// depth, so the recursion is limited.
    fn add_object(
        &mut self,
        object: &TreeObject<'a>,
        heading: Option<&str>,
        bars: &str,
        own: [&str; 2],
    ) {
        let [mut bar, further] = own;
        for operation in &object.operations {
            let name = self.name(object, heading, operation.spec.item.as_deref());
            let mut cells = vec![
                format!("{bars}{bar}{name}"),
                one_line(&operation.spec.operation),
                operation.age(self.now),
                state_and_progress(operation, self.style.wide),
            ];
            if self.style.wide {
                cells.push(one_line(&operation.metadata.name));
                cells.push(one_line(&operation.status.message));
            }
            self.widths.resize(cells.len(), 0);
            for (width, cell) in self.widths.iter_mut().zip(&cells) {
                *width = cell.width().max(*width);
            }
            self.rows.push(TreeRow::Resource(cells, Some(operation)));
            bar = further;
        }
        if object.operations.is_empty() {
            let name = self.name(object, heading, None);
            let cells = vec![format!("{bars}{bar}{name}")];
            self.rows.push(TreeRow::Resource(cells, None));
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

    /// Formats `Kind/name`, or `Kind/name/item` if the operation has an item. If the object has
    /// another namespace than the heading, its namespace follows in parentheses: `Pod/web (shop)`.
    fn name(&self, object: &TreeObject<'_>, heading: Option<&str>, item: Option<&str>) -> String {
        let object = &object.object;
        let kind = self.short_names.name(&object.api_version, &object.kind);
        let item = item.map(|it| format!("/{it}")).unwrap_or_default();
        let namespace = object.namespace.as_deref();
        let namespace = namespace.filter(|it| heading != Some(it));
        let namespace = namespace.map(|it| format!(" ({it})")).unwrap_or_default();
        one_line(&format!("{kind}/{}{item}{namespace}", object.name))
    }

    /// Returns by how many terminal columns the trees are too wide.
    fn excess(&self, screen: usize) -> usize {
        let columns = self.widths.iter().filter(|width| **width > 0);
        let total: usize = columns.map(|width| width + TREE_GAP).sum();
        total.saturating_sub(TREE_GAP + screen)
    }

    fn line(&self, row: &TreeRow<'_>) -> TerminalText {
        let paint = self.style.paint;
        let (row_cells, operation) = match row {
            TreeRow::Heading(heading) => return heading.clone(),
            TreeRow::Resource(cells, None) => return paint.dim(&cells[NAME]),
            TreeRow::Resource(cells, Some(operation)) => (cells, operation),
        };
        let columns = row_cells.iter().zip(&self.widths).enumerate();
        let columns = columns.filter(|(_, (_, width))| **width > 0);
        let columns = columns.map(|(column, (cell, width))| {
            let painted = match column {
                OPERATION | STATE => paint.state(operation.color_state(), cell),
                _ => cell.into(),
            };
            (painted, cell.width(), *width)
        });
        cells(columns, TREE_GAP)
    }
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
