//! Switches the terminal to the full screen of `top`, and draws frames. At the end of the command,
//! the terminal is restored, also after an error, a panic or a signal.

use super::model::Model;
use super::theme::Theme;
use super::view;
use crossterm::cursor::Show;
use crossterm::event::{DisableBracketedPaste, EnableBracketedPaste};
use crossterm::terminal::{
    Clear, ClearType, EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ifo_api::printable;
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::buffer::Buffer;
use std::borrow::Cow;
use std::io::{self, Write, stdout};
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};

/// True while `top` uses the terminal. The value is static, because the panic hook needs it in any
/// thread.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// The full screen of `top`: the alternate screen of the terminal, in raw mode.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<FrameBuffer>>,
}

impl Screen {
    /// Switches the terminal to the alternate screen.
    pub(super) fn enter() -> io::Result<Self> {
        static HOOK: Once = Once::new();
        HOOK.call_once(|| {
            let before = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |panic| {
                // The terminal is restored before the message is printed. A message on the
                // alternate screen would disappear with that screen.
                restore();
                before(panic);
            }));
        });
        IN_USE.store(true, Ordering::SeqCst);
        // From here on, `restore` must run after any failure.
        let screen = Self::take_over();
        if screen.is_err() {
            restore();
        }
        screen
    }

    fn take_over() -> io::Result<Self> {
        enable_raw_mode()?;
        // The screen is also cleared, because some terminals have no alternate screen.
        let clear = Clear(ClearType::All);
        crossterm::execute!(stdout(), EnterAlternateScreen, clear, EnableBracketedPaste)?;
        let terminal = Terminal::new(CrosstermBackend::new(FrameBuffer::default()))?;
        Ok(Self { terminal })
    }

    /// Returns the number of columns and rows of the terminal.
    pub(super) fn size(&self) -> io::Result<(u16, u16)> {
        let size = self.terminal.size()?;
        Ok((size.width, size.height))
    }

    /// Draws the parts of the frame that differ from the screen.
    pub(super) fn draw(&mut self, model: &Model, theme: Theme) -> io::Result<()> {
        check_in_use()?;
        self.terminal.draw(|frame| {
            view::draw(model, theme, frame);
            replace_unprintable(frame.buffer_mut());
        })?;
        Ok(())
    }

    /// Forgets the content of the screen, so that the next frame is drawn completely. This is
    /// necessary if another program has written to the screen.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        check_in_use()?;
        // `Terminal::resize` also clears the screen. `Terminal::clear` is not used, because it asks
        // the terminal for the position of the cursor, and `top` would read the answer as keys.
        let size = self.terminal.size()?;
        self.terminal.resize(size.into())
    }
}

/// Replaces unprintable characters in the cells of a frame, so that text of objects cannot control
/// the terminal.
fn replace_unprintable(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if let Cow::Owned(safe) = printable(cell.symbol()) {
            cell.set_symbol(&safe);
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
    }
}

/// Returns an error if a panic in another thread has already restored the terminal.
fn check_in_use() -> io::Result<()> {
    if IN_USE.load(Ordering::SeqCst) {
        Ok(())
    } else {
        Err(io::Error::other("another thread panicked"))
    }
}

/// Restores the terminal if it was not restored before. Errors are ignored, because nothing can be
/// done about an error here.
fn restore() {
    if IN_USE.swap(false, Ordering::SeqCst) {
        let _ = crossterm::execute!(stdout(), DisableBracketedPaste, LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// A writer that sends only whole frames to standard output, so that the screen does not flicker.
/// If a panic interrupts the drawing of a frame, the frame is never written.
#[derive(Debug, Default)]
struct FrameBuffer(Vec<u8>);

impl Write for FrameBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        let frame = std::mem::take(&mut self.0);
        // After `restore`, ratatui's `Terminal` is dropped, and writes a command that shows the
        // cursor. `restore` has already shown the cursor, so this function discards the command.
        if !IN_USE.load(Ordering::SeqCst) {
            return Ok(());
        }
        let mut out = stdout().lock();
        out.write_all(&frame)?;
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::model::{TopEvent, TopOrder};
    use jiff::Timestamp;
    use portable_pty::CommandBuilder;
    use std::time::Duration;

    use crate::top::pseudo_terminal::Terminal as Pty;

    /// The environment variable that selects how the child process ends. If the variable is not
    /// set, the test `a_child_process_uses_the_screen_and_ends` does nothing.
    const END: &str = "IFO_TEST_END_OF_SCREEN";

    /// The other tests run this test in a child process on a pseudo-terminal. The child process
    /// opens the screen and ends in the selected way.
    #[test]
    fn a_child_process_uses_the_screen_and_ends() {
        let Ok(end) = std::env::var(END) else { return };
        let mut screen = Screen::enter().unwrap();
        let mut model = Model::new(
            "child".to_owned(),
            TopOrder::Age,
            false,
            Timestamp::UNIX_EPOCH,
        );
        let (width, height) = screen.size().unwrap();
        model.update(TopEvent::Resize(width, height));
        screen.draw(&model, Theme::default()).unwrap();
        // The parent process writes a line when it has read the screen.
        std::io::stdin().read_line(&mut String::new()).unwrap();
        match end.as_str() {
            "panic" => panic!("the end of the child"),
            "drawing" => {
                let draw = |_: &mut ratatui::Frame| panic!("the end of the child");
                let _ = screen.terminal.draw(draw);
            }
            "thread" => {
                let ended = std::thread::spawn(|| panic!("the end of the child")).join();
                assert!(ended.is_err());
                // Nothing may be drawn after the message of the panic.
                model.update(TopEvent::Tick(
                    Timestamp::UNIX_EPOCH + Duration::from_secs(9),
                ));
                screen.clear().unwrap_err();
                screen.draw(&model, Theme::default()).unwrap_err();
            }
            _ => drop(screen),
        }
    }

    fn child(end: &str) -> Pty {
        let mut command = CommandBuilder::new(std::env::current_exe().unwrap());
        let path = module_path!().split_once("::").unwrap().1;
        command.args(["--exact", "--nocapture"]);
        command.arg(format!("{path}::a_child_process_uses_the_screen_and_ends"));
        command.env(END, end);
        // With a backtrace, the message would scroll out of the small screen.
        command.env("RUST_BACKTRACE", "0");
        let mut pty = Pty::start(command, 80, 24);
        pty.shows(&["oldest first, child"]);
        assert!(pty.is(|screen| screen.alternate_screen() && screen.hide_cursor()));
        pty
    }

    #[test]
    fn dropping_the_screen_restores_the_terminal() {
        let mut pty = child("drop");
        pty.type_text("\n");
        assert!(pty.restored().success());
        pty.shows(&["test result: ok"]);
        pty.hides(&["oldest first", "error", "ailed to"]);
    }

    #[test]
    fn a_panic_restores_the_terminal_and_prints_its_message() {
        for end in ["panic", "drawing"] {
            let mut pty = child(end);
            pty.type_text("\n");
            assert!(!pty.restored().success());
            pty.shows(&["the end of the child", "test result: FAILED"]);
            pty.hides(&["oldest first", "ailed to"]);
        }
    }

    #[test]
    fn a_panic_in_another_thread_restores_the_terminal_permanently() {
        let mut pty = child("thread");
        pty.type_text("\n");
        assert!(pty.restored().success());
        pty.shows(&["the end of the child", "test result: ok"]);
        pty.hides(&["oldest first", "ailed to"]);
    }
}
