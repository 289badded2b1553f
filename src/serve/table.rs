//! Tables, spliced from the spans that the index keeps of each object. Enters: a
//! resource's columns and an entry. Leaves: the JSON of `columnDefinitions` and of rows;
//! ages are computed when asked.

use super::encode::Shown;
use super::negotiate::Include;
use super::resource::{Cell, Column};
use crate::index::Entry;
use jiff::Timestamp;
use serde::Serialize;
use std::io::Write as _;

/// Writes the array of column definitions. All five keys always, as clients expect.
pub fn definitions(columns: &[Column], out: &mut Vec<u8>) {
    #[derive(Serialize)]
    struct Definition<'a> {
        name: &'a str,
        r#type: &'a str,
        format: &'a str,
        description: &'a str,
        priority: i32,
    }
    let definitions: Vec<Definition<'_>> = columns
        .iter()
        .map(|column| Definition {
            name: column.name,
            r#type: column.kind,
            format: column.format,
            description: column.description,
            priority: column.priority,
        })
        .collect();
    serde_json::to_writer(out, &definitions).expect("writing to a Vec cannot fail");
}

/// Writes one row.
pub fn row(
    columns: &[Column],
    shown: Shown<'_>,
    version: &str,
    include: Include,
    now: Timestamp,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"{\"cells\":[");
    for (number, column) in columns.iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        cell(column.cell, shown.entry, now, out);
    }
    out.extend_from_slice(b"],\"object\":");
    match include {
        Include::Metadata => shown.partial(version, out),
        Include::Object => out.extend_from_slice(&shown.json()),
        Include::None => out.extend_from_slice(b"null"),
    }
    out.push(b'}');
}

/// Writes the row of a bookmark, which has no cells but the object given.
pub fn empty_row(columns: &[Column], object: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"{\"cells\":[");
    for number in 0..columns.len() {
        out.extend_from_slice(if number == 0 { b"\"\"" } else { b",null" });
    }
    out.extend_from_slice(b"],\"object\":");
    out.extend_from_slice(object);
    out.push(b'}');
}

fn cell(cell: Cell, entry: &Entry, now: Timestamp, out: &mut Vec<u8>) {
    match cell {
        Cell::Path(path) => out.extend_from_slice(entry.value(path).unwrap_or(b"null")),
        Cell::Percent(path) => match entry.value(path) {
            Some(number) if number.iter().all(u8::is_ascii_digit) => {
                out.push(b'"');
                out.extend_from_slice(number);
                out.extend_from_slice(b"%\"");
            }
            _ => out.extend_from_slice(b"null"),
        },
        Cell::Age(path) => {
            let age = match entry.value(path) {
                Some([b'"', text @ .., b'"']) => std::str::from_utf8(text)
                    .ok()
                    .and_then(|text| text.parse::<Timestamp>().ok())
                    .map(|then| now.as_second() - then.as_second()),
                _ => None,
            };
            out.push(b'"');
            human(age, out);
            out.push(b'"');
        }
        Cell::Function(write) => write(entry, out),
    }
}

/// Writes a time of `seconds` as kubectl does (`duration.HumanDuration`): at most two
/// units, the coarser the longer it is.
fn human(seconds: Option<i64>, out: &mut Vec<u8>) {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let Some(seconds) = seconds else {
        out.extend_from_slice(b"<unknown>");
        return;
    };
    let two = |unit: i64, letter: char, small: i64, small_letter: char| {
        let rest = seconds % unit / small;
        let whole = seconds / unit;
        if rest == 0 {
            format!("{whole}{letter}")
        } else {
            format!("{whole}{letter}{rest}{small_letter}")
        }
    };
    let text = match seconds {
        // Clocks differ a little; what starts a second from now starts now.
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if seconds < 10 * MINUTE => two(MINUTE, 'm', 1, 's'),
        _ if seconds < 3 * HOUR => format!("{}m", seconds / MINUTE),
        _ if seconds < 8 * HOUR => two(HOUR, 'h', MINUTE, 'm'),
        _ if seconds < 2 * DAY => format!("{}h", seconds / HOUR),
        _ if seconds < 8 * DAY => two(DAY, 'd', HOUR, 'h'),
        _ if seconds < 2 * YEAR => format!("{}d", seconds / DAY),
        _ if seconds < 8 * YEAR => two(YEAR, 'y', DAY, 'd'),
        _ => format!("{}y", seconds / YEAR),
    };
    write!(out, "{text}").expect("writing to a Vec cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_read_as_kubectl_prints_them() {
        for (seconds, text) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (328, "5m28s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (28_800, "8h"),
            (172_799, "47h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (64_000_000, "2y10d"),
            (252_288_000, "8y"),
        ] {
            let mut out = Vec::new();
            human(Some(seconds), &mut out);
            assert_eq!(String::from_utf8(out).unwrap(), text, "{seconds}");
        }
    }
}
