//! Switches the terminal to the full screen of `top`, and draws frames. At the end of the command,
//! the terminal is restored, also after an error, a panic or a signal.

use super::model::Model;
use super::view;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use ifo_api::printable;
use ratatui::DefaultTerminal;
use ratatui::buffer::Buffer;
use std::borrow::Cow;
use std::io::{self, stdout};

/// The full screen of `top`: the alternate screen of the terminal, in raw mode.
pub(super) struct Screen {
    terminal: DefaultTerminal,
}

impl Screen {
    /// Switches the terminal to the alternate screen. ratatui installs a panic hook that restores
    /// the terminal before it prints the message of the panic.
    pub(super) fn enter() -> io::Result<Self> {
        match ratatui::try_init() {
            Ok(terminal) => {
                let mut screen = Self { terminal };
                crossterm::execute!(stdout(), EnableBracketedPaste)?;
                // Some terminals have no alternate screen, so they still show earlier lines.
                screen.clear()?;
                Ok(screen)
            }
            Err(error) => {
                let _ = ratatui::try_restore();
                Err(error)
            }
        }
    }

    /// Draws the parts of the frame that differ from the screen.
    pub(super) fn draw(&mut self, model: &mut Model) -> io::Result<()> {
        self.terminal.draw(|frame| {
            view::draw(model, frame);
            replace_unprintable(frame.buffer_mut());
        })?;
        Ok(())
    }

    /// Forgets the content of the screen, so that the next frame is drawn completely. This is
    /// necessary if another program has written to the screen.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        // `Terminal::resize` also clears the screen. `Terminal::clear` is not used, because it asks
        // the terminal for the position of the cursor, and `top` would read the answer as keys.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }
}

/// Replaces unprintable characters in the cells of a frame, so that text of objects cannot control
/// the terminal.
pub(super) fn replace_unprintable(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if let Cow::Owned(safe) = printable(cell.symbol()) {
            cell.set_symbol(&safe);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // Nothing can be done about an error here.
        let _ = crossterm::execute!(stdout(), DisableBracketedPaste);
        // After a panic, the hook has restored the terminal. A second time would move the cursor
        // onto the message of the panic.
        if !std::thread::panicking() {
            let _ = ratatui::try_restore();
        }
    }
}
