//! Types for the times of operations. They need less memory than the usual types, because the
//! server has these times for every operation in flight.

use ifo_api::live::{Expected, ExpectedSource};
use jiff::Timestamp;
use std::num::NonZeroU64;
use std::time::Duration;

/// Maximum number of rises of the progress from which its rate is computed.
const RATE_SAMPLES: usize = 4;

/// This number plus the seconds of any [`Timestamp`] is above 0.
const OFFSET: i64 = 1_000_000_000_000;

/// A time, rounded down to a whole second as in JSON. This type and an `Option` of it need 8 bytes.
/// A `Timestamp` needs 16 bytes, and an `Option<Timestamp>` 24 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WholeSecond(NonZeroU64);

impl From<Timestamp> for WholeSecond {
    fn from(time: Timestamp) -> Self {
        let before = i64::from(time.subsec_nanosecond() < 0);
        let second = (time.as_second() - before).saturating_add(OFFSET);
        let second = u64::try_from(second).ok().and_then(NonZeroU64::new);
        Self(second.unwrap_or(NonZeroU64::MIN))
    }
}

impl WholeSecond {
    pub fn time(self) -> Timestamp {
        let second = self.0.get().cast_signed() - OFFSET;
        Timestamp::from_second(second).unwrap_or(Timestamp::MIN)
    }
}

/// Converts a number. A number that is too large becomes the largest possible number.
pub fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// The values of [`Expected`]. Numbers above 4 billion become 4 billion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactExpected {
    typical_seconds: u32,
    /// [`u32::MAX`] if there is no value.
    p95_seconds: u32,
    /// [`u32::MAX`] if there is no value.
    runs: u32,
    source: ExpectedSource,
}

impl CompactExpected {
    pub fn new(expected: Expected) -> Self {
        let short = |number: u64| short(number).min(u32::MAX - 1);
        Self {
            typical_seconds: short(expected.typical_seconds),
            p95_seconds: expected.p95_seconds.map_or(u32::MAX, short),
            runs: expected.runs.map_or(u32::MAX, short),
            source: expected.source,
        }
    }

    pub fn get(self) -> Expected {
        let known = |number: u32| (number != u32::MAX).then_some(u64::from(number));
        Expected {
            typical_seconds: self.typical_seconds.into(),
            p95_seconds: known(self.p95_seconds),
            runs: known(self.runs),
            source: self.source,
        }
    }
}

/// The last rises of the progress, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct ProgressRises {
    /// Counted time at each rise, in seconds.
    seconds: [f64; RATE_SAMPLES],
    percents: [u8; RATE_SAMPLES],
    count: u8,
}

impl ProgressRises {
    /// Adds a rise. If [`RATE_SAMPLES`] rises are already known, forgets the oldest.
    pub fn add(&mut self, counted: Duration, percent: u8) {
        let mut free = usize::from(self.count);
        if free == RATE_SAMPLES {
            self.seconds.rotate_left(1);
            self.percents.rotate_left(1);
            free -= 1;
        } else {
            self.count += 1;
        }
        self.seconds[free] = counted.as_secs_f64();
        self.percents[free] = percent;
    }

    /// Returns counted time and progress of the first and of the last rise. Returns None if fewer
    /// than two rises are known.
    pub fn first_and_last(&self) -> Option<((Duration, u8), (Duration, u8))> {
        let last = usize::from(self.count)
            .checked_sub(1)
            .filter(|it| *it > 0)?;
        let rise = |index: usize| {
            let seconds = Duration::try_from_secs_f64(self.seconds[index]).ok()?;
            Some((seconds, self.percents[index]))
        };
        rise(0).zip(rise(last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_between_two_rises_is_exact_after_ten_years() {
        let years = Duration::from_hours(87_660);
        let mut rises = ProgressRises::default();
        rises.add(years, 10);
        rises.add(years + Duration::from_millis(20), 20);
        let ((first, _), (last, _)) = rises.first_and_last().unwrap();
        let between = last.saturating_sub(first).as_secs_f64();
        assert!((between - 0.02).abs() < 1e-6, "{between}");
    }
}
