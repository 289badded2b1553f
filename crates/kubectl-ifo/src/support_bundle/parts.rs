//! The parts of a support bundle that are lists of objects: the requests, the kind of the objects,
//! and the file.

use crate::operation_source::escape;
use ifo_api::{GROUP, LIVE_GROUP, VERSION, live, record, ruleset};

/// The name of the part with the operations that are stored as custom resources.
pub(super) const CUSTOM_RESOURCES: &str = "custom resources";

/// Largest number of operations, and of records of completed operations. Further ones are left out.
pub(super) const OPERATIONS: usize = 20_000;

/// Largest number of objects in another list, such as Events. Further objects are left out.
const OBJECTS: usize = 1_000;

/// A list of objects. If there are several requests, the part has the objects of all answers.
pub(super) struct ListPart {
    pub(super) what: &'static str,
    pub(super) api_version: String,
    pub(super) kind: &'static str,
    pub(super) uris: Vec<String>,
    pub(super) path: String,
    /// Largest number of objects.
    pub(super) limit: usize,
}

impl ListPart {
    /// `paths` are the paths of the requests, below the root of the API.
    fn new(
        what: &'static str,
        (api_version, kind): (&str, &'static str),
        path: String,
        paths: &[String],
    ) -> Self {
        let root = match api_version {
            "v1" => "/api/v1".to_owned(),
            version => format!("/apis/{version}"),
        };
        Self {
            what,
            api_version: api_version.to_owned(),
            kind,
            uris: paths.iter().map(|it| format!("{root}/{it}")).collect(),
            limit: if path.starts_with("operations/") {
                OPERATIONS
            } else {
                OBJECTS
            },
            path,
        }
    }

    /// Returns the APIService, which registers `ifo-apiserver` in the kube-apiserver.
    pub(super) fn api_service() -> Self {
        let kind = "APIService";
        let uri = format!("apiservices/{VERSION}.{LIVE_GROUP}");
        let path = "cluster/apiservice.json".to_owned();
        Self::new(kind, ("apiregistration.k8s.io/v1", kind), path, &[uri])
    }

    /// Returns the operations that `group` serves.
    pub(super) fn operations(what: &'static str, group: &str) -> Self {
        let path = format!("operations/{}.{group}.json", live::PLURAL);
        let api_version = format!("{group}/{VERSION}");
        let kind = (api_version.as_str(), live::KIND);
        Self::new(what, kind, path, &[live::PLURAL.to_owned()])
    }

    /// Returns the records of completed operations, in all namespaces if `namespaces` is None.
    pub(super) fn records(namespaces: Option<&[String]>) -> Self {
        let plural = record::PLURAL;
        let within = |it: &String| format!("namespaces/{}/{plural}", escape(it));
        let uris = match namespaces {
            Some(namespaces) => namespaces.iter().map(within).collect(),
            None => vec![plural.to_owned()],
        };
        let path = format!("operations/{plural}.{LIVE_GROUP}.json");
        let api_version = format!("{LIVE_GROUP}/{VERSION}");
        let kind = (api_version.as_str(), record::KIND);
        Self::new("records of completed operations", kind, path, &uris)
    }

    /// Returns the other objects of the cluster, and those in the namespace of `ifo-apiserver`. The
    /// last part has the Pods.
    pub(super) fn of_server(namespace: &str) -> Vec<Self> {
        let (rule_sets, group) = (ruleset::PLURAL, format!("{GROUP}/{VERSION}"));
        let (crd, crds) = ("CustomResourceDefinition", "customresourcedefinitions");
        let crd_uris = [rule_sets, live::PLURAL].map(|it| format!("{crds}/{it}.{GROUP}"));
        let cluster = [
            Self::new(
                "rule sets",
                (&group, ruleset::KIND),
                format!("cluster/{rule_sets}.json"),
                &[rule_sets.to_owned()],
            ),
            Self::new(
                crd,
                ("apiextensions.k8s.io/v1", crd),
                format!("cluster/{crds}.json"),
                &crd_uris,
            ),
        ];
        let labelled = "labelSelector=app.kubernetes.io%2Fname%3Difo-apiserver";
        let named = "fieldSelector=metadata.name%3Difo-apiserver";
        let budget = "PodDisruptionBudget";
        let server = [
            ("apps/v1", "Deployment", "deployments", labelled),
            ("policy/v1", budget, "poddisruptionbudgets", labelled),
            ("coordination.k8s.io/v1", "Lease", "leases", named),
            ("v1", "Event", "events", ""),
            ("v1", "Pod", "pods", labelled),
        ];
        let server = server.map(|(version, kind, plural, selector)| {
            let path = format!("server/{plural}.json");
            let uri = format!("namespaces/{}/{plural}?{selector}", escape(namespace));
            Self::new(kind, (version, kind), path, &[uri])
        });
        cluster.into_iter().chain(server).collect()
    }
}
