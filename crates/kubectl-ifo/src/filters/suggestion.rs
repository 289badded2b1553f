//! Suggests existing names for a misspelt name.

/// Returns the name in `names` that is most similar to `name`, without regard to case. Of equally
/// similar names, the first in alphabetical order is returned. None if no name is similar enough.
pub(crate) fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let lower = name.to_lowercase();
    names
        .into_iter()
        .map(|other| {
            let distance = strsim::damerau_levenshtein(&lower, &other.to_lowercase());
            (distance, other)
        })
        // If more than half of the letters differ, the user probably meant another word.
        .filter(|(distance, other)| *distance * 2 <= other.chars().count().max(2))
        .min()
        .map(|(_, other)| other)
}
