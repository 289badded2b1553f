//! Colours on a terminal, unless `NO_COLOR` or a flag disables them.

use anstyle::{AnsiColor, Style};
use std::io::IsTerminal as _;

/// The flags about colour.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub(super) struct Colors {
    /// Use colour even if the output is not a terminal
    #[arg(long, overrides_with = "no_color")]
    color: bool,
    /// Use no colour (as with the variable NO_COLOR)
    #[arg(long, overrides_with = "color")]
    no_color: bool,
}

impl Colors {
    /// Returns the colour setting for standard output.
    pub(super) fn paint(self) -> Paint {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        // https://no-color.org
        let wanted = set("NO_COLOR").is_none()
            && set("TERM").is_none_or(|term| term != "dumb")
            && std::io::stdout().is_terminal();
        Paint {
            on: self.color || (wanted && !self.no_color),
        }
    }
}

/// Returns the style of a state.
pub(super) fn of_state(state: &str) -> Style {
    match state {
        "Failing" | "Failed" => AnsiColor::Red.on_default().bold(),
        "Blocked" => AnsiColor::Yellow.on_default(),
        "Progressing" | "Active" => AnsiColor::Cyan.on_default(),
        "Succeeded" => AnsiColor::Green.on_default(),
        _ => Style::new().dimmed(),
    }
}

/// Colours text, or not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Paint {
    /// Returns true if colours are used.
    pub(super) on: bool,
}

impl Paint {
    /// Formats `text` in the colour of the state.
    pub(super) fn state(self, state: &str, text: &str) -> String {
        self.apply(of_state(state), text)
    }

    /// Formats a heading.
    pub(super) fn heading(self, text: &str) -> String {
        self.apply(Style::new().bold(), text)
    }

    /// Formats less important text.
    pub(super) fn dim(self, text: &str) -> String {
        self.apply(Style::new().dimmed(), text)
    }

    fn apply(self, style: Style, text: &str) -> String {
        if self.on && !text.is_empty() {
            format!("{style}{text}{style:#}")
        } else {
            text.to_owned()
        }
    }
}
