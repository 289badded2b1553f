//! Reads `intended_differences.yaml`, which describes its fields.

use serde::Deserialize;
use std::sync::LazyLock;

/// An intended difference between the answers to some requests.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntendedDifference {
    pub name: String,
    pub reason: String,
    pub requests: Vec<String>,
    pub at: Vec<String>,
    #[serde(default)]
    pub live: String,
    #[serde(default)]
    pub custom: String,
}

/// All intended differences.
pub static INTENDED_DIFFERENCES: LazyLock<Vec<IntendedDifference>> = LazyLock::new(|| {
    let text = include_str!("intended_differences.yaml");
    serde_saphyr::from_str(text).expect("the file is a list of intended differences")
});
