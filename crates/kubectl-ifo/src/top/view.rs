//! Draws the model of `top` (the content of the screen as data) as a frame on the screen. The table
//! has the columns of `kubectl ifo list`.

use super::keys::HELP;
use super::model::Model;
use crate::describe;
use crate::operations::operation::OperationFacts as _;
use crate::output::columns::Table;
use crate::output::plain_text::{ago, one_line, pad};
use crate::output::print::{TerminalText, TextStyle};
use crate::work_groups::Row;
use ifo_api::live::State as Stage;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{List, ListItem, ListState, Paragraph, Wrap};

/// Width of the column with the names of fields and keys, in terminal columns.
const NAME_WIDTH: usize = 13;

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
        let lines = HELP.iter();
        let lines = lines.map(|(keys, what)| format!("{}{what}", pad(keys, NAME_WIDTH)).into());
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
    if model.counts.is_empty() {
        counts += paint.heading("none in flight");
    }
    let is_late = |it: &&Row| !it.is_member && (it.is_overdue() || it.is_stalled());
    let late = model.rows.iter().filter(is_late).count();
    if late > 0 {
        counts += paint.state(Stage::Blocked, &format!("{late} overdue or stalled"));
    }
    let second = match problem.or(model.incomplete.as_ref()) {
        Some(problem) => paint.state(Stage::Failing, &one_line(problem)),
        None => paint.dim(&order_and_filters(model)),
    };
    let lines = vec![styled(&counts), styled(&second)];
    frame.render_widget(Paragraph::new(lines), area);
    let state = Line::raw(format!(" {state}")).right_aligned();
    frame.render_widget(state, area);
}

/// Describes the order of the rows, the typed filter, the filters in the flags of the command, and
/// the address of the kube-apiserver.
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
    // The last page is full, even if the screen has become larger.
    let last = model.rows.len().saturating_sub(model.page_rows);
    let first = model.offset.max((model.cursor + 1).saturating_sub(height));
    let first = first.min(model.cursor).min(last);
    let end = model.rows.len().min(first + height);
    let rows = &model.rows[first..end];
    let style = TextStyle {
        screen: Some(area.width.into()),
        ..model.style.clone()
    };
    let table = Table::new(rows, model.now, &style).fitted(rows, model.now);
    frame.render_widget(styled(&table.header()), heading);
    if rows.is_empty() {
        let text = match (model.filter.as_str(), model.shows_completed) {
            ("", true) => model.filters.empty_result_message(),
            ("", false) if model.filters.is_unfiltered() => {
                "No operations in flight; c shows completed ones, too."
            }
            ("", false) => "No operations in flight match; c shows completed ones, too.",
            _ => "No operation matches the filter; Esc clears it.",
        };
        frame.render_widget(Line::raw(text).dim(), body);
    }
    let items = rows.iter().map(|row| {
        let lines = table.row(row, model.now).split_lines();
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

/// Draws the page with the details of one operation, as `kubectl ifo describe` prints it. Limits
/// the scroll position.
fn draw_detail(model: &mut Model, frame: &mut Frame, area: Rect) {
    let Some(detail) = &mut model.detail else {
        return;
    };
    let Some(operation) = model.operations.get(&detail.key) else {
        return;
    };
    let paint = model.style.paint;
    let heading = paint.heading(&one_line(&operation.place_name())) + "\n";
    let all = model.operations.values();
    let text = heading + describe::text::describe(operation, &detail.facts, all, model.now, paint);
    let lines: Vec<Line> = text.split_lines().iter().map(styled).collect();
    let page = Paragraph::new(lines).wrap(Wrap { trim: false });
    model.page_rows = usize::from(area.height);
    let last = page.line_count(area.width).saturating_sub(model.page_rows);
    detail.scroll = detail.scroll.min(last);
    let hidden = u16::try_from(detail.scroll).unwrap_or(u16::MAX);
    frame.render_widget(page.scroll((hidden, 0)), area);
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

/// Converts one line of text to a line of ratatui. The escape sequences of the module `colors`
/// become styles.
fn styled(text: &TerminalText) -> Line<'static> {
    let mut style = Style::new();
    let mut line = Line::default();
    for (number, part) in text.trim_end().split("\x1b[").enumerate() {
        let (code, text) = match part.split_once('m') {
            Some(sequence) if number > 0 => sequence,
            _ => ("", part),
        };
        style = match code.parse() {
            Ok(0) => Style::new(),
            Ok(1) => style.bold(),
            Ok(2) => style.dim(),
            Ok(color @ 31..=36) => style.fg(Color::Indexed(color - 30)),
            _ => style,
        };
        line.push_span(Span::styled(text.to_owned(), style));
    }
    line
}
