//! Timestamps. Parsing and formatting equal those of Go. The getters equal those of cel-go, but they
//! refuse a UTC offset of more than 9,999 hours or minutes.

use jiff::Timestamp;
use jiff::tz::TimeZone;

const SECONDS_PER_DAY: i64 = 86_400;
const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

/// The earliest timestamp of CEL, 0001-01-01T00:00:00Z, in seconds since 1970.
const MIN_SECOND: i64 = -62_135_596_800;
/// The latest timestamp of CEL, 9999-12-31T23:59:59Z, in seconds since 1970.
const MAX_SECOND: i64 = 253_402_300_799;

/// A timestamp of CEL. jiff's type `Timestamp` is not used for two reasons:
///
/// - The range of jiff's type ends about 26 hours before the range of CEL's timestamps.
/// - A timestamp of CEL must keep the UTC offset of the text from which it was parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CelTimestamp {
    /// Seconds since 1970.
    second: i64,
    nanosecond: u32,
    /// The UTC offset in seconds east of UTC. It is used only for formatting.
    offset: i32,
}

impl PartialEq for CelTimestamp {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for CelTimestamp {}

impl PartialOrd for CelTimestamp {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CelTimestamp {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.second, self.nanosecond).cmp(&(other.second, other.nanosecond))
    }
}

impl From<Timestamp> for CelTimestamp {
    fn from(time: Timestamp) -> Self {
        // Before 1970, the seconds and the nanoseconds of jiff's time are negative.
        let nanosecond = i64::from(time.subsec_nanosecond());
        Self {
            second: time.as_second() + nanosecond.div_euclid(NANOSECONDS_PER_SECOND),
            nanosecond: u32::try_from(nanosecond.rem_euclid(NANOSECONDS_PER_SECOND)).unwrap_or(0),
            offset: 0,
        }
    }
}

impl CelTimestamp {
    /// Creates a timestamp from seconds since 1970. Returns None outside of CEL's range.
    pub(crate) fn at(second: i64) -> Option<Self> {
        (MIN_SECOND..=MAX_SECOND).contains(&second).then_some(Self {
            second,
            nanosecond: 0,
            offset: 0,
        })
    }

    /// Converts the timestamp to jiff's type. Returns None for about the last 26 hours of CEL's
    /// range, which jiff does not support.
    pub(crate) fn timestamp(self) -> Option<Timestamp> {
        Timestamp::new(self.second, i32::try_from(self.nanosecond).ok()?).ok()
    }

    pub(crate) fn second(self) -> i64 {
        self.second
    }

    /// Adds a duration. Returns None if the sum is outside of CEL's range.
    pub(crate) fn plus(self, nanoseconds: i64) -> Option<Self> {
        let sum = i64::from(self.nanosecond) + nanoseconds.rem_euclid(NANOSECONDS_PER_SECOND);
        let second = self.second
            + nanoseconds.div_euclid(NANOSECONDS_PER_SECOND)
            + sum / NANOSECONDS_PER_SECOND;
        Some(Self {
            nanosecond: u32::try_from(sum % NANOSECONDS_PER_SECOND).unwrap_or(0),
            offset: self.offset,
            ..Self::at(second)?
        })
    }

    /// Returns the nanoseconds from `other` to this timestamp. Returns None if the difference is
    /// more than about 292 years, because then the nanoseconds do not fit `i64`.
    pub(crate) fn since(self, other: Self) -> Option<i64> {
        (self.second - other.second)
            .checked_mul(NANOSECONDS_PER_SECOND)?
            .checked_add(i64::from(self.nanosecond) - i64::from(other.nanosecond))
    }

    /// Parses RFC 3339 like Go's `time.Parse`. `T` and `Z` must be capital letters, and leap
    /// seconds are refused. The hour can have a single digit.
    pub(crate) fn parse(text: &str) -> Result<Self, ParseTimeError> {
        let mut input = Rest(text.as_bytes());
        let read = |input: &mut Rest| {
            let year = input.number(4)?;
            input.byte(b'-')?;
            let month = input.number(2)?;
            input.byte(b'-')?;
            let day = input.number(2)?;
            input.byte(b'T')?;
            let hour = input.number(2).or_else(|| input.number(1))?;
            input.byte(b':')?;
            let minute = input.number(2)?;
            input.byte(b':')?;
            let second = input.number(2)?;
            let nanosecond = input.fraction();
            let offset = input.offset()?;
            let valid = (1..=12).contains(&month)
                && (1..=days_in(year, month)).contains(&day)
                && hour < 24
                && minute < 60
                && second < 60
                && input.0.is_empty();
            valid.then(|| {
                let local =
                    days(year, month, day) * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second;
                (local - i64::from(offset), nanosecond, offset)
            })
        };
        let (second, nanosecond, offset) = read(&mut input).ok_or(ParseTimeError::Syntax)?;
        Ok(Self {
            nanosecond,
            offset,
            ..Self::at(second).ok_or(ParseTimeError::Range)?
        })
    }

