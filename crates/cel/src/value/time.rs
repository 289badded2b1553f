//! Timestamps. They are formatted as in Go. Times in RFC 3339 are also parsed as in Go. The getters
//! equal those of cel-go, but they refuse a UTC offset of more than 9,999 hours or minutes.

use std::fmt;

use jiff::civil::DateTime;
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Timestamp};

const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);
const NANOSECONDS_PER_SECOND: i128 = 1_000_000_000;

/// A timestamp of CEL, from 0001-01-01T00:00:00Z to the end of the year 9999 in UTC. jiff's type
/// `Timestamp` is not used for two reasons:
///
/// - The range of jiff's type ends about 26 hours before the range of CEL's timestamps.
/// - A timestamp of CEL must keep the UTC offset of the text from which it was parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CelTimestamp {
    /// The time in UTC. Two timestamps are equal if they have the same time in UTC.
    pub utc: DateTime,
    /// The UTC offset in seconds east of UTC. It is used only for formatting.
    offset: i32,
}

impl From<Timestamp> for CelTimestamp {
    fn from(time: Timestamp) -> Self {
        Self {
            utc: Offset::UTC.to_datetime(time),
            offset: 0,
        }
    }
}

impl CelTimestamp {
    /// Creates a timestamp from seconds since 1970. Returns None outside of CEL's range.
    pub(crate) fn at(second: i64) -> Option<Self> {
        Self::after(EPOCH, SignedDuration::from_secs(second), 0)
    }

    /// Returns the time that is `by` after `utc`. Returns None outside of CEL's range.
    fn after(utc: DateTime, by: SignedDuration, offset: i32) -> Option<Self> {
        // The range of jiff's type ends with the year 9999, as CEL's range does, but it begins earlier.
        let utc = utc.checked_add(by).ok().filter(|utc| utc.year() >= 1)?;
        Some(Self { utc, offset })
    }

    /// Converts the timestamp to jiff's type. Returns None for about the last 26 hours of CEL's
    /// range, which jiff does not support.
    pub(crate) fn timestamp(self) -> Option<Timestamp> {
        Offset::UTC.to_timestamp(self.utc).ok()
    }

    /// Returns the seconds since 1970, rounded down.
    pub(crate) fn second(self) -> i64 {
        let nanoseconds = self.utc.duration_since(EPOCH).as_nanos();
        let seconds = nanoseconds.div_euclid(NANOSECONDS_PER_SECOND);
        i64::try_from(seconds).expect("10,000 years have fewer than 2^39 seconds")
    }

    /// Adds a duration. Returns None if the sum is outside of CEL's range.
    pub(crate) fn plus(self, nanoseconds: i64) -> Option<Self> {
        Self::after(
            self.utc,
            SignedDuration::from_nanos(nanoseconds),
            self.offset,
        )
    }

    /// Returns the nanoseconds from `other` to this timestamp. Returns None if the difference is
    /// more than about 292 years, because then the nanoseconds do not fit `i64`.
    pub(crate) fn since(self, other: Self) -> Option<i64> {
        i64::try_from(self.utc.duration_since(other.utc).as_nanos()).ok()
    }

