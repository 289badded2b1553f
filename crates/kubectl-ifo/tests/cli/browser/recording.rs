//! `make pictures` records `top` as `docs/images/top.svg`: the frames of a terminal below each other,
//! and an animation in CSS that shows one after the other. The file needs no script and no font.

use super::pictures;
use super::session::{Demo, program};
use crate::pseudo_terminal::Terminal;
use portable_pty::CommandBuilder;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};
use std::{fs, thread};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/images/top.svg");

/// Size of the terminal in columns and rows.
const SIZE: (u16, u16) = (110, 30);

/// Width and height of a character, and the margin around the terminal, in pixels.
const CELL: (f64, f64) = (8.4, 18.0);
const MARGIN: f64 = 16.0;

/// Largest size of the file in bytes.
const LARGEST: usize = 150 << 10;

/// The keys that are typed, each with the time for which the result is shown.
const KEYS: [(&str, u64); 9] = [
    ("", 8),
    ("j", 1),
    ("j", 2),
    ("\r", 4),
    ("\x1b", 1),
    ("e", 4),
    ("e", 1),
    ("/", 1),
    ("team-b", 4),
];

/// Interval at which the screen is recorded. `top` updates the ages every second.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time for which the demo runs before the recording, so that operations are in flight.
const WARM_UP: Duration = Duration::from_secs(40);

fn start(args: &[&str]) -> Terminal {
    let mut command = CommandBuilder::new(program("kubectl-ifo"));
    command.arg("top");
    command.args(args);
    Terminal::start(command, SIZE.0, SIZE.1)
}

/// Writes `docs/images/top.svg`.
fn record() {
    let demo = Demo::start();
    thread::sleep(WARM_UP);
    let kubeconfig = demo.kubeconfig().display().to_string();
    let mut top = start(&["--kubeconfig", &kubeconfig]);
    top.shows(&["live", "progressing"]);
    let mut recording = Recording::default();
    for (keys, seconds) in KEYS {
        for key in keys.split_inclusive(|_| true) {
            top.type_text(key);
            // `top` draws at most 20 frames per second.
            thread::sleep(Duration::from_millis(150));
            top.read(|screen| recording.add(screen, 0.15));
        }
        let begun = Instant::now();
        while begun.elapsed().as_secs() < seconds {
            thread::sleep(INTERVAL);
            top.read(|screen| recording.add(screen, INTERVAL.as_secs_f64()));
        }
    }
    fs::write(FILE, recording.svg()).unwrap();
}

/// The columns and the keys at the bottom are those of the present `top`. The operations and their
/// times differ in each recording. With `UPDATE_PICTURES=1`, the test makes all pictures first.
#[test]
fn the_recording_shows_the_present_top() {
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        record();
        pictures::take();
    }
    let svg = fs::read_to_string(FILE).unwrap();
    assert!(svg.len() < LARGEST, "{} bytes", svg.len());
    assert!(svg.contains("@keyframes"));
    for forbidden in ["<script", "@import", "url(", "<image", "onload"] {
        assert!(!svg.contains(forbidden), "{forbidden}");
    }
    let operation = r#"{"apiVersion": "live.ifo.kubevirt.io/v1alpha1", "kind": "InFlightOperation",
        "metadata": {"name": "a", "namespace": "b"},
        "spec": {"operation": "Migrating", "subject": {"kind": "VM", "name": "web"}},
        "status": {"phase": "Active", "state": "Progressing", "progress": 5}}"#;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("operation.json");
    fs::write(&path, operation).unwrap();
    let mut top = start(&["--from", &path.display().to_string()]);
    top.shows(&["SUBJECT", "from files", "1/1"]);
    let text = top.text();
    let lines: Vec<&str> = text.lines().collect();
    let heading = lines[2].split_whitespace();
    let keys = lines.last().unwrap().split("  ").map(str::trim);
    for part in heading.chain(keys.filter(|it| !it.is_empty() && *it != "1/1")) {
        assert!(svg.contains(&escape(part)), "{part}: run make pictures");
    }
}

/// The recorded frames. Equal lines are stored once.
#[derive(Default)]
struct Recording {
    lines: HashMap<String, usize>,
    definitions: String,
    /// For each frame, the numbers of its lines and the time in seconds for which it is shown.
    frames: Vec<(Vec<Option<usize>>, f64)>,
}

impl Recording {
    /// Adds a frame. If the screen has not changed, the last frame is shown for longer.
    fn add(&mut self, screen: &vt100::Screen, seconds: f64) {
        let rows = (0..SIZE.1).map(|row| self.number(&line(screen, row)));
        let rows: Vec<Option<usize>> = rows.collect();
        match self.frames.last_mut() {
            Some((last, time)) if *last == rows => *time += seconds,
            _ => self.frames.push((rows, seconds)),
        }
    }

    fn number(&mut self, line: &str) -> Option<usize> {
        if line.is_empty() {
            return None;
        }
        let next = self.lines.len();
        let number = *self.lines.entry(line.to_owned()).or_insert(next);
        if number == next {
            let _ = writeln!(self.definitions, "<g id=\"l{number}\">{line}</g>");
        }
        Some(number)
    }

