//! The kinds of object that live in the demo's world, and what a real API server
//! knows of each from its discovery and its CRD.

use ifo_api::Gvr;

/// One kind, as discovery and its CRD describe it.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural resource name.
    pub resource: &'static str,
    /// Kind, as in an object's `kind`.
    pub kind: &'static str,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// What raises `metadata.generation`.
    pub generation: Generation,
}

/// What raises `metadata.generation` of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// A change of the spec, as in every kind with a status subresource.
    Spec,
    /// Every write: the CRD has no status subresource, as with
    /// `VirtualMachineInstances` and CDIs.
    EveryWrite,
    /// Nothing: the kind has none, as with Nodes and Namespaces.
    None,
}

impl Kind {
    /// The resource of this kind.
    pub fn gvr(&self) -> Gvr {
        Gvr {
            group: self.group.to_owned(),
            version: self.version.to_owned(),
            resource: self.resource.to_owned(),
        }
    }

    /// `apiVersion` of its objects.
    pub fn api_version(&self) -> String {
        self.gvr().api_version()
    }

    /// Whether this kind belongs to the API group `group`.
    pub fn has_group(&self, group: &str) -> bool {
        self.group == group
    }

    /// Whether this is the kind of `gvr`.
    pub fn is(&self, gvr: &Gvr) -> bool {
        self.group == gvr.group && self.version == gvr.version && self.resource == gvr.resource
    }
}

/// Shortens the table below: a kind in `namespaced` or `cluster` scope.
macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $group:literal, $version:literal, $resource:literal, $kind:literal, $namespaced:literal, $generation:ident;)*) => {
        $(
            $(#[$doc])*
            pub static $name: Kind = Kind {
                group: $group,
                version: $version,
                resource: $resource,
                kind: $kind,
                namespaced: $namespaced,
                generation: Generation::$generation,
            };
        )*

        /// Every kind of the demo's world.
        pub static ALL: &[&Kind] = &[$(&$name),*];
    };
}

kinds! {
    /// A virtual machine, running or not.
    VM = "kubevirt.io", "v1", "virtualmachines", "VirtualMachine", true, Spec;
    /// A virtual machine that runs, or is about to.
    VMI = "kubevirt.io", "v1", "virtualmachineinstances", "VirtualMachineInstance", true, EveryWrite;
    /// One live migration.
    VMIM = "kubevirt.io", "v1", "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration", true, Spec;
    /// The installation of KubeVirt.
    KUBEVIRT = "kubevirt.io", "v1", "kubevirts", "KubeVirt", true, Spec;
    /// A snapshot of a virtual machine.
    VM_SNAPSHOT = "snapshot.kubevirt.io", "v1beta1", "virtualmachinesnapshots", "VirtualMachineSnapshot", true, Spec;
    /// A disk that is imported, uploaded or cloned.
    DATA_VOLUME = "cdi.kubevirt.io", "v1beta1", "datavolumes", "DataVolume", true, Spec;
    /// The installation of the Containerized Data Importer.
    CDI = "cdi.kubevirt.io", "v1beta1", "cdis", "CDI", false, EveryWrite;
    /// The installation of the whole virtualization stack.
    HYPERCONVERGED = "hco.kubevirt.io", "v1beta1", "hyperconvergeds", "HyperConverged", true, Spec;
    /// One version of an operator.
    CSV = "operators.coreos.com", "v1alpha1", "clusterserviceversions", "ClusterServiceVersion", true, Spec;
    /// The steps that install an operator.
    INSTALL_PLAN = "operators.coreos.com", "v1alpha1", "installplans", "InstallPlan", true, Spec;
    /// The wish to have an operator, and to keep it up to date.
    SUBSCRIPTION = "operators.coreos.com", "v1alpha1", "subscriptions", "Subscription", true, Spec;
    /// A replicated workload.
    DEPLOYMENT = "apps", "v1", "deployments", "Deployment", true, Spec;
    /// The version of the cluster itself.
    CLUSTER_VERSION = "config.openshift.io", "v1", "clusterversions", "ClusterVersion", false, Spec;
    /// A machine of the cluster.
    NODE = "", "v1", "nodes", "Node", false, None;
    /// A namespace.
    NAMESPACE = "", "v1", "namespaces", "Namespace", false, None;
}
