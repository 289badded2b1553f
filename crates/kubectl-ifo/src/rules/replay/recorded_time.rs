//! Converts the times of a recorded stream, in seconds, to the two clocks of the detection engine.
//! The wall clock gives dates, and the steady clock measures durations.
//!
//! The times of the wall clock come from the timestamps in the recorded objects. The times of the
//! steady clock are `Instant`s. The first event gets the `Instant` at which the scale is created.

use ifo_client::recorded_watch::RecordedEvent;
use ifo_engine::ClockReading;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Converts seconds of the stream to clock times, and back.
#[derive(Clone, Copy, Debug)]
pub(super) struct TimeScale {
    /// Time of the first event, in seconds of the stream ([`RecordedEvent::t`]).
    first: f64,
    /// Clock times of the first event.
    pub(super) begin: ClockReading,
}

impl TimeScale {
    /// Creates the scale of `events`. A recording contains no dates, but its objects contain
    /// timestamps. An event cannot be earlier than a timestamp in its object. So each event gives
    /// an earliest possible time for the first event. The scale uses the latest of these times.
    ///
    /// For example, the object of the first event has the timestamp 10:00:00. So the first event is
    /// at 10:00:00 or later. The object of an event 1.5 seconds later has the timestamp 10:00:02.
    /// So the first event is at 10:00:00.5 or later. The scale uses 10:00:00.5.
    ///
    /// If no object contains a timestamp, the first event is at 1970-01-01T00:00:00Z.
    pub(super) fn of(events: &[RecordedEvent]) -> Self {
        let first = events.first().map_or(0.0, |event| event.t);
        let earliest = events.iter().filter_map(|event| {
            let passed = SignedDuration::try_from_secs_f64(event.t - first).unwrap_or_default();
            newest(&event.object.json)?.checked_sub(passed).ok()
        });
        let begin = ClockReading {
            wall: earliest.max().unwrap_or(Timestamp::UNIX_EPOCH),
            steady: Instant::now(),
        };
        Self { first, begin }
    }

    /// Converts `t` seconds of the stream to clock times.
    pub(super) fn at(&self, t: f64) -> ClockReading {
        let passed = Duration::try_from_secs_f64(t - self.first).unwrap_or_default();
        let signed = SignedDuration::try_from(passed).unwrap_or_default();
        let wall = self.begin.wall.checked_add(signed);
        ClockReading {
            wall: wall.unwrap_or(Timestamp::MAX),
            steady: self.begin.steady + passed,
        }
    }

    /// Converts a time on the steady clock to seconds of the stream, rounded to a millisecond.
    pub(super) fn seconds_at_steady(&self, steady: Instant) -> f64 {
        round(self.first + (steady - self.begin.steady).as_secs_f64())
    }

    /// Converts a time on the wall clock to seconds of the stream, rounded to a millisecond.
    pub(super) fn seconds_at_wall(&self, wall: Timestamp) -> f64 {
        round(self.first + wall.duration_since(self.begin.wall).as_secs_f64())
    }
}

fn round(seconds: f64) -> f64 {
    (seconds * 1e3).round() / 1e3
}

/// Returns the newest timestamp in the metadata of an object: the time of its creation, or of a
/// write in `managedFields`. None if the metadata contains no timestamp.
fn newest(object: &Value) -> Option<Timestamp> {
    let metadata = &object["metadata"];
    let managed = metadata["managedFields"].as_array().into_iter().flatten();
    let times = managed.map(|it| &it["time"]);
    let times = times.chain([&metadata["creationTimestamp"]]);
    times.filter_map(|it| it.as_str()?.parse().ok()).max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ifo_client::offline_kinds::KnownKinds;
    use ifo_client::recorded_watch;

    #[test]
    fn no_event_is_earlier_than_a_timestamp_in_its_object() {
        let line = |t: f64, time: &str| {
            format!(
                r#"{{"t":{t},"type":"ADDED","object":{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"a","creationTimestamp":"{time}"}}}}}}"#
            )
        };
        let text = line(10.5, "2026-11-21T10:00:00Z") + &line(12.0, "2026-11-21T10:00:02Z");
        let (events, faults) = recorded_watch::read(&text, &KnownKinds::default());
        assert!(faults.is_empty(), "{faults:?}");
        let scale = TimeScale::of(&events);
        let wall = |text: &str| text.parse::<Timestamp>().expect("a time");
        assert_eq!(scale.begin.wall, wall("2026-11-21T10:00:00.5Z"));
        assert_eq!(scale.at(12.0).wall, wall("2026-11-21T10:00:02Z"));
        assert_eq!(
            scale.seconds_at_steady(scale.at(12.0).steady).to_string(),
            "12"
        );
        assert_eq!(
            scale
                .seconds_at_wall(wall("2026-11-21T09:59:59Z"))
                .to_string(),
            "9"
        );
    }
}
