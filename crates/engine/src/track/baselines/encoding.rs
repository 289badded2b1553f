//! Encodes baselines as text. `ifo-apiserver` stores the text in a ConfigMap. A baseline contains
//! the durations of the completed runs of one operation.
//!
//! The text is JSON. A duration has three significant digits, such as 83.2, so a baseline of 200
//! runs takes about 1 KB.

use super::{Baseline, BaselineKey, Baselines, MAX_BASELINES};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
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
const FORMAT: u32 = 2;

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
    last_run: Timestamp,
    /// Durations in seconds, the oldest run first.
    durations: Vec<f64>,
}

impl Stored {
    fn new(key: &BaselineKey, baseline: &Baseline) -> Self {
        Self {
            rule_set: key.rule_set.to_string(),
            operation: key.operation.to_string(),
            namespace: key.namespace.as_deref().map(str::to_owned),
            rule_hash: baseline.timing_hash.to_string(),
            last_run: baseline.last_run,
            durations: baseline.durations.iter().copied().map(rounded).collect(),
        }
    }

    fn decode(self) -> (BaselineKey, Baseline) {
        let key = BaselineKey {
            rule_set: self.rule_set.into(),
            operation: self.operation.into(),
            namespace: self.namespace.map(Into::into),
        };
        let mut baseline = Baseline::new(&self.rule_hash, self.last_run);
        baseline.learn(self.durations, self.last_run);
        (key, baseline)
    }
}

/// Rounds a duration to three significant digits.
fn rounded(seconds: f64) -> f64 {
    format!("{seconds:.2e}")
        .parse()
        .expect("a formatted number can be parsed")
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
        Ok(Self {
            all: document.baselines.into_iter().map(Stored::decode).collect(),
            is_changed: false,
        })
    }
}
