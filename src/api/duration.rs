//! Durations as people write them, in flags, variables and rule sets.

use std::time::Duration;

/// Reads `30s`, `5m`, `1h30m`, `1.5h`, `500ms`, or bare seconds (Go's
/// `time.ParseDuration`, and days).
pub fn parse(text: &str) -> Option<Duration> {
    if text.bytes().all(|b| b.is_ascii_digit()) {
        return text.parse().ok().map(Duration::from_secs);
    }
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(digits);
        let unit_end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let seconds = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            "d" => 86_400.0,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        total = total.checked_add(Duration::try_from_secs_f64(number * seconds).ok()?)?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_people_write_them() {
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
}