    /// Returns the component of the time that the function `getter` returns, such as `getHours`.
    /// `offset` is the UTC offset of the time zone in seconds.
    pub(crate) fn part(self, getter: &str, offset: i64) -> Option<i64> {
        let local = self.second + offset;
        let day_number = local.div_euclid(SECONDS_PER_DAY);
        let (year, month, day) = civil(day_number);
        let second = local.rem_euclid(SECONDS_PER_DAY);
        Some(match getter {
            "getFullYear" => year,
            "getMonth" => month - 1,
            "getDayOfYear" => day_number - days(year, 1, 1),
            "getDayOfMonth" => day - 1,
            "getDate" => day,
            // 1970-01-01 was a Thursday.
            "getDayOfWeek" => (day_number + 4).rem_euclid(7),
            "getHours" => second / 3600,
            "getMinutes" => second / 60 % 60,
            "getSeconds" => second % 60,
            "getMilliseconds" => i64::from(self.nanosecond / 1_000_000),
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
            let minutes = if zone.starts_with('-') {
                -minutes
            } else {
                minutes
            };
            return Some((hours * 60 + minutes) * 60);
        }
        if zone.is_empty() || zone == "UTC" {
            return Some(0);
        }
        // The names of time zones are case-sensitive in Go, but not in jiff.
        let zone = TimeZone::get(zone)
            .ok()
            .filter(|found| found.iana_name() == Some(zone))?;
        let second = self
            .second
            .clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second());
        let time = Timestamp::from_second(second).ok()?;
        Some(i64::from(zone.to_offset(time).seconds()))
    }
}

impl std::fmt::Display for CelTimestamp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let local = self.second + i64::from(self.offset);
        let (year, month, day) = civil(local.div_euclid(SECONDS_PER_DAY));
        let second = local.rem_euclid(SECONDS_PER_DAY);
        let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}"
        )?;
        if self.nanosecond != 0 {
            let digits = format!("{:09}", self.nanosecond);
            write!(f, ".{}", digits.trim_end_matches('0'))?;
        }
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

/// The rest of a text that is being parsed. Each method removes the part that it has parsed.
struct Rest<'t>(&'t [u8]);

impl Rest<'_> {
    fn byte(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    fn number(&mut self, len: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(len)?;
        let mut number = 0;
        for digit in digits {
            number = number * 10 + i64::from(char::from(*digit).to_digit(10)?);
        }
        self.0 = rest;
        Some(number)
    }

    /// Parses an optional fraction of a second and returns its nanoseconds. Digits after the ninth
    /// are ignored.
    fn fraction(&mut self) -> u32 {
        let Some((b'.' | b',', rest)) = self.0.split_first() else {
            return 0;
        };
        let len = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        if len == 0 {
            return 0;
        }
        let mut nanosecond = 0;
        for at in 0..9 {
            let digit = rest.get(at).filter(|_| at < len);
            nanosecond = nanosecond * 10 + digit.map_or(0, |digit| u32::from(digit - b'0'));
        }
        self.0 = rest.get(len..).unwrap_or_default();
        nanosecond
    }

    /// Parses a UTC offset and returns it in seconds east of UTC.
    fn offset(&mut self) -> Option<i32> {
        if self.byte(b'Z').is_some() {
            return Some(0);
        }
        let sign = match self.byte(b'+') {
            Some(()) => 1,
            None => self.byte(b'-').map(|()| -1)?,
        };
        let hours = self.number(2)?;
        self.byte(b':')?;
        let minutes = self.number(2)?;
        // Go also accepts 24 hours and 60 minutes.
        (hours <= 24 && minutes <= 60)
            .then(|| i32::try_from(sign * (hours * 60 + minutes) * 60).ok())
            .flatten()
    }
}

/// Returns the number of days from 1970-01-01 to a date of the proleptic Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    // In this computation, each year begins in March, so that a leap day is the last day of the
    // year.
    let year = if month <= 2 { year - 1 } else { year };
    let month = (month + 9) % 12;
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    365 * year + leaps + (153 * month + 2) / 5 + day - 1 - 719_468
}

/// Returns the year, month and day of the date that is `days` after 1970-01-01.
fn civil(days: i64) -> (i64, i64, i64) {
    // In this computation, each year begins in March. The year is estimated, and then corrected by
    // at most one.
    let shifted = days + 719_468;
    let mut year = shifted.div_euclid(146_097) * 400 + shifted.rem_euclid(146_097) * 400 / 146_097;
    let start =
        |year: i64| 365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    while start(year) > shifted {
        year -= 1;
    }
    while start(year + 1) <= shifted {
        year += 1;
    }
    let day_of_year = shifted - start(year);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (if month <= 2 { year + 1 } else { year }, month, day)
}

fn days_in(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}
