//! The objects of a server: their Rust type, and how they are encoded.

use crate::store::Rv;
use serde::Serialize;
use serde_json::Value;
use std::fmt::Debug;
use std::marker::PhantomData;

/// Describes the objects of a store. All resources of a store have the same model, and share one
/// sequence of resourceVersions. A store with several kinds uses an enum as [`Model::Object`].
///
/// [`Typed`] is the model of any type that implements [`kube::Resource`]. `Typed` clones an object
/// each time it encodes the object. A server with many objects can implement this trait itself and
/// avoid the copy.
pub trait Model: Clone + Debug + Send + Sync + 'static {
    /// The type of the objects. Clones should be cheap, for example an `Arc`.
    type Object: Clone + Debug + PartialEq + Send + Sync + 'static;
    /// Additional data from which the cells of tables are computed, besides the object and the
    /// time. `()` if there is none.
    type Context: Send + Sync + 'static;

    /// Appends the JSON of the object with the resourceVersion `version` to `out`.
    fn append_json(object: &Self::Object, version: Rv, out: &mut Vec<u8>);

    /// Appends the JSON of the object's `metadata` with the resourceVersion `version` to `out`.
    fn append_metadata(object: &Self::Object, version: Rv, out: &mut Vec<u8>);

    /// Returns the value of a label. None if the object does not have the label.
    fn label<'a>(object: &'a Self::Object, key: &str) -> Option<&'a str>;

    /// Returns the approximate size of the object in memory, in bytes. With these sizes, the store
    /// computes the size of its buffer of the latest changes
    /// ([`Bounds::bytes`](crate::store::Bounds::bytes)).
    fn bytes(object: &Self::Object) -> usize;
}

/// The model of a type that implements [`kube::Resource`] and `Serialize`, such as a type with
/// `#[derive(kube::CustomResource)]`, or [`kube::core::DynamicObject`].
#[derive(Clone, Debug)]
pub struct Typed<T>(PhantomData<fn() -> T>);

impl<T> Model for Typed<T>
where
    T: kube::Resource + Serialize + Clone + Debug + PartialEq + Send + Sync + 'static,
{
    type Object = T;
    type Context = ();

    fn append_json(object: &T, version: Rv, out: &mut Vec<u8>) {
        append(&versioned(object, version), out);
    }

    fn append_metadata(object: &T, version: Rv, out: &mut Vec<u8>) {
        append(versioned(object, version).meta(), out);
    }

    fn label<'a>(object: &'a T, key: &str) -> Option<&'a str> {
        let labels = object.meta().labels.as_ref()?;
        labels.get(key).map(String::as_str)
    }

    fn bytes(object: &T) -> usize {
        serde_json::to_vec(object).map_or(0, |json| json.len())
    }
}

fn versioned<T: kube::Resource + Clone>(object: &T, version: Rv) -> T {
    let mut object = object.clone();
    object.meta_mut().resource_version = Some(version.to_string());
    object
}

/// Appends the JSON of a value. Appends `null` if serde cannot encode the value, for example a map
/// whose keys are not strings. The types of Kubernetes have no such values.
fn append(value: &impl Serialize, out: &mut Vec<u8>) {
    let start = out.len();
    if let Err(error) = serde_json::to_writer(&mut *out, value) {
        tracing::error!(
            %error,
            "an object cannot be encoded as JSON; clients get null in its place"
        );
        out.truncate(start);
        out.extend_from_slice(Value::Null.to_string().as_bytes());
    }
}
