//! Lists the names of objects, such as the namespaces that the user is allowed to see. Escapes
//! names in the paths of requests.

use super::api_client::ApiClient;
use super::problem::Problem;
use kube::core::PartialObjectMeta;

/// Returns the namespaces that the user is allowed to see. The result is the first of these lists
/// that can be read:
///
/// - all namespaces of the cluster
/// - the projects of the user, in `OpenShift`
/// - only the namespace of the kubeconfig context, which needs no request
///
/// With `--from`, these are the namespaces in the files.
pub(crate) async fn namespaces(client: &ApiClient) -> Vec<String> {
    if let Some(files) = &client.from_files {
        return files.known_namespaces().into_iter().collect();
    }
    for path in [
        "/api/v1/namespaces",
        "/apis/project.openshift.io/v1/projects",
    ] {
        if let Ok(names) = names(client, path).await {
            return names;
        }
    }
    vec![client.default_namespace.clone()]
}

/// Returns the names of all objects of a resource.
async fn names(client: &ApiClient, path: &str) -> Result<Vec<String>, Problem> {
    let name = |item: &str| {
        let item: PartialObjectMeta = serde_json::from_str(item)?;
        Ok(item.metadata.name)
    };
    client.all(path, "", name).await
}

/// The characters that must be escaped: all except the unreserved characters of RFC 3986.
const ESCAPED: &percent_encoding::AsciiSet = &percent_encoding::NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Escapes a segment of a URL path.
pub(crate) fn escape(segment: &str) -> String {
    percent_encoding::utf8_percent_encode(segment, ESCAPED).to_string()
}
