//! Draws the model of `top` (the content of the screen as data) as a frame on the screen. The table
//! has the columns of `kubectl ifo list`.

use super::keys::HELP;
use super::model::{Detail, Model};
use crate::columns::Table;
use crate::describe::{self, DescribedFacts};
use crate::operation::OperationFacts as _;
use crate::output::{TerminalText, TextStyle};
use crate::plain_text::{ago, one_line, pad};
use crate::work_groups::Row;
use ifo_api::live::State as Stage;
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{List, ListItem, ListState, Paragraph, Widget as _, Wrap};

/// Width of the column with the names of fields and keys, in terminal columns.
const NAME_WIDTH: usize = 13;

/// Largest number of lines of the detail page. Further lines are left out.
const MAX_DETAIL_LINES: u16 = 500;

/// Draws the model on a frame.
pub(super) fn draw(model: &mut Model, frame: &mut Frame) {
    let [header, body, footer] = Layout::vertical([
        Constraint::Max(2),
        Constraint::Min(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    draw_header(model, frame, header);
    if model.shows_help {
        let lines = HELP
            .iter()
            .map(|(keys, what)| format!("{}{what}", pad(keys, NAME_WIDTH)).into());
        frame.render_widget(Paragraph::new(lines.collect::<Vec<Line>>()), body);
    } else if model.detail.is_some() {
        draw_detail(model, frame, body);
    } else {
        draw_table(model, frame, body);
    }
    draw_footer(model, frame, footer);
}

/// Draws the lines at the top of the screen. The first line has the number of operations in each
/// state, and the state of the watch. The second line has the order and the filters. If the watch
/// is interrupted or operations may be missing, the second line has the reason instead.
fn draw_header(model: &Model, frame: &mut Frame, area: Rect) {
    let (state, problem) = match &model.lost {
        Some((since, why)) => (format!("lost {} ago", ago(*since, model.now)), Some(why)),
        None if model.reads_files => ("from files".to_owned(), None),
        None => ("live".to_owned(), None),
    };
    let paint = model.style.paint;
    let mut counts = TerminalText::default();
    for (state, count) in model.counts.values() {
        let text = format!("{count} {}", state.name().to_lowercase());
        counts += paint.state(*state, &one_line(&text)) + "  ";
    }
    if model.completed > 0 {
        counts += paint.dim(&format!("{} completed  ", model.completed));
    }
    let is_late = |it: &&Row| !it.is_member && (it.is_overdue() || it.is_stalled());
    let late = model.rows.iter().filter(is_late).count();
    if late > 0 {
        counts += paint.state(Stage::Blocked, &format!("{late} overdue or stalled"));
    }
    if model.counts.is_empty() {
        counts += paint.heading("nothing in flight");
    }
    let second = match problem.or(model.incomplete.as_ref()) {
        Some(problem) => paint.state(Stage::Failing, &one_line(problem)),
        None => paint.dim(&order_and_filters(model)),
    };
    let state = Line::raw(state);
    // The width of a terminal fits into 16 bits.
    let width = u16::try_from(state.width()).unwrap_or(u16::MAX);
    let [first, rest] = Layout::vertical([Constraint::Max(1), Constraint::Fill(1)]).areas(area);
    let [left, right] =
        Layout::horizontal([Constraint::Fill(1), Constraint::Length(width)]).areas(first);
    frame.render_widget(styled(&counts), left);
    frame.render_widget(state, right);
    frame.render_widget(styled(&second), rest);
}

/// Describes the order of the rows, the filter that the user has typed, the filters in the flags of
/// the command, and the address of the kube-apiserver.
fn order_and_filters(model: &Model) -> String {
    let reversed = if model.reversed { ", reversed" } else { "" };
    let filter = match model.filter.as_str() {
        "" => String::new(),
        filter => format!(", filter {filter:?}"),
    };
    one_line(&format!(
        "by {}{reversed}{filter}, {}",
        model.order, model.about
    ))
}

/// Draws the headings and the rows of the table. Formats only the rows that can be on the screen.
fn draw_table(model: &mut Model, frame: &mut Frame, area: Rect) {
    let [heading, body] = Layout::vertical([Constraint::Max(1), Constraint::Fill(1)]).areas(area);
    let height = usize::from(body.height).max(1);
    let first = model
        .offset
        .max((model.cursor + 1).saturating_sub(height))
        .min(model.cursor);
    let end = model.rows.len().min(first + height);
    let rows = &model.rows[first..end];
    let style = TextStyle {
        screen: Some(area.width.into()),
        ..model.style.clone()
    };
    let table = Table::of_rows(rows, model.now, &style);
    frame.render_widget(styled(&table.header()), heading);
    if rows.is_empty() {
        let text = if model.filter.is_empty() {
            "No operations in flight; c shows completed ones, too."
        } else {
            "No operation matches the filter; Esc clears it."
        };
        frame.render_widget(Line::raw(text).dim(), body);
    }
    let items = rows.iter().map(|row| {
        let text = table.row(row, model.now);
        let lines = text.split_lines();
        ListItem::new(lines.iter().map(styled).collect::<Vec<Line>>())
    });
    let items: Vec<ListItem> = items.collect();
    let tallest = items.iter().map(ListItem::height).max();
    model.page_rows = height / tallest.unwrap_or(1).max(1);
    let list = List::new(items).highlight_style(Style::new().reversed());
    let mut state = ListState::default().with_selected(Some(model.cursor - first));
    frame.render_stateful_widget(list, body, &mut state);
    model.offset = first + state.offset();
}

/// Draws the page with the details of one operation, and limits its scroll position.
fn draw_detail(model: &mut Model, frame: &mut Frame, area: Rect) {
    let Some(detail) = &model.detail else {
        return;
    };
    let page = Paragraph::new(detail_lines(model, detail)).wrap(Wrap { trim: false });
    let mut whole = Buffer::empty(Rect {
        height: MAX_DETAIL_LINES,
        ..area
    });
    page.clone().render(whole.area, &mut whole);
    let last_cell = whole.content.iter().rposition(|it| it.symbol() != " ");
    let lines = last_cell.unwrap_or_default() / usize::from(area.width).max(1) + 1;
    let height = usize::from(area.height);
    let scroll = detail.scroll.min(lines.saturating_sub(height));
    let hidden = u16::try_from(scroll).unwrap_or(MAX_DETAIL_LINES);
    frame.render_widget(page.scroll((hidden, 0)), area);
    model.page_rows = height;
    if let Some(detail) = &mut model.detail {
        detail.scroll = scroll;
    }
}

/// Returns the description of the operation, as `kubectl ifo describe` prints it.
fn detail_lines(model: &Model, detail: &Detail) -> Vec<Line<'static>> {
    let Some(operation) = model.operations.get(&detail.key) else {
        return Vec::new();
    };
    let paint = model.style.paint;
    let mut lines = vec![styled(&paint.heading(&one_line(&operation.place_name())))];
    let unread = DescribedFacts::unread();
    let facts = detail.facts.as_ref().unwrap_or(&unread);
    let all = model.operations.values();
    let text = describe::text::describe(operation, facts, all, model.now, paint);
    lines.extend(text.split_lines().iter().map(styled));
    lines
}

/// Draws the line at the bottom: the most important keys and the position of the cursor, or the
/// filter that the user is typing.
fn draw_footer(model: &Model, frame: &mut Frame, area: Rect) {
    if model.is_typing {
        let prompt = Line::raw(format!("/{}", one_line(&model.filter)));
        let width = u16::try_from(prompt.width()).unwrap_or(u16::MAX);
        // If the prompt is too long, its end is shown. The last column is kept for the cursor.
        let hidden = (width + 1).saturating_sub(area.width);
        frame.render_widget(Paragraph::new(prompt).scroll((0, hidden)), area);
        frame.set_cursor_position((area.x + width - hidden, area.y));
        return;
    }
    let keys = match (model.shows_help, &model.detail) {
        (true, _) => "any key: back",
        (false, Some(_)) => "q quit  ? help  Esc back  ↑↓ scroll",
        (false, None) => "q quit  ? help  Enter detail  / filter  s order  c completed",
    };
    frame.render_widget(Line::raw(keys).dim(), area);
    if model.detail.is_none() && !model.rows.is_empty() {
        let place = format!(" {}/{}", model.cursor + 1, model.rows.len());
        frame.render_widget(Line::raw(place).right_aligned(), area);
    }
}

/// Converts one line of text with the escape sequences of `colors`.
fn styled(text: &TerminalText) -> Line<'static> {
    let mut style = Style::new();
    let mut line = Line::default();
    for (number, part) in text.trim_end().split("\x1b[").enumerate() {
        let (code, text) = match part.split_once('m') {
            Some(sequence) if number > 0 => sequence,
            _ => ("", part),
        };
        style = match code {
            "0" => Style::new(),
            "1" => style.bold(),
            "2" => style.dim(),
            "31" => style.fg(Color::Red),
            "32" => style.fg(Color::Green),
            "33" => style.fg(Color::Yellow),
            "35" => style.fg(Color::Magenta),
            "36" => style.fg(Color::Cyan),
            _ => style,
        };
        line.push_span(Span::styled(text.to_owned(), style));
    }
    line
}
