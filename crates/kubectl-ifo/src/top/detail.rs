//! Formats the page of `top` with the details of one operation, in lines that fit on the terminal.

use super::model::Detail;
use super::related_objects::RelatedObject;
use super::row::TopRow;
use super::theme::Theme;
use crate::columns::{EMPTY_CELL, age};
use crate::listed_operation::{ConditionView, ListedOperation};
use crate::plain_text::{ago, cut, one_line, pad};
use ifo_api::duration;
use jiff::Timestamp;
use ratatui::text::{Line, Span};
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Width of the column with the names of fields, in terminal columns.
const NAME_WIDTH: usize = 13;

/// Largest width of the progress bar, in terminal columns.
const BAR_WIDTH: usize = 30;

/// Smallest width for a text to the right of its name, in terminal columns. If there is less space,
/// the text is below the name.
const MIN_TEXT_WIDTH: usize = 8;

/// Returns all lines of the page, from top to bottom.
pub(super) fn lines(
    detail: &Detail,
    now: Timestamp,
    width: usize,
    theme: Theme,
) -> Vec<Line<'static>> {
    let mut page = PageLines {
        width,
        theme,
        lines: Vec::new(),
    };
    let operation = &detail.row.operation;
    page.title(&detail.row);
    page.blank();
    page.time(operation, detail.is_deleted, now);
    if let Some(progress) = operation.progress {
        let bar = bar(
            progress,
            BAR_WIDTH.min(width.saturating_sub(NAME_WIDTH + 5)),
        );
        page.field("Progress", &format!("{bar} {progress}%"));
    }
    let work = operation.work.clone().unwrap_or_default();
    for (name, text) in [
        ("Expected", &operation.usual_duration_and_source()),
        ("Estimate", &operation.time_left(now)),
        ("Message", &operation.message),
        ("Reason", &operation.reason),
        ("Nodes", &operation.nodes.join(", ")),
        ("Component", &operation.component),
        ("Rule set", &operation.rule_set),
        ("Work", &work),
        ("Object", &operation.name),
    ] {
        if !text.is_empty() {
            page.field(name, text);
        }
    }
    page.heading("Owners and what they own");
    for related in &detail.related_objects {
        page.add_related_object(related, now);
    }
    if !operation.conditions.is_empty() {
        page.heading("Conditions");
    }
    for condition in &operation.conditions {
        page.condition(condition, now);
    }
    if !operation.labels.is_empty() {
        page.heading("Labels");
    }
    // Labels come last, because most labels repeat values of the lines above.
    for (key, value) in &operation.labels {
        page.text(&format!("{key}={value}"));
    }
    page.lines
}

struct PageLines {
    width: usize,
    theme: Theme,
    lines: Vec<Line<'static>>,
}

impl PageLines {
    fn blank(&mut self) {
        self.lines.push(Line::default());
    }

    fn heading(&mut self, text: &str) {
        self.blank();
        let text = cut(text, self.width);
        self.lines.push(Line::styled(text, self.theme.strong()));
    }

    fn title(&mut self, row: &TopRow) {
        let operation = &row.operation;
        let name = match row.namespace.as_str() {
            "" => row.subject.clone(),
            namespace => format!("{} in {namespace}", row.subject),
        };
        let state = format!("{}, {}", operation.operation, operation.marked_state());
        let state = one_line(&state);
        // If name and state do not fit on one line, each begins on its own line.
        let (strong, color) = (
            self.theme.strong(),
            self.theme.state(operation.color_state()),
        );
        if name.width() + 2 + state.width() <= self.width {
            self.lines.push(Line::from_iter([
                Span::styled(name, strong),
                Span::raw("  "),
                Span::styled(state, color),
            ]));
            return;
        }
        for (text, style) in [(name, strong), (state, color)] {
            for line in wrap(&text, self.width) {
                self.lines.push(Line::styled(line, style));
            }
        }
    }

    fn time(&mut self, operation: &ListedOperation, is_deleted: bool, now: Timestamp) {
        if let Some(started) = operation.started {
            let age = age(operation, now);
            self.field("Started", &format!("{age} ago, {started:.0}"));
        }
        if let Some(completed) = operation.completed {
            let mut text = format!("{} ago, {completed:.0}", ago(completed, now));
            if let Some(started) = operation.started {
                let took = completed.as_second() - started.as_second();
                text = format!("{text}, after {}", duration::human(took));
            }
            self.field("Completed", &text);
        }
        if is_deleted {
            self.field(
                "Note",
                "the server has deleted this operation; this is its last known state",
            );
        }
    }

    /// Adds the name and the text of a field, on as many lines as necessary.
    fn field(&mut self, name: &str, text: &str) {
        let text = one_line(text);
        let room = self.width.saturating_sub(NAME_WIDTH);
        if room < MIN_TEXT_WIDTH {
            self.push(0, name, self.theme.dim(), &text);
        } else {
            self.push(NAME_WIDTH, name, self.theme.dim(), &text);
        }
    }

