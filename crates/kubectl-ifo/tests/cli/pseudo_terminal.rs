//! A pseudo-terminal in which tests run a command. The tests can read the text and the modes of the
//! screen that a real terminal would show.

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};
use std::io::{Read as _, Write};
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time limit of every wait. After this time, the test fails. Even on a busy machine, no successful
/// wait takes that long.
pub const DEADLINE: Duration = Duration::from_mins(3);

/// Interval at which a condition is checked.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A process with its own pseudo-terminal. The process is killed when this value is dropped.
pub struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    writer: Box<dyn Write + Send>,
    screen: Arc<Mutex<vt100::Parser>>,
    /// All bytes that the process has written.
    output: Arc<Mutex<Vec<u8>>>,
    reading: Option<JoinHandle<()>>,
    /// The settings of the terminal before the process started.
    modes: String,
    /// If no process has the terminal open, the settings are lost. So this handle stays open.
    slave: Option<Box<dyn portable_pty::SlavePty + Send>>,
}

fn non_zero(size: u16) -> NonZeroU16 {
    NonZeroU16::new(size).expect("the size is not zero")
}

fn size(cols: u16, rows: u16) -> PtySize {
    PtySize {
        rows,
        cols,
        ..PtySize::default()
    }
}

impl Terminal {
    /// Starts a command on a new terminal with this number of columns and rows.
    pub fn start(mut command: CommandBuilder, cols: u16, rows: u16) -> Self {
        let pair = native_pty_system().openpty(size(cols, rows)).unwrap();
        let modes = modes(&*pair.master);
        command.env("TERM", "xterm-256color");
        command.env_remove("NO_COLOR");
        let child = pair.slave.spawn_command(command).unwrap();
        let screen = vt100::Parser::new(non_zero(rows), non_zero(cols), 0);
        let screen = Arc::new(Mutex::new(screen));
        let shown = Arc::clone(&screen);
        let output: Arc<Mutex<Vec<u8>>> = Arc::default();
        let all = Arc::clone(&output);
        let mut reader = pair.master.try_clone_reader().unwrap();
        // The thread ends when the terminal is closed.
        let reading = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                all.lock().unwrap().extend_from_slice(&bytes[..count]);
                shown.lock().unwrap().process(&bytes[..count]);
            }
        });
        Self {
            child,
            writer: pair.master.take_writer().unwrap(),
            master: pair.master,
            screen,
            output,
            reading: Some(reading),
            modes,
            slave: Some(pair.slave),
        }
    }

    /// Types a text.
    pub fn type_text(&mut self, text: &str) {
        self.writer.write_all(text.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    /// Returns the bytes that the process has written so far.
    fn output(&self) -> String {
        String::from_utf8_lossy(&self.output.lock().unwrap()).into_owned()
    }

    /// Waits until the process ends, and returns all bytes that it has written. When they contain
    /// `stops_at`, the keys `q` and Ctrl-C are typed, which end each command.
    pub fn whole_output(&mut self, stops_at: Option<&str>) -> String {
        let started = Instant::now();
        while self.child.try_wait().unwrap().is_none() {
            if stops_at.is_some_and(|part| self.output().contains(part)) {
                let _ = self
                    .writer
                    .write_all(b"q\x03")
                    .and_then(|()| self.writer.flush());
            }
            assert!(started.elapsed() < DEADLINE, "{:?}", self.output());
            std::thread::sleep(POLL_INTERVAL);
        }
        self.slave = None;
        let reading = self.reading.take().expect("the output is read once");
        reading.join().expect("the output can be read");
        self.output()
    }

    /// Changes the size of the terminal.
    pub fn resize(&mut self, cols: u16, rows: u16) {
        self.screen
            .lock()
            .unwrap()
            .set_size(non_zero(rows), non_zero(cols));
        self.master.resize(size(cols, rows)).unwrap();
    }

    /// Returns the text on the screen.
    pub fn text(&self) -> String {
        self.screen.lock().unwrap().screen().contents()
    }

    /// Returns what `read` returns for the present screen.
    pub fn read<T>(&self, read: impl FnOnce(&vt100::Screen) -> T) -> T {
        read(self.screen.lock().unwrap().screen())
    }

    /// Returns true if the screen fulfills `condition` now.
    pub fn is(&self, condition: impl Fn(&vt100::Screen) -> bool) -> bool {
        self.read(condition)
    }

    /// Waits until the screen fulfills `condition`. `what` describes the condition in the message
    /// of a failure.
    pub fn until(&mut self, what: &str, condition: impl Fn(&vt100::Screen) -> bool) {
        let started = Instant::now();
        while !self.is(&condition) {
            assert!(
                started.elapsed() < DEADLINE,
                "the terminal does not show {what}; status of the process: {:?}; screen:\n{}",
                self.child.try_wait(),
                self.text()
            );
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until the screen contains all of `parts`.
    pub fn shows(&mut self, parts: &[&str]) {
        self.until(&format!("{parts:?}"), |screen| {
            let text = screen.contents();
            parts.iter().all(|part| text.contains(part))
        });
    }

    /// Waits until the screen contains none of `parts`.
    pub fn hides(&mut self, parts: &[&str]) {
        self.until(&format!("no {parts:?}"), |screen| {
            let text = screen.contents();
            !parts.iter().any(|part| text.contains(part))
        });
    }

    /// Sends a signal to the process. `signal` is a name such as `TERM`.
    pub fn signal(&self, signal: &str) {
        let id = self
            .child
            .process_id()
            .expect("the process has not ended")
            .to_string();
        let sent = std::process::Command::new("kill")
            .args(["-s", signal, &id])
            .status()
            .unwrap();
        assert!(sent.success(), "SIG{signal} cannot be sent");
    }

    /// Waits until the process ends, and then until the terminal shows the normal screen with a
    /// cursor. Checks that the terminal has the settings from before the start of the process.
    /// Returns the exit status.
    pub fn restored(&mut self) -> ExitStatus {
        let started = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(
                started.elapsed() < DEADLINE,
                "the process does not end; screen:\n{}",
                self.text()
            );
            std::thread::sleep(POLL_INTERVAL);
        };
        self.until("the normal screen with a cursor", |screen| {
            !screen.alternate_screen() && !screen.hide_cursor() && !screen.bracketed_paste()
        });
        assert_eq!(
            modes(&*self.master),
            self.modes,
            "the settings must be restored"
        );
        status
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the settings of a terminal, which `stty -a` also shows.
fn modes(master: &dyn MasterPty) -> String {
    let modes = master.get_termios().expect("a terminal has settings");
    format!("{modes:?}")
}
