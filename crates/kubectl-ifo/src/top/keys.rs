//! Changes the model of `top` when the user presses a key.

use super::model::{LoopAction, Model, TopPage};
use super::view::ScreenAreas;
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// Largest length of the typed filter, in characters. Most terminals have shorter lines. Further
/// characters are ignored, so that a long pasted text does not use much memory.
const LONGEST_FILTER: usize = 200;

/// The keys and their descriptions for the help.
pub(super) const HELP: &[(&str, &str)] = &[
    ("↑ ↓ k j", "move"),
    ("PgUp PgDn", "a page up, down; also b and space"),
    ("Home End", "first, last; also g and G"),
    ("Enter", "details of the operation; Esc returns"),
    (
        "/",
        "filter as you type: rows must contain all words, in any order",
    ),
    ("", "Enter keeps the filter, Esc clears it"),
    (
        "s ← →",
        "order: age, progress, state, subject; r reverses it",
    ),
    ("c", "show or hide completed operations"),
    ("e", "show or hide the members of each piece of work"),
    ("Ctrl-L", "redraw the screen"),
    ("?", "show this help"),
    ("q Ctrl-C", "quit"),
];

impl Model {
    /// Changes the model for a key, and returns the action of the main loop.
    pub(super) fn key(&mut self, key: KeyEvent) -> LoopAction {
        // Some terminals also report the release of a key. Such an event is ignored.
        if key.kind == KeyEventKind::Release {
            return LoopAction::Continue;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return LoopAction::Quit,
                KeyCode::Char('l') => return LoopAction::Redraw,
                _ => {}
            }
        }
        if self.is_typing {
            self.type_key(key);
            return LoopAction::Continue;
        }
        if key.code == KeyCode::Char('q') {
            return LoopAction::Quit;
        }
        match &mut self.page {
            TopPage::Help(page) => self.page = std::mem::replace(page, TopPage::List),
            page if matches!(key.code, KeyCode::Char('?' | 'h') | KeyCode::F(1)) => {
                let page = std::mem::replace(page, TopPage::List);
                self.page = TopPage::Help(Box::new(page));
            }
            TopPage::Detail(_) => self.detail_key(key.code),
            TopPage::List => self.list_key(key),
        }
        LoopAction::Continue
    }

    fn list_key(&mut self, key: KeyEvent) {
        if let Some(row) = position_after_key(key.code, self.cursor, self.page_rows()) {
            self.move_to(row);
            return;
        }
        match key.code {
            KeyCode::Enter => self.open(),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('s') | KeyCode::Right => self.order = self.order.step(1),
            // Three steps forward in a cycle of four are one step back.
            KeyCode::Char('S') | KeyCode::Left => self.order = self.order.step(3),
            KeyCode::Char('r') => self.reversed = !self.reversed,
            KeyCode::Char('c' | 'a') => self.shows_completed = !self.shows_completed,
            KeyCode::Char('e') => self.is_expanded = !self.is_expanded,
            _ => return,
        }
        self.mark_stale();
    }

    fn type_key(&mut self, key: KeyEvent) {
        match key.code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                self.filter.clear();
            }
            KeyCode::Char('w') if key.modifiers.contains(KeyModifiers::CONTROL) => {
                let end = self.filter.trim_end().rfind(' ').map_or(0, |at| at + 1);
                self.filter.truncate(end);
            }
            KeyCode::Char(c)
                if !key
                    .modifiers
                    .intersects(KeyModifiers::CONTROL | KeyModifiers::ALT) =>
            {
                self.insert(c.encode_utf8(&mut [0; 4]));
            }
            // While the filter is typed, letters such as `j` are text. So only these keys move the
            // cursor.
            KeyCode::Up | KeyCode::Down | KeyCode::PageUp | KeyCode::PageDown => {
                if let Some(row) = position_after_key(key.code, self.cursor, self.page_rows()) {
                    self.move_to(row);
                }
            }
            _ => {}
        }
        self.mark_stale();
    }

    /// Appends a text to the filter, up to the largest length.
    pub(super) fn insert(&mut self, text: &str) {
        let room = LONGEST_FILTER.saturating_sub(self.filter.chars().count());
        self.filter.extend(text.chars().take(room));
    }

    fn detail_key(&mut self, code: KeyCode) {
        let rows = ScreenAreas::of(self.size.1.into()).body.max(1);
        let TopPage::Detail(detail) = &self.page else {
            return;
        };
        if let Some(line) = position_after_key(code, detail.scroll, rows) {
            self.scroll_to(line);
        } else if matches!(code, KeyCode::Esc | KeyCode::Backspace | KeyCode::Left) {
            self.page = TopPage::List;
        }
    }
}

/// Returns the row to which a key moves the cursor, or the line to which a key scrolls the page.
/// `from` is the current row or line. `page` is the number of rows or lines on the screen. The
/// result can be larger than the last row or line. None if the key neither moves nor scrolls.
fn position_after_key(code: KeyCode, from: usize, page: usize) -> Option<usize> {
    // A page key moves by one row less than a page, so that one row of the previous page stays
    // visible.
    let page = page.saturating_sub(1).max(1);
    Some(match code {
        KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => from.saturating_add(1),
        KeyCode::PageUp | KeyCode::Char('b') => from.saturating_sub(page),
        KeyCode::PageDown | KeyCode::Char(' ' | 'f') => from.saturating_add(page),
        KeyCode::Home | KeyCode::Char('g') => 0,
        KeyCode::End | KeyCode::Char('G') => usize::MAX,
        _ => return None,
    })
}
