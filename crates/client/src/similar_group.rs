//! Finds the API group that the author of a rule set probably meant by a misspelt group.

/// Endings that authors forget, or add by mistake.
const ENDINGS: [&str; 3] = [".io", ".com", ".k8s.io"];

/// Returns the group in `served` whose name is most similar to `missing`. Of equally similar groups,
/// the first in alphabetical order is returned. None if no group is similar.
///
/// Two groups are similar in two cases:
///
/// - One group is the other group and one of the `ENDINGS`, such as `kubevirt` and `kubevirt.io`.
/// - The groups have the same number of labels (the parts between the dots). Exactly one label
///   differs, and at most a quarter of its letters is wrong, added or missing. For example, the
///   labels `ssp` and `cdi` are different words, and `kubevrit` and `kubevirt` are similar.
pub fn similar_group<'s>(
    missing: &str,
    served: impl IntoIterator<Item = &'s str>,
) -> Option<&'s str> {
    let similar = served.into_iter().filter_map(|other| {
        let distance = distance(missing, other)?;
        Some((distance, other))
    });
    similar.min().map(|(_, group)| group)
}

/// Returns the number of changes that turn one group into the other, or None if the groups are not
/// similar. A forgotten or added ending counts as one change.
fn distance(missing: &str, served: &str) -> Option<usize> {
    if missing == served || missing.is_empty() || served.is_empty() {
        return None;
    }
    let has_ending = |long: &str, short: &str| {
        let ending = long.strip_prefix(short);
        ending.is_some_and(|ending| ENDINGS.contains(&ending))
    };
    if has_ending(missing, served) || has_ending(served, missing) {
        return Some(1);
    }
    if missing.split('.').count() != served.split('.').count() {
        return None;
    }
    let labels = missing.split('.').zip(served.split('.'));
    let mut different = labels.filter(|(one, other)| one != other);
    let (one, other) = different.next()?;
    let distance = strsim::damerau_levenshtein(&one.to_lowercase(), &other.to_lowercase());
    let is_similar = distance <= one.len().max(other.len()).div_ceil(4);
    (different.next().is_none() && is_similar).then_some(distance)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_misspelt_group_is_recognized_and_another_product_is_not() {
        let served = [
            "apps",
            "cdi.kubevirt.io",
            "config.openshift.io",
            "kubevirt.io",
            "snapshot.storage.k8s.io",
            "storage.k8s.io",
            "velero.io",
        ];
        for (missing, expected) in [
            ("kubevrit.io", Some("kubevirt.io")),
            ("KubeVirt.io", Some("kubevirt.io")),
            ("kubevirt", Some("kubevirt.io")),
            ("apps.k8s.io", Some("apps")),
            ("snapshot.storage", Some("snapshot.storage.k8s.io")),
            ("snapshots.storage.k8s.io", Some("snapshot.storage.k8s.io")),
            ("cdi.kubevirtt.io", Some("cdi.kubevirt.io")),
            ("ssp.kubevirt.io", None),
            ("aaq.kubevirt.io", None),
            ("clone.kubevirt.io", None),
            ("apps.openshift.io", None),
            ("machineconfiguration.openshift.io", None),
            ("groupsnapshot.storage.k8s.io", None),
            ("argoproj.io", None),
            ("", None),
        ] {
            assert_eq!(similar_group(missing, served), expected, "{missing}");
        }
    }
}