    fn svg(&self) -> String {
        let height = f64::from(SIZE.1) * CELL.1;
        let (right, bottom) = (
            f64::from(SIZE.0) * CELL.0 + 2.0 * MARGIN,
            height + 2.0 * MARGIN,
        );
        let total: f64 = self.frames.iter().map(|it| it.1).sum();
        let (mut keyframes, mut film) = (String::new(), String::new());
        let (mut begun, mut top) = (0.0, 0.0);
        for (rows, seconds) in &self.frames {
            let _ = write!(
                keyframes,
                "{:.2}%{{transform:translateY(-{top}px)}}",
                begun / total * 100.0
            );
            begun += seconds;
            for line in rows {
                if let Some(line) = line {
                    let _ = write!(film, "<use href=\"#l{line}\" y=\"{top}\"/>");
                }
                top += CELL.1;
            }
            film.push('\n');
        }
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {right} {bottom}\" role=\"img\">\n\
             <title>kubectl ifo top: the operations of the demo, the worst first</title>\n\
             <style>{STYLE}@keyframes film{{{keyframes}}}.film{{animation:film {total:.1}s step-end infinite}}\
             @media(prefers-reduced-motion:reduce){{.film{{animation:none}}}}</style>\n\
             <defs>\n{}</defs>\n\
             <rect width=\"100%\" height=\"100%\" rx=\"8\" class=\"back\"/>\n\
             <svg x=\"{MARGIN}\" y=\"{MARGIN}\" height=\"{height}\" overflow=\"hidden\"><g class=\"film\">\n{film}</g></svg>\n\
             </svg>\n",
            self.definitions
        )
    }
}

const STYLE: &str = "text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;\
white-space:pre;fill:#d6deeb}.back,.k{fill:#0d1420}.w{fill:#d6deeb}.b{font-weight:bold}.d{opacity:.65}\
.c1{fill:#ff7b72}.c2{fill:#56d364}.c3{fill:#e3b341}.c5{fill:#d2a8ff}.c6{fill:#56d4dd}";

/// Returns a row of the screen as SVG. Cells with the same style are one run.
fn line(screen: &vt100::Screen, row: u16) -> String {
    let mut runs: Vec<(u16, String, Look)> = Vec::new();
    for column in 0..SIZE.0 {
        let Some(cell) = screen.cell(row, column) else {
            continue;
        };
        let look = Look::of(cell);
        let text = if cell.has_contents() {
            cell.contents()
        } else {
            " "
        };
        match runs.last_mut() {
            Some((_, run, last)) if *last == look => run.push_str(text),
            _ => runs.push((column, text.to_owned(), look)),
        }
    }
    let (mut back, mut front) = (String::new(), String::new());
    for (column, text, look) in runs {
        if look.is_inverse {
            let (from, width) = (x(column.into()), x(text.chars().count()));
            let (height, fill) = (CELL.1, look.fill.unwrap_or("w"));
            let _ = write!(
                back,
                "<rect x=\"{from}\" width=\"{width}\" height=\"{height}\" class=\"{fill}\"/>"
            );
        }
        let class = look.class();
        // Each part has its own position, so the columns are aligned in every font.
        for (offset, part) in parts(&text) {
            let from = x(usize::from(column) + offset);
            let part = escape(part);
            let _ = write!(front, "<tspan x=\"{from}\"{class}>{part}</tspan>");
        }
    }
    if !front.is_empty() {
        front = format!("<text y=\"13.5\">{front}</text>");
    }
    back + &front
}

/// Returns the position of a column in pixels.
fn x(column: usize) -> f64 {
    let column = u16::try_from(column).expect("a terminal has few columns");
    (f64::from(column) * CELL.0 * 10.0).round() / 10.0
}

/// Splits a text at each gap of several blanks. Returns the parts with their offsets in characters.
fn parts(text: &str) -> Vec<(usize, &str)> {
    let mut offset = 0;
    let mut parts = Vec::new();
    for part in text.split("  ") {
        let trimmed = part.trim_start();
        if !trimmed.is_empty() {
            let blanks = part.chars().count() - trimmed.chars().count();
            parts.push((offset + blanks, trimmed.trim_end()));
        }
        offset += part.chars().count() + 2;
    }
    parts
}

/// The style of a cell.
#[derive(PartialEq, Eq)]
struct Look {
    /// The class of the colour. None for the default colour.
    fill: Option<&'static str>,
    is_bold: bool,
    is_dim: bool,
    is_inverse: bool,
}

impl Look {
    fn of(cell: &vt100::Cell) -> Self {
        Self {
            fill: match cell.fgcolor() {
                vt100::Color::Idx(1) => Some("c1"),
                vt100::Color::Idx(2) => Some("c2"),
                vt100::Color::Idx(3) => Some("c3"),
                vt100::Color::Idx(5) => Some("c5"),
                vt100::Color::Idx(6) => Some("c6"),
                _ => None,
            },
            is_bold: cell.bold(),
            is_dim: cell.dim(),
            is_inverse: cell.inverse(),
        }
    }

    /// Returns the attribute `class`. Empty for the default style.
    fn class(&self) -> String {
        let fill = if self.is_inverse {
            Some("k")
        } else {
            self.fill
        };
        let bold = self.is_bold.then_some("b");
        let dim = self.is_dim.then_some("d");
        let classes: Vec<&str> = [fill, bold, dim].into_iter().flatten().collect();
        match classes.as_slice() {
            [] => String::new(),
            classes => format!(" class=\"{}\"", classes.join(" ")),
        }
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