    /// Adds a text without a name, on as many lines as necessary.
    fn text(&mut self, text: &str) {
        self.push(0, "", self.theme.dim(), &one_line(text));
    }

    /// Adds a text that is indented by `indent` columns. The indentation of the first line contains
    /// the name. If `indent` is 0, the name has its own line above the text.
    fn push(&mut self, indent: usize, name: &str, style: ratatui::style::Style, text: &str) {
        if indent == 0 && !name.is_empty() {
            self.lines.push(Line::styled(cut(name, self.width), style));
        }
        let wrapped = wrap(text, self.width.saturating_sub(indent));
        for (number, line) in wrapped.into_iter().enumerate() {
            let name = if number == 0 && indent > 0 { name } else { "" };
            let name = pad(&cut(name, indent.saturating_sub(1)), indent);
            let spans = [Span::styled(name, style), Span::raw(line)];
            self.lines.push(Line::from_iter(spans));
        }
    }

    fn condition(&mut self, condition: &ConditionView, now: Timestamp) {
        let ConditionView {
            kind,
            status,
            reason,
            message,
            last_transition_time,
        } = condition;
        let when = last_transition_time.map(|time| ago(time, now));
        let when = when.unwrap_or_default();
        let text = format!(
            "{status:<8}{when:<7}{}",
            [reason.as_str(), message].join("  ")
        );
        self.field(kind, text.trim_end());
    }

    fn add_related_object(&mut self, related: &RelatedObject, now: Timestamp) {
        let indent = match related.depth {
            0 => String::new(),
            depth => format!("{}└─ ", "   ".repeat(depth - 1)),
        };
        // Only the last part of a long indentation is shown, in at most half of the line. So the
        // name stays visible.
        let hidden_indent = indent.width().saturating_sub(self.width / 2);
        let indent: String = indent.chars().skip(hidden_indent).collect();
        let mut room = self.width.saturating_sub(indent.width());
        let name = cut(&related.name, room);
        room -= name.width();
        let style = if related.is_subject {
            self.theme.strong()
        } else {
            ratatui::style::Style::new()
        };
        let mut spans = vec![Span::raw(indent), Span::styled(name, style)];
        for row in &related.rows {
            let operation = &row.operation;
            let text = one_line(&format!(
                "  {} {}{} {}",
                operation.operation,
                operation.marked_state(),
                operation.percent(" "),
                age(operation, now)
            ));
            let text = cut(&text, room);
            room -= text.width();
            spans.push(Span::styled(text, self.theme.state(&operation.state)));
        }
        if related.rows.is_empty() {
            spans.push(Span::styled(
                cut(&format!("  {EMPTY_CELL}"), room),
                self.theme.dim(),
            ));
        }
        self.lines.push(Line::from_iter(spans));
    }
}

/// Returns a progress bar of `width` terminal columns that is filled to `percent`. The bar has a
/// resolution of an eighth of a column.
pub(super) fn bar(percent: u8, width: usize) -> String {
    const EIGHTHS: [&str; 8] = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let eighths = usize::from(percent.min(100)) * width * 8 / 100;
    let full = "█".repeat(eighths / 8);
    let rest = EIGHTHS[eighths % 8];
    let empty = width - eighths.div_ceil(8);
    format!("{full}{rest}{}", "░".repeat(empty))
}

/// Breaks `text` into lines of at most `width` terminal columns, between words if possible.
fn wrap(text: &str, width: usize) -> Vec<String> {
    if width == 0 {
        return Vec::new();
    }
    let mut lines = vec![String::new()];
    let mut used = 0;
    for word in text.split_inclusive(' ') {
        let wide = word.trim_end().width();
        if used > 0 && used + wide > width {
            lines.push(String::new());
            used = 0;
        }
        for c in word.chars() {
            let wide = c.width().unwrap_or_default();
            if used + wide > width {
                // If a word ends at the last column, the blank after it is dropped.
                if c == ' ' {
                    continue;
                }
                lines.push(String::new());
                used = 0;
            }
            if let Some(line) = lines.last_mut() {
                line.push(c);
            }
            used += wide;
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_progress_bar_has_the_given_width_and_fill() {
        for width in 0..40 {
            for percent in 0..=255 {
                assert_eq!(bar(percent, width).width(), width);
            }
        }
        assert_eq!(bar(0, 4), "░░░░");
        assert_eq!(bar(45, 4), "█▊░░");
        assert_eq!(bar(100, 4), "████");
        assert_eq!(bar(255, 4), "████");
    }

    #[test]
    fn text_wraps_between_words_and_long_words_anywhere() {
        assert_eq!(wrap("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap("one two three", 8), ["one two ", "three"]);
        assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap("a 日本語 b", 4), ["a ", "日本", "語 b"]);
        assert_eq!(wrap("", 4), [""]);
        assert!(wrap("abc", 0).is_empty());
    }
}
