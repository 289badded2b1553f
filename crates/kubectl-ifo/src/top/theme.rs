//! How things look on the screen of `top`: as `list` paints them, in ratatui's terms.

use crate::paint::{Paint, of_state};
use anstyle::{AnsiColor, Effects};
use ratatui::style::{Color, Modifier, Style};

/// Styles, with colour or without.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Theme {
    color: bool,
}

impl From<Paint> for Theme {
    fn from(paint: Paint) -> Self {
        Self { color: paint.on }
    }
}

impl Theme {
    /// For what has to do with an operation in this state.
    pub(super) fn state(self, state: &str) -> Style {
        let style = of_state(state);
        let mut out = Style::new();
        if style.get_effects().contains(Effects::BOLD) {
            out = out.add_modifier(Modifier::BOLD);
        }
        if !self.color {
            return out;
        }
        if style.get_effects().contains(Effects::DIMMED) {
            out = out.add_modifier(Modifier::DIM);
        }
        match style.get_fg_color() {
            Some(anstyle::Color::Ansi(color)) => out.fg(named(color)),
            _ => out,
        }
    }

    /// For what matters less.
    pub(super) fn dim(self) -> Style {
        if self.color {
            Style::new().add_modifier(Modifier::DIM)
        } else {
            Style::new()
        }
    }

    /// For headings and names.
    #[expect(clippy::unused_self, reason = "called as the others are")]
    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// For the heading of the column that sorts.
    pub(super) fn sorted(self) -> Style {
        self.strong().add_modifier(Modifier::UNDERLINED)
    }

    /// For what is wrong.
    pub(super) fn bad(self) -> Style {
        self.state("Failing")
    }

    /// For what is as it should be.
    pub(super) fn good(self) -> Style {
        self.state("Succeeded")
    }

    /// For the row of the cursor, on top of what it has.
    #[expect(clippy::unused_self, reason = "called as the others are")]
    pub(super) fn cursor(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// The same colour, which the terminal's own palette says the looks of.
fn named(color: AnsiColor) -> Color {
    match color {
        AnsiColor::Black => Color::Black,
        AnsiColor::Red => Color::Red,
        AnsiColor::Green => Color::Green,
        AnsiColor::Yellow => Color::Yellow,
        AnsiColor::Blue => Color::Blue,
        AnsiColor::Magenta => Color::Magenta,
        AnsiColor::Cyan => Color::Cyan,
        AnsiColor::White => Color::Gray,
        AnsiColor::BrightBlack => Color::DarkGray,
        AnsiColor::BrightRed => Color::LightRed,
        AnsiColor::BrightGreen => Color::LightGreen,
        AnsiColor::BrightYellow => Color::LightYellow,
        AnsiColor::BrightBlue => Color::LightBlue,
        AnsiColor::BrightMagenta => Color::LightMagenta,
        AnsiColor::BrightCyan => Color::LightCyan,
        AnsiColor::BrightWhite => Color::White,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_colour_there_is_none_and_the_cursor_is_seen_all_the_same() {
        let theme = Theme::default();
        for state in [
            "Failing",
            "Blocked",
            "Progressing",
            "Settling",
            "Succeeded",
            "?",
        ] {
            assert_eq!(theme.state(state).fg, None);
        }
        assert!(theme.cursor().add_modifier.contains(Modifier::REVERSED));
        let color = Theme { color: true };
        assert_eq!(color.state("Failing").fg, Some(Color::Red));
        assert_eq!(color.good().fg, Some(Color::Green));
    }
}
