//! Formats the values of expressions for people.

use serde_json::Value;
use std::time::Duration;

/// Returns a value as text. A duration is written like `15m44s`, and other values as JSON.
pub(super) fn text(type_name: &str, value: &Value) -> String {
    let seconds = value.as_str().and_then(|text| text.strip_suffix('s'));
    let seconds = seconds.and_then(|seconds| seconds.parse::<f64>().ok());
    let duration = seconds.and_then(|it| Duration::try_from_secs_f64(it.abs()).ok());
    let (Some(seconds), Some(duration)) = (seconds, duration) else {
        return value.to_string();
    };
    if type_name != "google.protobuf.Duration" {
        return value.to_string();
    }
    let whole = duration.as_secs();
    let (hours, minutes) = (whole / 3600, whole / 60 % 60);
    let fraction = Duration::new(whole % 60, duration.subsec_nanos()).as_secs_f64();
    let parts = [
        (hours > 0).then(|| format!("{hours}h")),
        (minutes > 0).then(|| format!("{minutes}m")),
        (fraction > 0.0 || whole < 60).then(|| format!("{fraction}s")),
    ];
    let sign = if seconds < 0.0 { "-" } else { "" };
    sign.chars()
        .map(String::from)
        .chain(parts.into_iter().flatten())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_and_other_values_are_json() {
        let duration = |value: &str| text("google.protobuf.Duration", &value.into());
        for (value, expected) in [
            ("944s", "15m44s"),
            ("0s", "0s"),
            ("3600s", "1h"),
            ("90061.5s", "25h1m1.5s"),
            ("-90s", "-1m30s"),
        ] {
            assert_eq!(duration(value), expected);
        }
        assert_eq!(text("string", &"944s".into()), "\"944s\"");
    }
}
