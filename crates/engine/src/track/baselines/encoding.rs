//! Encodes baselines as text. `ifo-apiserver` stores the text in a ConfigMap. A baseline contains
//! the durations of the completed runs of one operation.
//!
//! The text is JSON. A baseline stores its durations in sketches, which are small summaries of many
//! numbers. The text contains each sketch as a base64 string in the binary format of Datadog's
//! sketch libraries.

use super::{Baseline, BaselineKey, Baselines, MAX_BASELINES, Sketch};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use sketches_ddsketch::DDSketch;
use std::cmp::Reverse;

/// Maximum length of the text, in bytes. A ConfigMap can have 1 MiB.
///
/// If the baselines need more bytes, [`Baselines::encode`] leaves out some of them:
///
/// - It leaves out baselines of single namespaces before baselines of all namespaces together.
/// - In both groups, it first leaves out the baselines whose last run is the oldest.
///
/// [`Baselines::decode`] refuses a longer text.
pub const MAX_ENCODED_BYTES: usize = 512 * 1024;

/// Version of the format. [`Baselines::decode`] refuses a text with another version.
const FORMAT: u32 = 1;

/// The reason why a text cannot be decoded.
#[derive(Debug, thiserror::Error)]
pub enum BaselinesError {
    /// The text is not JSON with the expected fields.
    #[error("not a list of baselines: {0}")]
    Json(#[from] serde_json::Error),
    /// The format has another version.
    #[error("format {0} is unknown, expected {FORMAT}")]
    Format(u32),
    /// The text or the number of baselines exceeds its limit.
    #[error("the text is too long, or there are too many baselines")]
    TooLarge,
    /// A sketch cannot be decoded.
    #[error("the durations of {operation} of rule set {rule_set} cannot be decoded")]
    Sketch {
        /// Name of the rule set.
        rule_set: String,
        /// Name of the operation.
        operation: String,
    },
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct StoredBaselines<T> {
    format: u32,
    baselines: Vec<T>,
}

/// The version of the format. [`Baselines::decode`] reads this member before the others, because
/// their meaning depends on the version.
#[derive(Deserialize)]
struct FormatVersion {
    format: u32,
}

/// One baseline as it is stored.
#[derive(Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
struct Stored {
    rule_set: String,
    operation: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    rule_hash: String,
    since: Timestamp,
    last_run: Timestamp,
    /// Number of runs, for people who read the text. Decoding ignores this number.
    runs: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    recent: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    previous: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    older: Option<String>,
}

impl Stored {
    fn new(key: &BaselineKey, baseline: &Baseline) -> Self {
        Self {
            rule_set: key.rule_set.to_string(),
            operation: key.operation.to_string(),
            namespace: key.namespace.as_deref().map(str::to_owned),
            rule_hash: baseline.timing_hash.to_string(),
            since: baseline.since,
            last_run: baseline.last_run,
            runs: baseline.usual.map_or(0, |usual| usual.runs),
            recent: encode(&baseline.recent),
            previous: encode(&baseline.previous),
            older: encode(&baseline.older),
        }
    }

    fn decode(self) -> Result<(BaselineKey, Baseline), BaselinesError> {
        let sketch = |text: &Option<String>| decode(text.as_deref());
        let sketches = [&self.recent, &self.previous, &self.older].map(sketch);
        let [Some(recent), Some(previous), Some(older)] = sketches else {
            return Err(BaselinesError::Sketch {
                rule_set: self.rule_set,
                operation: self.operation,
            });
        };
        let key = BaselineKey {
            rule_set: self.rule_set.into(),
            operation: self.operation.into(),
            namespace: self.namespace.map(Into::into),
        };
        let mut baseline = Baseline {
            recent,
            previous,
            older,
            ..Baseline::new(&self.rule_hash, self.since)
        };
        baseline.last_run = self.last_run;
        baseline.compute();
        Ok((key, baseline))
    }
}

/// Encodes a sketch. Returns None for a sketch without runs.
fn encode(sketch: &Sketch) -> Option<String> {
    let bytes = || BASE64_STANDARD.encode(sketch.0.to_java_bytes());
    (!sketch.is_empty()).then(bytes)
}

/// Decodes a sketch. If `text` is None, returns a sketch without runs. Returns None if the text is
/// invalid, or if the accuracy of the sketch differs from [`Sketch::new`].
fn decode(text: Option<&str>) -> Option<Sketch> {
    let mut sketch = Sketch::new();
    if let Some(text) = text {
        let bytes = BASE64_STANDARD.decode(text).ok()?;
        let stored = DDSketch::from_java_bytes(&bytes).ok()?;
        sketch.0.merge(&stored).ok()?;
    }
    Some(sketch)
}

impl Baselines {
    /// Encodes the baselines like [`Self::encode`]. Returns None if no run was learned since the
    /// last call.
    pub fn encode_changed(&mut self) -> Option<String> {
        std::mem::take(&mut self.is_changed).then(|| self.encode())
    }

    /// Encodes the baselines as a text of at most [`MAX_ENCODED_BYTES`]. Leaves out the baselines
    /// that do not fit.
    pub fn encode(&self) -> String {
        let mut all: Vec<_> = self.all.iter().collect();
        all.sort_by_key(|(key, baseline)| (key.namespace.is_some(), Reverse(baseline.last_run)));
        let mut left = MAX_ENCODED_BYTES - 64; // For the text around the baselines.
        let mut kept: Vec<Box<serde_json::value::RawValue>> = Vec::new();
        for (key, baseline) in all {
            let json = serde_json::value::to_raw_value(&Stored::new(key, baseline));
            let json = json.expect("a baseline can always be encoded");
            let Some(rest) = left.checked_sub(json.get().len() + 1) else {
                break;
            };
            left = rest;
            kept.push(json);
        }
        let document = StoredBaselines {
            format: FORMAT,
            baselines: kept,
        };
        serde_json::to_string(&document).expect("a list can always be encoded")
    }

    /// Decodes baselines that [`Self::encode`] has written.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not a valid list of baselines, has another version of the
    /// format, or exceeds a limit.
    pub fn decode(text: &str) -> Result<Self, BaselinesError> {
        if text.len() > MAX_ENCODED_BYTES {
            return Err(BaselinesError::TooLarge);
        }
        let FormatVersion { format } = serde_json::from_str(text)?;
        if format != FORMAT {
            return Err(BaselinesError::Format(format));
        }
        let document: StoredBaselines<Stored> = serde_json::from_str(text)?;
        if document.baselines.len() > MAX_BASELINES {
            return Err(BaselinesError::TooLarge);
        }
        let decoded = document.baselines.into_iter().map(Stored::decode);
        Ok(Self {
            all: decoded.collect::<Result<_, _>>()?,
            is_changed: false,
        })
    }
}
