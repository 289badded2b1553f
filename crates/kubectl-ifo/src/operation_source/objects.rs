//! The JSON of the objects that a source has read, as the server sent it: for `-o json`, `-o yaml`
//! and `--sort-by`.

use super::decode;
use crate::operation::{InFlightOperation, OperationFacts as _, OperationKey};
use ifo_api::Text;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The identity of an object: `apiVersion`, kind, namespace and name. An operation and its record have
/// the same name.
type ObjectKey = (Text, Text, OperationKey);

/// The objects as texts, because parsed objects need several times the memory. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Objects(Option<Arc<Mutex<HashMap<ObjectKey, String>>>>);

impl Objects {
    /// Creates an empty store. If `keeps` is false, the store stays empty.
    pub(crate) fn new(keeps: bool) -> Self {
        Self(keeps.then(Arc::default))
    }

    fn all(&self) -> Option<MutexGuard<'_, HashMap<ObjectKey, String>>> {
        let all = self.0.as_ref()?.lock();
        Some(all.unwrap_or_else(PoisonError::into_inner))
    }

    /// Decodes an operation, and keeps its JSON.
    pub(crate) fn decode(&self, json: &str) -> Result<InFlightOperation, serde_json::Error> {
        let operation = decode(json)?;
        self.keep(&operation, json);
        Ok(operation)
    }

    /// Keeps the JSON of the object from which `operation` was decoded.
    pub(super) fn keep(&self, operation: &InFlightOperation, json: &str) {
        if let Some(mut all) = self.all() {
            all.insert(key(operation), json.to_owned());
        }
    }

    /// Removes an object that the server has deleted.
    pub(super) fn remove(&self, operation: &InFlightOperation) {
        if let Some(mut all) = self.all() {
            all.remove(&key(operation));
        }
    }

    /// Returns the object from which `operation` was decoded. None if it was not kept.
    pub(crate) fn get(&self, operation: &InFlightOperation) -> Option<Value> {
        let all = self.all()?;
        serde_json::from_str(all.get(&key(operation))?).ok()
    }
}

fn key(operation: &InFlightOperation) -> ObjectKey {
    let (version, kind) = (&operation.api_version, &operation.kind);
    (version.clone(), kind.clone(), operation.key())
}
