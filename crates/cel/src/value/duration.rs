//! Durations in nanoseconds. Parsing, formatting and the getters equal those of Go and cel-go.

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

/// Parses a duration such as `1h30m` like Go's `time.ParseDuration`. Returns the nanoseconds, or
/// None if `text` is invalid.
pub(crate) fn parse_duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    // The limit is 2^63 and not `i64::MAX`, because the smallest duration is -2^63 nanoseconds.
    let limit = 1_u64 << 63;
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (whole, after) = rest.split_at(digits(rest));
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => after.split_at(digits(after)),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let end = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(end);
        let unit: u64 = match unit {
            "ns" => 1,
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        let whole: u64 = match whole {
            "" => 0,
            digits => digits.parse().ok()?,
        };
        let part = whole
            .checked_mul(unit)?
            .checked_add(fraction_of(unit, fraction))
            .filter(|part| *part <= limit)?;
        // As in Go, the sum of 2^63 and 2^63 becomes 0, and this overflow is not an error.
        total = total.wrapping_add(part);
        if total > limit {
            return None;
        }
        rest = after;
    }
    if negative {
        return 0_i64.checked_sub_unsigned(total);
    }
    i64::try_from(total).ok()
}

/// Returns the nanoseconds of a fraction of a unit. `unit` is in nanoseconds, and `digits` are the
/// digits after the decimal point. As in Go, the result is computed as a double, and digits after
/// about the 19th are ignored.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "Go converts in the same way, and the result is between 0 and the unit"
)]
fn fraction_of(unit: u64, digits: &str) -> u64 {
    let mut fraction: u64 = 0;
    let mut scale = 1.0;
    for digit in digits.bytes() {
        if fraction > i64::MAX as u64 / 10 {
            break;
        }
        let next = fraction * 10 + u64::from(digit - b'0');
        if next > 1 << 63 {
            break;
        }
        fraction = next;
        scale *= 10.0;
    }
    (fraction as f64 * (unit as f64 / scale)) as u64
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
    // As in Go, hours, minutes and seconds are the sum of two doubles: the whole units, and the
    // fraction of a unit. The sum is rounded. So an exact result just below a whole number can
    // become this whole number. The three integers that `as f64` converts are below 2^53, so each
    // conversion is exact.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation)]
    let whole = |unit: i64| {
        ((nanoseconds / unit) as f64 + (nanoseconds % unit) as f64 / unit as f64) as i64
    };
    Some(match getter {
        "getHours" => whole(3600 * NANOSECONDS_PER_SECOND),
        "getMinutes" => whole(60 * NANOSECONDS_PER_SECOND),
        "getSeconds" => whole(NANOSECONDS_PER_SECOND),
        "getMilliseconds" => nanoseconds / 1_000_000,
        _ => return None,
    })
}
