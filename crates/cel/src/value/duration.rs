//! Durations in nanoseconds. The syntax and the text equal those of Go and cel-go.

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

/// Number of digits of a fraction that are used, which is the number of digits that fit `u64`. More
/// digits are far below a nanosecond.
const FRACTION_DIGITS: usize = 19;

/// Parses a duration such as `1h30m`. Returns the nanoseconds, or None if `text` is invalid.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let is_number = |c: char| c == '.' || c.is_ascii_digit();
    let mut total: i64 = 0;
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|c| !is_number(c))?);
        let (unit, after) = after.split_at(after.find(is_number).unwrap_or(after.len()));
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return None;
        }
        let fraction = fraction.get(..FRACTION_DIGITS).unwrap_or(fraction);
        let digits = |text: &str| format!("0{text}").parse::<u64>().ok().map(i128::from);
        let scale = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
        let part = digits(whole)? * unit + digits(fraction)? * unit / scale;
        total = total.checked_add(i64::try_from(sign * part).ok()?)?;
        rest = after;
    }
    Some(total)
}

/// Formats a duration as seconds with a fraction, like cel-go.
#[allow(clippy::cast_precision_loss)] // Go's `Duration.Seconds` is a double.
pub(crate) fn format_duration(nanoseconds: i64) -> String {
    let seconds = (nanoseconds / NANOSECONDS_PER_SECOND) as f64
        + (nanoseconds % NANOSECONDS_PER_SECOND) as f64 / 1e9;
    format!("{seconds}s")
}

/// Returns the whole duration in the unit of a getter, rounded towards zero. For example,
/// `getMinutes` of `1h` is 60. Returns None for getters that durations do not have.
pub(crate) fn duration_part(nanoseconds: i64, getter: &str) -> Option<i64> {
    Some(match getter {
        "getHours" => nanoseconds / (3600 * NANOSECONDS_PER_SECOND),
        "getMinutes" => nanoseconds / (60 * NANOSECONDS_PER_SECOND),
        "getSeconds" => nanoseconds / NANOSECONDS_PER_SECOND,
        "getMilliseconds" => nanoseconds / 1_000_000,
        _ => return None,
    })
}
