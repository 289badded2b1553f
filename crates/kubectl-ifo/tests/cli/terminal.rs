//! A pseudo-terminal for tests, with the screen that a real terminal would show.

// Some tests use only a part of this module.
#![allow(dead_code)]

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};
use std::io::{Read as _, Write};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Time limit of every wait. It is far longer than any wait, because the machine may be busy. Only
/// a failing test reaches it.
pub const DEADLINE: Duration = Duration::from_mins(3);

/// Interval at which a condition is checked.
const LOOK: Duration = Duration::from_millis(20);

/// Number of lines that are kept after scrolling.
const KEPT: usize = 1_000;

/// A process on its own terminal. Dropping this value kills it.
pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    writer: Box<dyn Write + Send>,
    screen: Arc<Mutex<vt100::Parser>>,
    /// The settings of the terminal before the process started.
    modes: String,
    // The settings are lost when the last process closes the terminal.
    _slave: Box<dyn portable_pty::SlavePty + Send>,
}

fn some(size: u16) -> NonZeroU16 {
    NonZeroU16::new(size).expect("a terminal has a size")
}

fn size(cols: u16, rows: u16) -> PtySize {
    PtySize {
        rows,
        cols,
        ..PtySize::default()
    }
}

impl Terminal {
    /// Starts a command on a terminal of this size.
    pub fn start(mut command: CommandBuilder, cols: u16, rows: u16) -> Self {
        let pair = native_pty_system().openpty(size(cols, rows)).unwrap();
        let modes = modes(&*pair.master);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        let child = pair.slave.spawn_command(command).unwrap();
        let screen = vt100::Parser::new(some(rows), some(cols), KEPT);
        let screen = Arc::new(Mutex::new(screen));
        let shown = Arc::clone(&screen);
        let mut reader = pair.master.try_clone_reader().unwrap();
        // The thread ends with the terminal.
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self {
            child,
            writer: pair.master.take_writer().unwrap(),
            master: pair.master,
            screen,
            modes,
            _slave: pair.slave,
        }
    }

    /// Types a text.
    pub fn type_text(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    /// Makes the terminal larger or smaller.
    pub fn resize(&mut self, cols: u16, rows: u16) {
        self.screen.lock().unwrap().set_size(some(rows), some(cols));
        self.master.resize(size(cols, rows)).unwrap();
    }

    /// The text on the screen.
    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// The first lines that were scrolled away, as many as the screen has lines.
    pub fn above(&self) -> String {
        let mut parser = self.screen.lock().unwrap();
        let screen = parser.screen_mut();
        screen.set_scrollback(KEPT);
        let text: Vec<String> = screen
            .contents()
            .lines()
            .take(screen.scrollback())
            .map(str::to_owned)
            .collect();
        screen.set_scrollback(0);
        text.join("\n")
    }

    /// Applies a function to the screen.
    pub fn is(&self, look: impl Fn(&vt100::Screen) -> bool) -> bool {
        look(self.screen.lock().unwrap().screen())
    }

    /// Waits until the screen fulfills a condition.
    pub fn until(&mut self, what: &str, look: impl Fn(&vt100::Screen) -> bool) {
        let started = Instant::now();
        while !self.is(&look) {
            assert!(
                started.elapsed() < DEADLINE,
                "in vain: {what}; ended: {:?}; the screen:\n{}",
                self.child.try_wait(),
                self.text()
            );
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until all of `parts` are on the screen.
    pub fn shows(&mut self, parts: &[&str]) {
        self.until(&format!("{parts:?}"), |screen| {
            let text = screen.contents();
            parts.iter().all(|part| text.contains(part))
        });
    }

    /// Waits until none of `parts` is on the screen.
    pub fn hides(&mut self, parts: &[&str]) {
        self.until(&format!("no {parts:?}"), |screen| {
            let text = screen.contents();
            !parts.iter().any(|part| text.contains(part))
        });
    }

    /// Sends a signal by its name.
    pub fn signal(&self, signal: &str) {
        let id = self.child.process_id().expect("it runs").to_string();
        let sent = std::process::Command::new("kill")
            .args(["-s", signal, &id])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Waits for the end of the process, and checks that the terminal has its earlier settings.
    pub fn restored(&mut self) -> ExitStatus {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(started.elapsed() < DEADLINE, "it goes on:\n{}", self.text());
            std::thread::sleep(LOOK);
        };
        self.until("the usual screen, with a cursor", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste()
        });
        assert_eq!(modes(&*self.master), self.modes);
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The settings as `stty -a` prints them.
fn modes(master: &dyn MasterPty) -> String {
    let modes = master.get_termios().expect("a terminal has modes");
    format!("{modes:?}")
}
