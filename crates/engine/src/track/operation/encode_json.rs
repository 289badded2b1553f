//! Encodes an operation as the JSON of an `InFlightOperation`, and records the positions of its
//! texts in the JSON. The types in this module borrow their texts. Serializing the type
//! `InFlightOperation` itself would take twice the time, because its texts would have to be copied.
//! The tests of the tracker compare the JSON from this module with that of `InFlightOperation`.

use super::timing::ConditionMessage;
use crate::rules::Labels;
use crate::track::object_facts::{LabelSpan, TEXT_COUNT, TextField, TextSpan};
use ifo_api::live::{self, Expected, Phase, StartTimeSource, State};
use ifo_api::{LIVE_GROUP, VERSION};
use jiff::Timestamp;
use jiff::tz::Offset;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde::{Serialize, Serializer};
use std::cell::RefCell;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Initial capacity of the buffer for the JSON, in bytes. The JSON of most operations is smaller.
const TYPICAL_JSON_BYTES: usize = 3072;

/// Collects the JSON of an operation while it is serialized, and the positions of its texts.
#[derive(Default)]
pub struct JsonRecorder(RefCell<RecordedJson>);

/// The JSON and the positions that a [`JsonRecorder`] has recorded.
#[derive(Default)]
pub struct RecordedJson {
    pub json: Vec<u8>,
    /// Position of the value of `metadata`.
    pub metadata: Range<usize>,
    pub texts: [TextSpan; TEXT_COUNT],
    labels: Vec<(TextSpan, TextSpan)>,
}

impl RecordedJson {
    /// Returns the positions of the labels.
    pub fn labels(&self) -> Box<[LabelSpan]> {
        let labels = self.labels.iter();
        let span = |(key, value): &(TextSpan, TextSpan)| LabelSpan::new(*key, *value);
        labels.filter_map(span).collect()
    }
}

/// The field or label to which a recorded text belongs.
#[derive(Clone, Copy)]
enum RecordedPart {
    Text(TextField),
    LabelKey,
    LabelValue,
}

/// A text whose position in the JSON is recorded while it is serialized. serde_json writes the
/// comma and the key of a member before it serializes the value. So the value starts at the current
/// end of the JSON.
pub struct RecordedText<'a, T = &'a str> {
    recorder: &'a JsonRecorder,
    part: RecordedPart,
    text: T,
}

impl JsonRecorder {
    /// Wraps the value of `field`, so that its position is recorded. `text` must serialize as a
    /// JSON string or, for [`TextField::Nodes`], as a list of strings.
    pub fn text<T>(&self, field: TextField, text: T) -> RecordedText<'_, T> {
        self.record(RecordedPart::Text(field), text)
    }

    fn record<T>(&self, part: RecordedPart, text: T) -> RecordedText<'_, T> {
        RecordedText {
            recorder: self,
            part,
            text,
        }
    }

    /// Returns the JSON and the recorded positions.
    pub fn finish(self) -> RecordedJson {
        self.0.into_inner()
    }

    fn put(&self, text: &str) {
        let mut recording = self.0.borrow_mut();
        recording.json.extend_from_slice(text.as_bytes());
    }

    fn length(&self) -> usize {
        self.0.borrow().json.len()
    }
}

impl io::Write for &JsonRecorder {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    // serde_json calls this method several times for each member. The default implementation would
    // call `write` in a loop.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.borrow_mut().json.extend_from_slice(bytes);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<T: Serialize> Serialize for RecordedText<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let start = self.recorder.length();
        let done = self.text.serialize(serializer)?;
        let mut recording = self.recorder.0.borrow_mut();
        let span = TextSpan::new(start, recording.json.len());
        match self.part {
            RecordedPart::Text(field) => recording.texts[field as usize] = span,
            RecordedPart::LabelKey => recording.labels.push((span, TextSpan::default())),
            RecordedPart::LabelValue => {
                if let Some((_, value)) = recording.labels.last_mut() {
                    *value = span;
                }
            }
        }
        Ok(done)
    }
}

/// Labels whose positions in the JSON are recorded.
pub struct RecordedLabels<'a> {
    pub recorder: &'a JsonRecorder,
    pub labels: &'a Labels,
}

impl Serialize for RecordedLabels<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.labels.iter().map(|(key, value)| {
            let key = self.recorder.record(RecordedPart::LabelKey, &**key);
            let value = self.recorder.record(RecordedPart::LabelValue, &**value);
            (key, value)
        }))
    }
}

/// A time in the form of Kubernetes, such as `2026-01-02T03:04:05Z`. The type [`Time`] yields the
/// same text, but takes ten times as long. This matters, because the JSON of an operation contains
/// about ten timestamps.
#[derive(Clone, Copy)]
pub struct TimeJson(pub Timestamp);

