//! Reads and writes `recorded.txt`, the file with the recorded figures: one line for the platform,
//! and one line for each path.

use super::paths::MeasuredPath;
use anyhow::Context as _;
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The path of the file.
pub const FILE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/benches/instructions/recorded.txt"
);

/// The comment at the beginning of the file.
const HEADER: &str = "\
# Instructions that the processor executes for one item of each path, as valgrind counts
# them. `make instructions` fails if a count differs from its figure by more than 25 %.
# Record new figures with `make instructions RECORD=1`, and give the reason in the commit
# message. docs/performance.md has the rest.
";

/// The figures in the file.
pub struct RecordedFigures {
    /// The platform on which the figures were recorded: the compiler, its target, and whether the
    /// processor supports AVX2.
    pub platform: String,
    figures: BTreeMap<String, u64>,
}

impl RecordedFigures {
    /// Reads the file.
    pub fn read() -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(FILE).with_context(|| {
            format!("cannot read {FILE}; `make instructions RECORD=1` makes it")
        })?;
        let mut platform = String::new();
        let mut figures = BTreeMap::new();
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, rest) = line
                .split_once(": ")
                .with_context(|| format!("{FILE}: there is no colon in {line:?}"))?;
            if name == "platform" {
                rest.clone_into(&mut platform);
                continue;
            }
            let figure = rest.split(' ').next().unwrap_or_default();
            let figure = figure
                .parse()
                .with_context(|| format!("{FILE}: there is no figure in {line:?}"))?;
            figures.insert(name.to_owned(), figure);
        }
        Ok(Self { platform, figures })
    }

    /// Returns the figure of the path `name`. None if the file has no figure for this path.
    pub fn figure(&self, name: &str) -> Option<u64> {
        self.figures.get(name).copied()
    }
}

/// Writes the file with new figures.
pub fn write(platform: &str, figures: &[(&MeasuredPath, u64)]) -> anyhow::Result<()> {
    let mut text = format!("{HEADER}platform: {platform}\n");
    for (path, figure) in figures {
        writeln!(text, "{}: {figure} for {}", path.name, path.item)?;
    }
    std::fs::write(FILE, text).with_context(|| format!("cannot write {FILE}"))
}
