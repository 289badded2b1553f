//! The resources that a cluster serves, as aggregated discovery lists them.

use crate::list::escape;
use crate::offline_kinds::KindName;
use kube::api::{ApiResource, DynamicObject, Resource as _};
use kube::core::GroupVersionKind;
use kube::core::discovery::v2::APIGroupDiscoveryList;

/// A version of a resource that a cluster serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedResource {
    /// The group, the version, the kind and the plural.
    pub api: ApiResource,
    /// True if the resource is namespaced.
    pub namespaced: bool,
    /// The singular name. None if discovery does not contain it.
    pub singular: Option<String>,
    /// The short names, the preferred one first.
    pub short_names: Vec<String>,
}

impl ServedResource {
    /// Returns the resources in answers of aggregated discovery. A resource occurs once for each of
    /// its versions.
    pub fn all_in(answers: impl IntoIterator<Item = APIGroupDiscoveryList>) -> Vec<Self> {
        let mut resources = Vec::new();
        for group in answers.into_iter().flat_map(|it| it.items) {
            let name = group.metadata.and_then(|it| it.name).unwrap_or_default();
            for version in group.versions {
                let version_name = version.version.unwrap_or_default();
                for resource in version.resources {
                    let kind = resource.response_kind.and_then(|it| it.kind);
                    let (Some(kind), Some(plural)) = (kind, resource.resource) else {
                        continue;
                    };
                    let gvk = GroupVersionKind::gvk(&name, &version_name, &kind);
                    resources.push(Self {
                        api: ApiResource::from_gvk_with_plural(&gvk, &plural),
                        namespaced: resource.scope.as_deref() == Some("Namespaced"),
                        singular: resource.singular_resource,
                        short_names: resource.short_names,
                    });
                }
            }
        }
        resources
    }

    /// Returns the kind, plural, singular and short names, in lower case.
    pub fn names(&self) -> impl Iterator<Item = String> {
        let own = [&self.api.kind, &self.api.plural].into_iter();
        let all = own.chain(&self.singular).chain(&self.short_names);
        all.map(|name| name.to_ascii_lowercase())
    }

    /// Returns true if `name` is one of the names of this resource. If `name` contains a group or a
    /// version, it must be that of the resource.
    pub fn has_name(&self, name: &KindName) -> bool {
        let named = self.names().any(|own| own == name.name());
        named && name.allows(&self.api.group, &self.api.version)
    }

    /// Returns the path of an object. The namespace is used only if the resource is namespaced.
    pub fn path(&self, namespace: Option<&str>, name: &str) -> String {
        let within = namespace.filter(|_| self.namespaced);
        let list = DynamicObject::url_path(&self.api, within);
        format!("{list}/{}", escape(name))
    }
}
