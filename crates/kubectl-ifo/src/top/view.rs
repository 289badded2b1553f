//! Draws the model of `top` (the content of the screen as data) as a frame on the screen. Formats
//! only the rows that are on the screen.

use super::detail::{self, bar};
use super::keys::HELP;
use super::model::{Model, TopOrder, TopPage, TopWatchState};
use super::row::TopRow;
use super::table_layout::TopLayout;
use super::theme::Theme;
use crate::columns::EMPTY_CELL;
use crate::columns::OperationColumn::{Progress, State, Subject};
use crate::output::MESSAGE_INDENT;
use crate::plain_text::{cut, one_line, pad};
use ifo_api::duration;
use ratatui::Frame;
use ratatui::layout::Position;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr as _;

/// Width of the text ` 100%`, in terminal columns.
const PERCENT: usize = 5;

/// The number of lines in each part of the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ScreenAreas {
    /// The lines at the top. These lines show the number of operations in each state, the state of
    /// the watch, the order of the rows, the filters, and the address of the kube-apiserver.
    pub(super) header: usize,
    /// The line with the headings of the columns.
    pub(super) heading: usize,
    /// The rows of the table.
    pub(super) table: usize,
    /// The lines between header and footer. These lines show the heading and the table, or another
    /// page.
    pub(super) body: usize,
    /// The line at the bottom. This line shows the keys, or the filter that the user is typing.
    pub(super) footer: usize,
}

impl ScreenAreas {
    /// Divides a screen of `height` lines. On a small screen, header, heading and footer have fewer
    /// lines, so that rows of the table are visible.
    pub(super) fn of(height: usize) -> Self {
        let (header, heading, footer) = match height {
            0..=2 => (0, 0, 0),
            3..=4 => (1, 0, 1),
            5..=7 => (1, 1, 1),
            _ => (2, 1, 1),
        };
        let body = height - header - footer;
        Self {
            header,
            heading,
            table: body - heading,
            body,
            footer,
        }
    }
}

/// Draws the model on a frame.
pub(super) fn draw(model: &Model, theme: Theme, frame: &mut Frame) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let view = TopView {
        model,
        theme,
        width,
    };
    let areas = ScreenAreas::of(height);
    let mut lines = view.header();
    lines.truncate(areas.header);
    let end = areas.header + areas.body;
    match &model.page {
        TopPage::List => lines.extend(view.table(areas)),
        TopPage::Detail(open) => {
            let page = detail::lines(open, model.now, width, theme);
            lines.extend(page.into_iter().skip(open.scroll).take(areas.body));
        }
        TopPage::Help(_) => lines.extend(view.help()),
    }
    lines.resize(end, Line::default());
    if areas.footer > 0 {
        lines.push(view.footer());
    }
    for (line, y) in lines.iter().zip(area.top()..area.bottom()) {
        frame
            .buffer_mut()
            .set_line(area.left(), y, line, area.width);
    }
    if model.is_typing && areas.footer > 0 {
        let x = view.prompt().width().min(width.saturating_sub(1));
        // Both coordinates are on the screen, whose size fits into 16 bits.
        let coordinate = |at: usize| u16::try_from(at).unwrap_or(u16::MAX);
        frame.set_cursor_position(Position::new(coordinate(x), coordinate(height - 1)));
    }
}

struct TopView<'a> {
    model: &'a Model,
    theme: Theme,
    width: usize,
}

