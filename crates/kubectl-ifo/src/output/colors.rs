//! Decides whether the output has colours, and defines the colour of each state. By default, the
//! output has colours if standard output is a terminal. The flags `--color` and `--no-color`, and
//! the variables `NO_COLOR` and `TERM=dumb`, override this default.

use crate::output::terminal_text::TerminalText;
use anstyle::{AnsiColor, Style};
use ifo_api::live::{Phase, State};
use std::io::IsTerminal as _;

/// The flags that enable or disable colours.
#[derive(Debug, Clone, Copy, Default, clap::Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Colors {
    /// Use colour even if the output is not a terminal
    #[arg(long, overrides_with = "no_color")]
    color: bool,
    /// Use no colour (as with the variable NO_COLOR)
    #[arg(long, overrides_with = "color")]
    no_color: bool,
}

impl Colors {
    /// Decides from the flags, the environment and the terminal whether standard output has
    /// colours.
    pub(crate) fn paint(self) -> Paint {
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

/// Returns the style in which the state of an operation is shown.
fn state_style(state: State) -> Style {
    match state {
        State::Failing | State::Failed => AnsiColor::Red.on_default().bold(),
        State::Blocked => AnsiColor::Yellow.on_default(),
        State::Held => AnsiColor::Magenta.on_default(),
        State::Progressing => AnsiColor::Cyan.on_default(),
        State::Succeeded => AnsiColor::Green.on_default(),
        // Custom resources of the Go operator have no state, so the phase is decoded as the state.
        State::Unknown(_) if state.name() == Phase::Active.name() => AnsiColor::Cyan.on_default(),
        _ => Style::new().dimmed(),
    }
}

/// Adds colours to text, if colours are enabled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Paint {
    /// True if colours are enabled.
    pub(crate) on: bool,
}

impl Paint {
    /// Formats `text` in the colour of the state.
    pub(crate) fn state(self, state: State, text: &str) -> TerminalText {
        self.apply(state_style(state), text)
    }

    /// Formats `text` as a heading.
    pub(crate) fn heading(self, text: &str) -> TerminalText {
        self.apply(Style::new().bold(), text)
    }

    /// Formats `text` as less important.
    pub(crate) fn dim(self, text: &str) -> TerminalText {
        self.apply(Style::new().dimmed(), text)
    }

    fn apply(self, style: Style, text: &str) -> TerminalText {
        if self.on {
            TerminalText::styled(style, text)
        } else {
            text.into()
        }
    }
}
