//! Encodes baselines as text. `ifo-apiserver` stores the text in a ConfigMap. A baseline contains
//! the durations of the completed runs of one operation.
//!
//! The text is JSON. A duration has three significant digits, such as 83.2, so a baseline of 200
//! runs takes about 1 KB.

use super::{Baseline, BaselineKey, Baselines, MAX_BASELINES};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;

/// Maximum length of the text, in bytes. A ConfigMap can have 1 MiB.
///
/// If the baselines need more bytes, the text leaves out some of them:
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
struct StoredBaselines<B> {
    format: u32,
    baselines: Vec<B>,
}

/// A baseline with its identity, as one JSON object.
#[derive(Deserialize, Serialize)]
struct StoredBaseline<K, B> {
    #[serde(flatten)]
    key: K,
    #[serde(flatten)]
    baseline: B,
}

/// Rounds to three significant digits.
pub(super) fn rounded(seconds: f64) -> f64 {
    let text = format!("{seconds:.2e}");
    text.parse().expect("a formatted number can be parsed")
}

impl Baselines {
    pub(super) fn encode(&self) -> String {
        let mut all: Vec<_> = self.all.iter().collect();
        all.sort_by_key(|(key, baseline)| (key.namespace.is_some(), Reverse(baseline.last_run)));
        let mut left = MAX_ENCODED_BYTES - 64; // For the text around the baselines.
        let mut kept: Vec<Box<serde_json::value::RawValue>> = Vec::new();
        for (key, baseline) in all {
            let json = serde_json::value::to_raw_value(&StoredBaseline { key, baseline });
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

    /// Decodes the text of [`SharedBaselines::encode`](super::SharedBaselines::encode).
    pub fn decode(text: &str) -> Result<Self, BaselinesError> {
        if text.len() > MAX_ENCODED_BYTES {
            return Err(BaselinesError::TooLarge);
        }
        let document: StoredBaselines<StoredBaseline<BaselineKey, Baseline>> =
            serde_json::from_str(text)?;
        if document.format != FORMAT {
            return Err(BaselinesError::Format(document.format));
        }
        if document.baselines.len() > MAX_BASELINES {
            return Err(BaselinesError::TooLarge);
        }
        let all = document.baselines.into_iter().map(|stored| {
            let mut baseline = stored.baseline;
            // Limits the number of runs, and computes the usual duration.
            baseline.learn([], baseline.last_run);
            (stored.key, baseline)
        });
        Ok(Self {
            all: all.collect(),
            is_changed: false,
        })
    }
}