impl TopView<'_> {
    /// Returns the lines at the top of the screen. The first line has the number of operations in
    /// each state, and the state of the watch. The second line has the order and the filters. If
    /// the watch is interrupted or operations may be missing, the second line has the reason
    /// instead.
    fn header(&self) -> Vec<Line<'static>> {
        let model = self.model;
        let (state, style) = match &model.watch_state {
            TopWatchState::Listing => ("listing".to_owned(), self.theme.dim()),
            TopWatchState::Live => ("live".to_owned(), self.theme.good()),
            TopWatchState::Files => ("from files".to_owned(), self.theme.dim()),
            TopWatchState::Lost { since, .. } => {
                let seconds = model.now.as_second() - since.as_second();
                let text = format!("lost {} ago", duration::human(seconds));
                (text, self.theme.bad())
            }
        };
        let state = cut(&state, self.width);
        let mut room = self.width - state.width();
        let mut spans = Vec::new();
        for (text, style) in self.counts() {
            // At least one blank stays before the state of the watch.
            let text = cut(&text, room.saturating_sub(1));
            room -= text.width();
            spans.push(Span::styled(text, style));
        }
        spans.push(Span::raw(" ".repeat(room)));
        spans.push(Span::styled(state, style));
        let second = match (&model.watch_state, &model.incomplete) {
            (TopWatchState::Lost { why, .. }, _) => {
                Line::styled(cut(&one_line(why), self.width), style)
            }
            (_, Some(incomplete)) => {
                Line::styled(cut(&one_line(incomplete), self.width), self.theme.bad())
            }
            (_, None) => Line::styled(cut(&self.order_and_filters(), self.width), self.theme.dim()),
        };
        vec![Line::from_iter(spans), second]
    }

    fn counts(&self) -> Vec<(String, Style)> {
        let counts = &self.model.counts;
        let mut parts = Vec::new();
        for (state, count) in &counts.active {
            let text = one_line(&format!("{count} {}", state.to_lowercase()));
            parts.push((text, self.theme.state(state)));
        }
        if parts.is_empty() && self.model.watch_state != TopWatchState::Listing {
            let text = if self.model.reads_files {
                "no operations in the files"
            } else {
                "nothing in flight"
            };
            parts.push((text.to_owned(), self.theme.strong()));
        }
        if counts.overdue_or_stalled > 0 {
            let text = format!("{} overdue or stalled", counts.overdue_or_stalled);
            parts.push((text, self.theme.state("Blocked")));
        }
        if counts.completed > 0 && self.model.shows_completed {
            parts.push((format!("{} completed", counts.completed), self.theme.dim()));
        }
        let mut out = Vec::new();
        for part in parts {
            if !out.is_empty() {
                out.push(("  ".to_owned(), Style::new()));
            }
            out.push(part);
        }
        out
    }

    /// Describes the order of the rows, the filter that the user has typed, the filters in the
    /// flags of the command, and the address of the kube-apiserver.
    fn order_and_filters(&self) -> String {
        let model = self.model;
        let order = match (model.order, model.reversed) {
            (TopOrder::Age, false) => "oldest first",
            (TopOrder::Age, true) => "newest first",
            (TopOrder::Progress, false) => "most progress first",
            (TopOrder::Progress, true) => "least progress first",
            (TopOrder::State, false) => "most urgent first",
            (TopOrder::State, true) => "least urgent first",
            (TopOrder::Subject, false) => "by subject",
            (TopOrder::Subject, true) => "by subject, backwards",
        };
        let filter = if model.filter.is_empty() || model.is_typing {
            String::new()
        } else {
            format!(", filter {:?}", model.filter)
        };
        format!("{order}{filter}, {}", model.about)
    }

    fn table(&self, areas: ScreenAreas) -> Vec<Line<'static>> {
        let model = self.model;
        let layout = model.layout();
        let mut lines = Vec::new();
        if areas.heading > 0 {
            let spans = layout.columns.iter().map(|(column, width)| {
                let style = if model.order.column() == *column {
                    self.theme.sorted()
                } else {
                    self.theme.strong()
                };
                let text = cut(column.header_within(*width), *width);
                let blanks = " ".repeat(width - text.width() + layout.gap);
                [Span::styled(text, style), Span::raw(blanks)]
            });
            lines.push(spans.flatten().collect());
        }
        let rows = model.table_rows.iter().enumerate().skip(model.offset);
        for (number, row) in rows {
            if lines.len() >= areas.body {
                break;
            }
            let own = std::iter::once(self.row(row, &layout));
            let own = own.chain((layout.lines(row) > 1).then(|| self.message_line(row)));
            lines.extend(own.map(|line| {
                if number == model.cursor {
                    line.style(self.theme.cursor())
                } else {
                    line
                }
            }));
        }
        if model.table_rows.is_empty() {
            lines.extend(self.nothing());
        }
        lines
    }

    /// Returns the line for a table without rows. Returns None until the first list of operations
    /// is complete.
    fn nothing(&self) -> Option<Line<'static>> {
        let model = self.model;
        let text = match (&model.watch_state, model.filter.is_empty()) {
            (TopWatchState::Listing, _) => return None,
            (_, false) => "No operation matches the filter; Esc clears it.",
            (_, true) if model.shows_completed => "No operations.",
            (_, true) => "No operations in flight; c shows completed ones, too.",
        };
        Some(Line::styled(cut(text, self.width), self.theme.dim()))
    }

    fn row(&self, row: &TopRow, layout: &TopLayout) -> Line<'static> {
        let operation = &row.operation;
        let usual = if operation.active {
            Style::new()
        } else {
            self.theme.dim()
        };
        let state = self.theme.state(operation.color_state());
        let mut spans = Vec::new();
        let mut used = 0;
        for (column, width) in &layout.columns {
            let width = *width;
            let text = match column {
                Subject if layout.has_short_kinds => row.short_subject.clone(),
                Subject => row.subject.clone(),
                // A state that does not fit is cut without `…`. The first four letters identify
                // each state, except that `Fail` can be `Failing` or `Failed`.
                State if row.widths.state > width => operation.state.chars().take(width).collect(),
                State => row.state.clone(),
                Progress => progress(operation.progress, width),
                column => column.text(operation, self.model.now),
            };
            let text = if text.is_empty() {
                EMPTY_CELL.to_owned()
            } else {
                text
            };
            let style = match column {
                State | Progress => state,
                _ => usual,
            };
            let text = pad(&cut(&text, width), width);
            used += text.width() + layout.gap;
            spans.push(Span::styled(text, style));
            spans.push(Span::raw(" ".repeat(layout.gap)));
        }
        // Blanks fill the line, because the cursor highlights the whole line.
        spans.push(Span::raw(" ".repeat(self.width.saturating_sub(used))));
        Line::from_iter(spans)
    }

    /// Returns the second line of a row, which has the message.
    fn message_line(&self, row: &TopRow) -> Line<'static> {
        let text = format!("{MESSAGE_INDENT}{}", row.message);
        let style = if row.operation.active {
            Style::new()
        } else {
            self.theme.dim()
        };
        Line::styled(pad(&cut(&text, self.width), self.width), style)
    }

    fn help(&self) -> Vec<Line<'static>> {
        let mut lines = vec![Line::default()];
        for (keys, what) in HELP {
            let keys = cut(&format!("  {}", pad(keys, 12)), self.width);
            let what = cut(what, self.width - keys.width());
            lines.push(Line::from_iter([
                Span::styled(keys, self.theme.strong()),
                Span::raw(what),
            ]));
        }
        lines
    }

    /// Returns a slash and the filter that the user is typing, such as `/virtual`. If the filter is
    /// too long for the screen, returns only its end.
    fn prompt(&self) -> String {
        let filter = one_line(&self.model.filter);
        let mut start = 0;
        // Two terminal columns are kept free for the slash and the cursor.
        let room = self.width.saturating_sub(2);
        for (at, _) in filter.char_indices() {
            if filter[at..].width() <= room {
                break;
            }
            start = filter[at..]
                .chars()
                .next()
                .map_or(at, |c| at + c.len_utf8());
        }
        format!("/{}", &filter[start..])
    }

    fn footer(&self) -> Line<'static> {
        let model = self.model;
        if model.is_typing {
            let prompt = self.prompt();
            let found = format!("  {} found", model.table_rows.len());
            let found = cut(&found, self.width.saturating_sub(prompt.width() + 1));
            return Line::from_iter([
                Span::raw(prompt),
                Span::raw(" "),
                Span::styled(found, self.theme.dim()),
            ]);
        }
        let keys: &[(&str, &str)] = match &model.page {
            TopPage::List => &[
                ("q", "quit"),
                ("?", "help"),
                ("Enter", "detail"),
                ("/", "filter"),
                ("s", "order"),
                ("c", "completed"),
            ],
            TopPage::Detail(_) => &[
                ("q", "quit"),
                ("?", "help"),
                ("Esc", "back"),
                ("↑↓", "scroll"),
            ],
            TopPage::Help(_) => &[("any key", "back")],
        };
        let place = match &model.page {
            TopPage::List if !model.table_rows.is_empty() => {
                format!("{}/{}", model.cursor + 1, model.table_rows.len())
            }
            _ => String::new(),
        };
        let place = cut(&place, self.width);
        let mut room = self.width - place.width();
        let mut spans = Vec::new();
        for (key, what) in keys {
            let wide = key.width() + what.width() + 3;
            if wide > room {
                break;
            }
            room -= wide;
            spans.push(Span::styled((*key).to_owned(), self.theme.strong()));
            spans.push(Span::styled(format!(" {what}  "), self.theme.dim()));
        }
        spans.push(Span::raw(" ".repeat(room)));
        spans.push(Span::styled(place, self.theme.dim()));
        Line::from_iter(spans)
    }
}

/// Formats the percentage, such as `40%`. If there is space, puts a progress bar before the
/// percentage. Returns an empty text if the percentage is unknown.
fn progress(percent: Option<u8>, width: usize) -> String {
    let Some(percent) = percent else {
        return String::new();
    };
    match width.saturating_sub(PERCENT) {
        0..3 => format!("{percent}%"),
        room => format!("{} {percent:>3}%", bar(percent, room)),
    }
}
