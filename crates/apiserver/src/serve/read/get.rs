//! Answers get requests: the newest version of one object.

use super::wait_until_reached;
use crate::serve::answer::encoder::Encoder;
use crate::serve::answer::error_status::ErrorStatus;
use crate::serve::answer::responses::json;
use crate::serve::hooks::Read;
use crate::serve::request::negotiation::negotiate;
use crate::serve::resource::Resource;
use crate::serve::visibility::{RestrictedUser, visible_objects};
use crate::store::Scope;
use crate::{Model, clock};
use axum::response::Response;

/// Answers a get request. This function supports these query options, and ignores all others:
///
/// - `resourceVersion`: the function waits until the store has reached this version. If this takes
///   longer than three seconds, the client gets a 504.
/// - `includeObject`: selects the form of the object in the row of a table.
/// - `export`: if the value is true, the client gets a 400, as from the kube-apiserver.
///
/// If the object is hidden from the user, the answer is the same as for an object that does not
/// exist.
pub async fn get<M: Model>(
    resource: &Resource<M>,
    read: &Read<'_>,
    user: Option<&RestrictedUser<M>>,
) -> Result<Response, ErrorStatus> {
    let (request, query) = (read.request, read.query);
    let form = negotiate(read.headers, query)?;
    if query.flag("export") {
        return Err(ErrorStatus::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        ));
    }
    wait_until_reached(&resource.reader, query.resource_version()?).await?;
    let key = resource.key(&request.namespace, &request.name);
    let (rv, entry) = resource.reader.get(&key);
    let found = visible_objects(user, &Scope::Object(key), rv, Vec::from_iter(entry)).await?;
    let entry = found
        .first()
        .ok_or_else(|| resource.info.no_object(&request.name))?;
    let mut body = Vec::new();
    let encoder = Encoder {
        resource,
        form,
        now: clock::now(),
    };
    encoder.object(entry, entry.rv(), true, &mut body);
    body.push(b'\n');
    Ok(json(body))
}