impl Serialize for TimeJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let time = Offset::UTC.to_datetime(self.0);
        let Ok(year) = u16::try_from(time.year()) else {
            return Time(self.0).serialize(serializer);
        };
        let mut text = *b"0000-00-00T00:00:00Z";
        let mut write = |at: usize, two_digits: u8| {
            text[at] = b'0' + two_digits / 10;
            text[at + 1] = b'0' + two_digits % 10;
        };
        let parts = [
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second(),
        ];
        for (index, part) in parts.into_iter().enumerate() {
            write(5 + 3 * index, part.unsigned_abs());
        }
        let (century, year) = (year / 100, year % 100);
        write(0, u8::try_from(century).unwrap_or_default());
        write(2, u8::try_from(year).unwrap_or_default());
        let text = std::str::from_utf8(&text).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(text)
    }
}

/// The field `metadata`. Its members have the same order as in Kubernetes' types.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct MetadataJson<'a> {
    pub creation_timestamp: RecordedText<'a, TimeJson>,
    pub generation: u8,
    pub labels: RecordedLabels<'a>,
    pub name: RecordedText<'a>,
    pub namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_references: Option<[OwnerJson<'a>; 1]>,
    pub uid: &'a str,
}

/// The owner reference to the subject, which is the object that the operation is about.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnerJson<'a> {
    pub api_version: &'a str,
    pub block_owner_deletion: bool,
    pub controller: bool,
    pub kind: &'a str,
    pub name: &'a str,
    pub uid: &'a str,
}

/// The field `spec`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SpecJson<'a> {
    pub operation: RecordedText<'a>,
    pub rule_set: RecordedText<'a>,
    pub component: RecordedText<'a>,
    pub subject: SubjectJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<RecordedText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work: Option<RecordedText<'a>>,
}

/// The field `spec.subject`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectJson<'a> {
    pub api_version: RecordedText<'a>,
    pub kind: RecordedText<'a>,
    pub name: RecordedText<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<RecordedText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<RecordedText<'a>>,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    pub owner_references: &'a [OwnerReference],
}

/// The field `status`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusJson<'a> {
    pub phase: RecordedText<'a, Phase>,
    pub state: RecordedText<'a, State>,
    pub reason: RecordedText<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<RecordedText<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodes: Option<RecordedText<'a, NodesJson<'a>>>,
    pub state_since: TimeJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_progress: Option<TimeJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<Expected>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub estimated_completion: Option<TimeJson>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duration_seconds: Option<u64>,
    pub start_time_source: StartTimeSource,
    pub last_detected: TimeJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<RecordedText<'a, TimeJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<&'a str>,
    #[serde(skip_serializing_if = "<[_]>::is_empty", serialize_with = "texts")]
    pub detected_by: &'a [Arc<str>],
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject_generation: Option<i64>,
    pub conditions: Vec<ConditionJson<'a>>,
    #[cfg(feature = "neighbour-release")]
    pub neighbour_field: &'a str,
}

/// The value of `status.nodes`.
pub struct NodesJson<'a>(pub &'a [Arc<str>]);

impl Serialize for NodesJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        texts(self.0, serializer)
    }
}

/// An element of `status.conditions`.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionJson<'a> {
    pub last_transition_time: TimeJson,
    pub message: MessageJson<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    pub reason: &'a str,
    pub status: &'a str,
    pub r#type: &'a str,
}

/// The message of a condition.
#[derive(Serialize)]
#[serde(untagged)]
pub enum MessageJson<'a> {
    Text(&'a str),
    Timing(ConditionMessage<'a>),
}

/// Writes the whole object to `recorder`. The recorded texts in `metadata`, `spec` and `status`
/// must belong to the same recorder.
pub fn encode(
    recorder: &JsonRecorder,
    metadata: &MetadataJson<'_>,
    spec: &SpecJson<'_>,
    status: &StatusJson<'_>,
) {
    recorder.0.borrow_mut().json.reserve(TYPICAL_JSON_BYTES);
    for text in [
        "{\"apiVersion\":\"",
        LIVE_GROUP,
        "/",
        VERSION,
        "\",\"kind\":\"",
        live::KIND,
        "\",\"metadata\":",
    ] {
        recorder.put(text);
    }
    let start = recorder.length();
    append(recorder, metadata);
    let end = recorder.length();
    recorder.0.borrow_mut().metadata = start..end;
    recorder.put(",\"spec\":");
    append(recorder, spec);
    recorder.put(",\"status\":");
    append(recorder, status);
    recorder.put("}");
}

fn append(recorder: &JsonRecorder, part: &impl Serialize) {
    serde_json::to_writer(recorder, part).expect("maps with string keys can always be encoded");
}

fn texts<S: Serializer>(texts: &[Arc<str>], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(texts.iter().map(|text| &**text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn times_have_the_same_text_as_in_kubernetes(
            second in -62_167_219_200_i64..253_402_207_200, nanosecond in 0..1_000_000_000,
        ) {
            let time = Timestamp::new(second, nanosecond).unwrap();
            for time in [time, Timestamp::MIN, Timestamp::MAX, Timestamp::UNIX_EPOCH] {
                let [own, theirs] = [
                    serde_json::to_string(&TimeJson(time)), serde_json::to_string(&Time(time)),
                ];
                prop_assert_eq!(own.unwrap(), theirs.unwrap());
            }
        }
    }
}
