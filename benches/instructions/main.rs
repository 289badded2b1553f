//! Counts the processor instructions of two paths of data through the server, and compares the
//! counts with recorded figures. The comparison fails if a count differs from its figure by more
//! than 25 %:
//!
//! - A higher count is a performance regression.
//! - A lower count is an improvement. Record it as the new figure. With the old, higher figure, the
//!   comparison would not notice if the count rose again later.
//!
//! A measured time depends on the load of the machine. The number of instructions does not.
//!
//! ```text
//! make instructions             compare the counts with the recorded figures
//! make instructions RECORD=1    record the counts as the new figures
//! ```
//!
//! For each path, this program starts itself under callgrind, a tool of valgrind. Callgrind counts
//! only during [`paths::counted_section`], so the set-up is not counted.

mod paths;
mod recorded_figures;
mod serving;

use anyhow::{Context as _, bail, ensure};
use paths::{COUNTED_SECTION, PATHS};
use recorded_figures::RecordedFigures;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Largest accepted difference of a count from its recorded figure, in percent. Smaller differences
/// have no meaning: a change of unrelated code can change the inlining and the layout of the
/// measured code.
const TOLERANCE: f64 = 25.0;

/// Path of the script that starts valgrind. If valgrind is not installed, the script downloads it.
const VALGRIND: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/instructions/valgrind");

fn main() -> anyhow::Result<ExitCode> {
    // `cargo bench` adds the argument `--bench`.
    let arguments: Vec<String> = std::env::args()
        .skip(1)
        .filter(|argument| argument != "--bench")
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        ["compare"] => compare(),
        ["record"] => record(),
        ["run", name] => {
            let path = PATHS.iter().find(|path| path.name == *name);
            let path = path.with_context(|| format!("there is no path named {name:?}"))?;
            println!("{}", (path.run)());
            Ok(ExitCode::SUCCESS)
        }
        [] => {
            // `cargo bench` builds this program without symbols, so valgrind would not find the
            // function whose instructions are counted.
            println!("instructions: skipped, because `make instructions` runs this benchmark");
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("the argument is `compare` or `record`, not {other:?}"),
    }
}

/// Counts the instructions of all paths and compares them with the recorded figures.
fn compare() -> anyhow::Result<ExitCode> {
    let recorded = RecordedFigures::read()?;
    let platform = platform()?;
    let same_platform = recorded.platform == platform;
    if !same_platform {
        println!(
            "Warning: the figures were recorded with another compiler or processor, so a \
             different count is only a warning.\n  recorded: {}\n  counted:  {platform}\n",
            recorded.platform
        );
    }
    println!(
        "{:<20} {:>10} {:>10} {:>11}",
        "path", "recorded", "counted", "difference"
    );
    let mut outside = Vec::new();
    for path in &PATHS {
        let name = path.name;
        let figure = recorded.figure(name);
        let figure =
            figure.with_context(|| format!("{}: no figure for {name}", recorded_figures::FILE))?;
        let counted = count(&["run", path.name], &profile_file(path.name))?;
        let difference = percent(figure, counted);
        println!("{name:<20} {figure:>10} {counted:>10} {difference:>+10.1}%");
        if difference.abs() > TOLERANCE {
            let profile = profile_file(name).display().to_string();
            outside.push(format!(
                "{name}: {difference:+.1}%, {counted} instructions instead of {figure} for {}.\n    \
                 To list its functions: callgrind_annotate {profile}",
                path.item
            ));
        }
    }
    if outside.is_empty() {
        println!("\nAll counts are within {TOLERANCE}% of the recorded figures.");
        return Ok(ExitCode::SUCCESS);
    }
    eprintln!("\nThese counts are not within {TOLERANCE}% of the recorded figures:");
    for path in outside {
        eprintln!("  {path}");
    }
    eprintln!(
        "\nIf the change of the count is intended, record the new figures with\n  \
         make instructions RECORD=1\nand give the reason in the commit message."
    );
    Ok(if same_platform {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    })
}

/// Counts the instructions of all paths and records the counts.
fn record() -> anyhow::Result<ExitCode> {
    let mut figures = Vec::new();
    for path in &PATHS {
        let counted = count(&["run", path.name], &profile_file(path.name))?;
        println!("{:<20} {counted:>10}", path.name);
        figures.push((path, counted));
    }
    recorded_figures::write(&platform()?, &figures)?;
    println!("\nRecorded in {}.", recorded_figures::FILE);
    Ok(ExitCode::SUCCESS)
}

/// Starts this program with `arguments` under callgrind. The started program prints the number of
/// items that it has processed. Returns the number of instructions for one item. Callgrind writes
/// the counts of the functions into the file `profile`.
fn count(arguments: &[&str], profile: &Path) -> anyhow::Result<u64> {
    let name = arguments.join(" ");
    if let Some(folder) = profile.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let output = Command::new(VALGRIND)
        .arg("--tool=callgrind")
        .arg("--collect-atstart=no")
        .arg(format!("--toggle-collect=*{COUNTED_SECTION}*"))
        .arg(format!("--callgrind-out-file={}", profile.display()))
        .arg(std::env::current_exe()?)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot start {VALGRIND}"))?;
    let report = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{name}: {}\n{report}",
        output.status
    );
    // Callgrind prints the number of instructions in a line such as `==123== Collected : 456`.
    let collected: u64 = report
        .lines()
        .find_map(|line| line.split_once("Collected :")?.1.trim().parse().ok())
        .with_context(|| format!("valgrind has not reported a count:\n{report}"))?;
    ensure!(
        collected > 0,
        "valgrind has not found the function {COUNTED_SECTION}: build with `--profile instructions`"
    );
    let items = String::from_utf8_lossy(&output.stdout);
    let items: u64 = items.trim().parse().with_context(|| {
        format!("{name}: the program printed {items:?} instead of the number of items")
    })?;
    ensure!(items > 0, "{name}: there are no items");
    Ok((collected + items / 2) / items)
}

/// Returns the path of the file into which callgrind writes the number of instructions of each
/// function.
fn profile_file(name: &str) -> PathBuf {
    let name = format!("{}.callgrind", name.replace(' ', "-"));
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
        .join("instructions")
        .join(name)
}

/// Returns the difference of `counted` from `figure` in percent.
fn percent(figure: u64, counted: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "instructions of one item are far below 2^52"
    )]
    let (figure, counted) = (figure as f64, counted as f64);
    (counted / figure - 1.0) * 100.0
}

/// Returns the compiler, its target, and whether the processor supports AVX2. Without AVX2, the C
/// library and some Rust libraries run other code, so the counts differ. An example of the result
/// is `rustc 1.95.0 (59807616e 2026-04-14) for x86_64-unknown-linux-gnu with AVX2`.
fn platform() -> anyhow::Result<String> {
    let rustc = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".into());
    let output = Command::new(&rustc)
        .arg("-vV")
        .output()
        .with_context(|| format!("cannot start {rustc}"))?;
    let text = String::from_utf8(output.stdout)?;
    let version = text.lines().next().unwrap_or_default();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.with_context(|| format!("{rustc} -vV names no host:\n{text}"))?;
    let avx2 = if has_avx2() { "with" } else { "without" };
    Ok(format!("{version} for {host} {avx2} AVX2"))
}

#[cfg(target_arch = "x86_64")]
fn has_avx2() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx2() -> bool {
    false
}
