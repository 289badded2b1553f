//! Parses durations in flags, environment variables and rule sets, and formats durations for
//! people.

use jiff::{Span, SpanRelativeTo};
use std::time::Duration;

/// Parses a duration such as `30s`, `1h30m`, `1.5h`, `500ms` or `2d`. A number without a unit stands
/// for seconds. Returns None if `text` is not a duration, or if the duration is negative or too long.
pub fn parse(text: &str) -> Option<Duration> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().map(Duration::from_secs);
    }
    let span: Span = text.parse().ok()?;
    let duration = span.to_duration(SpanRelativeTo::days_are_24_hours());
    duration.ok()?.try_into().ok()
}

/// Formats a duration with at most two units, as kubectl does (`duration.HumanDuration` in
/// apimachinery). Longer durations have coarser units. Examples are `5m28s`, `3h3m` and `47h`.
pub fn human(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let two = |unit: i64, letter: char, small: i64, small_letter: char| {
        let rest = seconds % unit / small;
        let whole = seconds / unit;
        if rest == 0 {
            format!("{whole}{letter}")
        } else {
            format!("{whole}{letter}{rest}{small_letter}")
        }
    };
    match seconds {
        // Clocks differ slightly, so an age can be -1 s. Such an age counts as zero. A lower age is
        // invalid.
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_in_all_accepted_forms() {
        for (text, seconds) in [
            ("30s", 30.0),
            ("5m", 300.0),
            ("1h30m", 5400.0),
            ("45", 45.0),
            ("1.5h", 5400.0),
            ("250ms", 0.25),
            ("0", 0.0),
        ] {
            assert_eq!(
                parse(text),
                Some(Duration::from_secs_f64(seconds)),
                "{text}"
            );
        }
        for text in [
            "-1s",
            "s",
            "1x",
            "1h30",
            "five",
            "1..5s",
            "99999999999999999999",
            "1e9s",
            " 5s",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn ages_are_printed_as_by_kubectl() {
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
            assert_eq!(human(seconds), text, "{seconds}");
        }
    }
}
