//! The decisions about the places of subjects.

use crate::index::Place;
use ifo_api::Text;
use std::collections::HashMap;
use std::sync::Arc;

/// What was decided about the objects in one place.
#[derive(Clone, Debug)]
pub(super) struct DecidedPlace {
    /// While the `Arc` is held, no other place gets its address.
    place: Arc<Place>,
    /// True if the user may get all objects in the place. None if that was not asked.
    pub(super) is_granted: Option<bool>,
    /// Decisions about single objects, by name.
    pub(super) names: HashMap<Text, bool>,
}

/// Decisions by the address of the place. Equal places of objects in the index have the same address.
/// So a look-up hashes one address instead of three texts.
#[derive(Clone, Debug, Default)]
pub(super) struct DecidedPlaces(foldhash::HashMap<usize, DecidedPlace>);

impl DecidedPlaces {
    /// Returns what was decided about a place. Returns None if nothing was decided.
    pub(super) fn get(&self, place: &Arc<Place>) -> Option<&DecidedPlace> {
        self.0.get(&Arc::as_ptr(place).addr())
    }

    /// Returns what was decided about a place, after adding the place if it is not known yet.
    pub(super) fn get_or_add(&mut self, place: &Arc<Place>) -> &mut DecidedPlace {
        let decided = self.0.entry(Arc::as_ptr(place).addr());
        decided.or_insert_with(|| DecidedPlace {
            place: place.clone(),
            is_granted: None,
            names: HashMap::new(),
        })
    }

    /// Returns true if access to all places was granted.
    pub(super) fn are_granted(&self) -> bool {
        self.0.values().all(|place| place.is_granted == Some(true))
    }

    /// Returns the number of places.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns a copy with the decisions about whole places, without those about single objects.
    pub(super) fn without_names(&self) -> Self {
        let decided = self.0.iter().filter(|(_, it)| it.is_granted.is_some());
        let without_names = decided.map(|(&address, it)| {
            let names = HashMap::new();
            let place = it.place.clone();
            (
                address,
                DecidedPlace {
                    place,
                    names,
                    ..*it
                },
            )
        });
        Self(without_names.collect())
    }

    /// Returns the number of decisions about single objects.
    pub(super) fn count_names(&self) -> usize {
        self.0.values().map(|place| place.names.len()).sum()
    }

    /// Returns the single objects to which access was granted.
    pub(super) fn granted_names(&self) -> impl Iterator<Item = (Arc<Place>, Text)> {
        self.0.values().flat_map(|decided| {
            let granted = decided.names.iter().filter(|(_, granted)| **granted);
            granted.map(|(name, _)| (decided.place.clone(), name.clone()))
        })
    }
}
