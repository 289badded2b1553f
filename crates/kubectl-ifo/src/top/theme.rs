//! Defines the styles of `top` for ratatui. States have the same colours as in `list`.

use crate::colors::{Paint, state_style};
use anstyle::{AnsiColor, Effects};
use ratatui::style::{Color, Modifier, Style};

/// The styles, with or without colours.
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
    /// Returns the style of an operation in this state.
    pub(super) fn state(self, state: &str) -> Style {
        let style = state_style(state);
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
            Some(anstyle::Color::Ansi(color)) => out.fg(ratatui_color(color)),
            _ => out,
        }
    }

    /// Returns the style of less important text.
    pub(super) fn dim(self) -> Style {
        if self.color {
            Style::new().add_modifier(Modifier::DIM)
        } else {
            Style::new()
        }
    }

    /// Returns the style of headings and names.
    #[expect(clippy::unused_self, reason = "called as the others are")]
    pub(super) fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Returns the style of the heading of the sorted column.
    pub(super) fn sorted(self) -> Style {
        self.strong().add_modifier(Modifier::UNDERLINED)
    }

    /// Returns the style of problems.
    pub(super) fn bad(self) -> Style {
        self.state("Failing")
    }

    /// Returns the style of text that reports success, such as `live` for a working watch.
    pub(super) fn good(self) -> Style {
        self.state("Succeeded")
    }

    /// Returns the style that is added to the row under the cursor.
    #[expect(clippy::unused_self, reason = "called as the others are")]
    pub(super) fn cursor(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Converts a colour to the type of ratatui. The palette of the terminal defines how the colour
/// looks.
fn ratatui_color(color: AnsiColor) -> Color {
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
    fn without_colors_states_are_plain_and_the_cursor_is_reversed() {
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
