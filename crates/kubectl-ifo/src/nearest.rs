//! Suggestions for misspelt names. Enters: a name, and the names that exist. Leaves: the
//! existing name that was probably meant.

/// The name among `names` that `name` was probably meant to be; upper and lower case are
/// the same. Of two equally near names it is the first in alphabetical order.
pub(super) fn nearest<'n>(name: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let lower = name.to_lowercase();
    names
        .into_iter()
        .map(|other| {
            let distance = strsim::damerau_levenshtein(&lower, &other.to_lowercase());
            (distance, other)
        })
        // More than half wrong is another word.
        .filter(|(distance, other)| *distance * 2 <= other.chars().count().max(2))
        .min()
        .map(|(_, other)| other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_more_than_half_wrong_is_another_word() {
        let names = ["kubevirt", "olm", "openshift"];
        assert_eq!(nearest("kubvirt", names), Some("kubevirt"));
        assert_eq!(nearest("OpenShfit", names), Some("openshift"));
        assert_eq!(nearest("velero", names), None);
        assert_eq!(nearest("x", []), None);
    }
}