    /// Parses RFC 3339 like Go's `time.Parse`. `T` and `Z` must be capital letters, and leap
    /// seconds are refused.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseTimeError> {
        let (local, offset) = parse_parts(text).ok_or(ParseTimeError::Syntax)?;
        let by = SignedDuration::from_secs(-i64::from(offset));
        Self::after(local, by, offset).ok_or(ParseTimeError::Range)
    }

    /// Returns the component of the time that the function `getter` returns, such as `getHours`.
    /// `offset` is the UTC offset of the time zone in seconds.
    pub(crate) fn part(self, getter: &str, offset: i64) -> Option<i64> {
        let local = self.utc.saturating_add(SignedDuration::from_secs(offset));
        Some(match getter {
            "getFullYear" => local.year().into(),
            "getMonth" => i64::from(local.month()) - 1,
            "getDayOfYear" => i64::from(local.day_of_year()) - 1,
            "getDayOfMonth" => i64::from(local.day()) - 1,
            "getDate" => local.day().into(),
            "getDayOfWeek" => local.weekday().to_sunday_zero_offset().into(),
            "getHours" => local.hour().into(),
            "getMinutes" => local.minute().into(),
            "getSeconds" => local.second().into(),
            "getMilliseconds" => local.millisecond().into(),
            _ => return None,
        })
    }

    /// Returns the UTC offset of `zone` at this time, in seconds east of UTC. `zone` is an IANA
    /// name, or hours and minutes such as `-05:30`. Returns None if `zone` is invalid.
    pub(crate) fn zone_offset(self, zone: &str) -> Option<i64> {
        if let Some((hours, minutes)) = zone.split_once(':') {
            // cel-go accepts hours and minutes of any size. Here, a limit prevents an overflow. No
            // real UTC offset exceeds the limit.
            let parse = |text: &str| {
                let number: i64 = text.parse().ok()?;
                (-9_999..=9_999).contains(&number).then_some(number)
            };
            let (hours, minutes) = (parse(hours)?, parse(minutes)?);
            let sign = if zone.starts_with('-') { -1 } else { 1 };
            return Some((hours * 60 + sign * minutes) * 60);
        }
        if zone.is_empty() || zone == "UTC" {
            return Some(0);
        }
        // The names of time zones are case-sensitive in Go, but not in jiff.
        let found = TimeZone::get(zone).ok()?;
        let found = (found.iana_name() == Some(zone)).then_some(found)?;
        let time = self.timestamp().unwrap_or(Timestamp::MAX);
        Some(found.to_offset(time).seconds().into())
    }
}

impl fmt::Display for CelTimestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = SignedDuration::from_secs(self.offset.into());
        write!(f, "{}", self.utc.saturating_add(offset))?;
        if self.offset == 0 {
            return f.write_str("Z");
        }
        let sign = if self.offset < 0 { '-' } else { '+' };
        let minutes = self.offset.abs() / 60;
        write!(f, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
    }
}

/// The error for a text that is not a timestamp.
pub(crate) enum ParseTimeError {
    Syntax,
    /// The time is outside of CEL's range.
    Range,
}

/// Returns the local time in a text such as `2026-01-31T12:00:00.5+01:00`, and its UTC offset in
/// seconds. Digits after the ninth digit of the fraction are ignored.
fn parse_parts(text: &str) -> Option<(DateTime, i32)> {
    let (local, rest) = text.split_at_checked(19)?;
    let (fraction, zone) = match rest.strip_prefix(['.', ',']) {
        Some(rest) => rest.split_at(
            rest.find(|c: char| !c.is_ascii_digit())
                .filter(|at| *at > 0)?,
        ),
        None => ("0", rest),
    };
    let (sign, zone) = match zone.split_at_checked(1)? {
        ("Z", "") => (1, "00:00"),
        ("+", zone) => (1, zone),
        ("-", zone) => (-1, zone),
        _ => return None,
    };
    if !has_shape(local, "0000-00-00T00:00:00") || !has_shape(zone, "00:00") {
        return None;
    }
    let two = |text: &str, at: usize| text.get(at..at + 2)?.parse::<i8>().ok();
    let (hours, minutes) = (two(zone, 0)?, two(zone, 3)?);
    // Go also accepts 24 hours and 60 minutes.
    if hours > 24 || minutes > 60 {
        return None;
    }
    let time = DateTime::new(
        local.get(..4)?.parse().ok()?,
        two(local, 5)?,
        two(local, 8)?,
        two(local, 11)?,
        two(local, 14)?,
        two(local, 17)?,
        format!("{fraction:0<9.9}").parse().ok()?,
    );
    let minutes = i32::from(hours) * 60 + i32::from(minutes);
    Some((time.ok()?, sign * minutes * 60))
}

/// Returns true if `text` equals `shape` when each of its digits is replaced by 0.
pub(crate) fn has_shape(text: &str, shape: &str) -> bool {
    let zero = |byte: u8| if byte.is_ascii_digit() { b'0' } else { byte };
    text.bytes().map(zero).eq(shape.bytes())
}
