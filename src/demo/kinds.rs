//! The kinds of the demo's objects. The demo finds the kinds in the objects, and in the CRDs among
//! the objects.

use aggregated_apiserver::serve::ResourceInfo;
use ifo_api::{GROUP, Gvr, Resolution, VERSION, ruleset};
use ifo_client::manifest::Object;
use ifo_client::offline_kinds::{self, KnownKinds, group, group_and_version};
use ifo_client::served_resource::ServedResource;
use ifo_client::short_names::ShortNames;
use kube::api::ApiResource;
use kube::core::GroupVersionKind;
use std::collections::{BTreeMap, HashSet};

/// The kind of rule sets.
pub const RULE_SETS: ResourceInfo = ResourceInfo {
    namespaced: false,
    short_names: &["ors"],
    ..ResourceInfo::namespaced((GROUP, VERSION), ruleset::PLURAL, "OperationRuleSet")
};

/// The kinds that the demo serves if the objects come from a folder: rule sets and Namespaces.
pub static KINDS_WITH_FOLDER: &[ResourceInfo] = &[
    RULE_SETS,
    ResourceInfo {
        namespaced: false,
        short_names: &["ns"],
        ..ResourceInfo::namespaced(("", "v1"), "namespaces", "Namespace")
    },
];

/// The kinds of some objects.
#[derive(Debug, Default)]
pub struct Kinds {
    /// All kinds that have an object or a `CustomResourceDefinition`. The key is the `apiVersion`
    /// and the kind. The value is true if the kind is namespaced.
    namespaced: BTreeMap<(String, String), bool>,
    /// The facts about kinds in the `CustomResourceDefinition`s.
    known: KnownKinds,
}

impl Kinds {
    /// Finds the kinds of these objects.
    pub fn of<'a>(objects: impl Iterator<Item = &'a Object> + Clone) -> Self {
        let known = KnownKinds::of(objects.clone());
        let with_namespace = objects.clone().filter(|object| object.namespace.is_some());
        let with_namespace: HashSet<(&str, &str)> = with_namespace
            .map(|object| (object.group(), object.kind.as_str()))
            .collect();
        let declared = known
            .declared()
            .map(|(version, kind)| (version, kind.to_owned()));
        let used = objects.map(|object| (object.api_version.clone(), object.kind.clone()));
        let namespaced = declared.chain(used).map(|(version, kind)| {
            let group = group(&version);
            let has_namespace = with_namespace.contains(&(group, &*kind));
            let namespaced = known.is_namespaced(group, &kind, has_namespace);
            ((version, kind), namespaced)
        });
        Self {
            namespaced: namespaced.collect(),
            known,
        }
    }

    /// Returns true if the kind of the object is namespaced.
    pub(super) fn is_namespaced(&self, object: &Object) -> bool {
        let kind = (object.api_version.clone(), object.kind.clone());
        self.namespaced.get(&kind) == Some(&true)
    }

    /// Looks up a resource among the kinds.
    pub fn resolve(&self, resource: &Gvr) -> Resolution {
        let api_version = resource.api_version();
        let mut kinds = self.namespaced.iter();
        let found = kinds.find(|((version, kind), _)| {
            let known = &self.known;
            *version == api_version && known.is_resource(&resource.group, kind, &resource.resource)
        });
        let groups = self.namespaced.keys().map(|(version, _)| group(version));
        match found {
            Some(((_, kind), namespaced)) => Resolution::Served {
                kind: kind.clone(),
                namespaced: *namespaced,
            },
            None => Resolution::NotServed {
                message: format!("the demo has neither an object nor a CRD of {resource}"),
                // The demo cannot know whether a cluster would serve the API group. With `false`,
                // the status of the rule set says that the API is not installed. With `true`, it
                // would say that the name of the resource is wrong, which is less likely.
                group_served: false,
                similar_group: ifo_client::similar_group(&resource.group, groups)
                    .map(str::to_owned),
            },
        }
    }

    /// Returns the descriptions of the kinds, and of the kind of rule sets. The caller must call this
    /// function only at the start, because it leaks memory.
    pub fn served(&self) -> Vec<ResourceInfo> {
        let served = self
            .namespaced
            .iter()
            .map(|((api_version, kind), namespaced)| {
                let resource = self.known.resource(api_version, kind).resource;
                let (group, version) = group_and_version(api_version);
                let leak = |text: &str| -> &'static str { text.to_owned().leak() };
                let short_names = offline_kinds::short_names(group, &resource);
                ResourceInfo {
                    namespaced: *namespaced,
                    short_names: short_names.leak(),
                    ..ResourceInfo::namespaced(
                        (leak(group), leak(version)),
                        leak(&resource),
                        leak(kind),
                    )
                }
            });
        [RULE_SETS].into_iter().chain(served).collect()
    }
}

/// Returns the short names of the kinds.
pub fn short_names(kinds: &[ResourceInfo]) -> ShortNames {
    let served = kinds.iter().map(|kind| {
        let gvk = GroupVersionKind::gvk(kind.group, kind.version, kind.kind);
        ServedResource {
            api: ApiResource::from_gvk_with_plural(&gvk, kind.plural),
            namespaced: kind.namespaced,
            singular: None,
            short_names: kind.short_names.iter().map(ToString::to_string).collect(),
        }
    });
    ShortNames::new(&served.collect::<Vec<_>>())
}
