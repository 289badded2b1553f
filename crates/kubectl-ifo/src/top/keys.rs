//! The keys of `top`, and what they do.

use super::model::{LoopAction, Model};
use crossterm::event::KeyCode::{
    Backspace, Char, Down, End, Enter, Esc, Home, Left, PageDown, PageUp, Right, Up,
};
use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Largest length of the typed filter, in characters. Further characters are ignored, so that a
/// long pasted text does not use much memory.
const LONGEST_FILTER: usize = 200;

/// The keys and their descriptions for the help.
pub(super) const HELP: &[(&str, &str)] = &[
    ("↑ ↓ k j", "move"),
    ("PgUp PgDn", "a page up, down; also b and space"),
    ("Home End", "first, last; also g and G"),
    ("Enter", "details of the operation; Esc returns"),
    ("/", "filter: rows with all words, in any order"),
    ("", "Enter keeps the filter, Esc clears it"),
    (
        "s S ← →",
        "order: state (worst first), age, progress, subject",
    ),
    ("r", "reverse the order"),
    ("c", "show or hide completed operations"),
    ("e", "show or hide the members of each piece of work"),
    ("Ctrl-L", "redraw the screen"),
    ("?", "show this help"),
    ("q Ctrl-C", "quit"),
];

impl Model {
    /// Applies a key to the model, and returns the action of the main loop.
    pub(super) fn key(&mut self, key: KeyEvent) -> LoopAction {
        // A key applies to the rows of the table, so the rows must be up to date.
        self.refresh_rows();
        let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            Char('c') if is_control => return LoopAction::Quit,
            Char('l') if is_control => return LoopAction::Redraw,
            _ if self.is_typing => self.type_key(key),
            Char('q') => return LoopAction::Quit,
            // Any key closes the help.
            _ if std::mem::take(&mut self.shows_help) => {}
            code => return self.page_key(code),
        }
        LoopAction::Continue
    }

    /// Applies a key to the table or to the detail page.
    fn page_key(&mut self, code: KeyCode) -> LoopAction {
        match code {
            Char('?' | 'h') => self.shows_help = true,
            Esc if self.detail.take().is_some() => {}
            _ if self.scroll(code) || self.detail.is_some() => return LoopAction::Continue,
            Enter => return self.open(),
            Char('/') => self.is_typing = true,
            Esc => self.filter.clear(),
            Char('s') | Right => self.change_order(1),
            Char('S') | Left => self.change_order(3),
            Char('r') => self.reversed = !self.reversed,
            Char('c' | 'a') => self.shows_completed = !self.shows_completed,
            Char('e') => self.is_expanded = !self.is_expanded,
            _ => {}
        }
        self.is_fresh = false;
        LoopAction::Continue
    }

    /// Moves the cursor, or scrolls the detail page. Returns false if the key does neither.
    fn scroll(&mut self, code: KeyCode) -> bool {
        let detail = self.detail.as_ref();
        let from = detail.map_or(self.cursor, |it| it.scroll);
        // A page key moves by one row less than a page, so that one row stays visible.
        let page = self.page_rows.saturating_sub(1).max(1);
        let to = match code {
            Up | Char('k') => from.saturating_sub(1),
            Down | Char('j') => from.saturating_add(1),
            PageUp | Char('b') => from.saturating_sub(page),
            PageDown | Char(' ' | 'f') => from.saturating_add(page),
            Home | Char('g') => 0,
            End | Char('G') => usize::MAX,
            _ => return false,
        };
        match &mut self.detail {
            Some(detail) => detail.scroll = to,
            None => self.move_to(to),
        }
        true
    }

    fn type_key(&mut self, key: KeyEvent) {
        let modified = KeyModifiers::CONTROL | KeyModifiers::ALT;
        match key.code {
            Enter => self.is_typing = false,
            Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            Backspace => {
                self.filter.pop();
            }
            Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => self.filter.clear(),
            Char(c)
                if !key.modifiers.intersects(modified)
                    && self.filter.chars().count() < LONGEST_FILTER =>
            {
                self.filter.push(c);
            }
            // While the user types the filter, letters such as `j` are part of the filter. So only
            // these keys move the cursor.
            code @ (Up | Down | PageUp | PageDown) => {
                self.scroll(code);
            }
            _ => {}
        }
        self.is_fresh = false;
    }
}
