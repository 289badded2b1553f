//! The scenes of the demo. A scene is a recording of changes to a few objects, which the demo
//! repeats.
//!
//! The file of a scene has lines of the form `{"t": seconds, "type": …, "object": …}`. `t` is the
//! time since the beginning of the scene. `object` depends on the type of the change:
//!
//! - `ADDED`: the whole object.
//! - `MODIFIED`: a JSON merge patch (RFC 7386), with the identity of the object.
//! - `DELETED`: only the identity of the object.
//!
//! `scenes/README.md` names the origin of each file.
//!
//! Each repetition of a scene is called a round. In each round, the demo moves the timestamps to
//! the time of the round. There are two groups of objects:
//!
//! - Objects that are added at 0 s exist before the first round. Before each round, the demo returns
//!   them to their initial state.
//! - All other objects exist only during a round. They have other UIDs in each round.

use super::embedded;
use super::kinds::Kinds;
use super::model::{active_namespace, key, now_in_seconds};
use super::objects::ObjectStore;
use aggregated_apiserver::store::Key;
use futures::future::join_all;
use ifo_client::manifest::{self, Object};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

/// The timestamp in the files that means the beginning of a round: 2026-01-01T00:00:00Z.
const ORIGIN: Timestamp = Timestamp::constant(1_767_225_600, 0);

/// Time between two rounds of a scene. An operation completes when no rule has detected it for the
/// debounce period (5 s in the demo). The pause is longer, so that the operations of one round
/// complete before the next round begins.
const PAUSE_BETWEEN_ROUNDS: Duration = Duration::from_secs(20);

/// The files of all scenes.
const FILES: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/scenes.lz4"));

#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "UPPERCASE")]
enum ChangeType {
    Added,
    Modified,
    Deleted,
}

/// One change of an object.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SceneStep {
    /// Time since the beginning of the scene in seconds.
    t: f64,
    #[serde(rename = "type")]
    change: ChangeType,
    object: Value,
}

/// One round of a scene. Its steps are in chronological order.
#[derive(Debug)]
struct Scene {
    /// The text from which the steps were parsed.
    text: String,
    /// The steps at 0 s. They create the objects that exist before the first round, or reset them to
    /// their initial state.
    initial: Vec<SceneStep>,
    /// The other steps.
    later: Vec<SceneStep>,
}

/// Reads the scenes into a store, which then has their initial objects. The store also contains the
/// Namespace `own`, in which operations on cluster-scoped objects are shown.
///
/// Also returns a future that plays all scenes repeatedly and never ends. The caller must run this
/// future as a task.
pub fn open(own: &str) -> (ObjectStore, impl Future<Output = ()> + Send + 'static) {
    let files = embedded(FILES).into_iter();
    let scenes: Vec<Scene> = files.map(|(_, text)| Scene::parse(&text)).collect();
    let added: Vec<Object> = scenes.iter().flat_map(Scene::added).collect();
    let store = ObjectStore::new(Kinds::of(added.iter()));
    let mut namespace = active_namespace(own);
    namespace["metadata"]["creationTimestamp"] = json!(now_in_seconds());
    if let Some(key) = key(&namespace) {
        store.put(&key, namespace);
    }
    // If a scene has this Namespace, the object of the scene replaces it.
    for scene in &scenes {
        scene.set_up(&store);
    }
    let played = store.clone();
    let play = async move {
        let scenes = scenes.into_iter();
        let scenes = scenes.filter(|scene| !scene.later.is_empty());
        join_all(scenes.map(|scene| scene.play(&played))).await;
    };
    (store, play)
}

impl Scene {
    fn parse(text: &str) -> Self {
        let steps = text.lines().map(serde_json::from_str);
        let steps: Result<Vec<SceneStep>, _> = steps.collect();
        let steps = steps.expect("a test parses the scenes, which are part of the binary");
        let (initial, later) = steps.into_iter().partition(|step| step.at().is_zero());
        Self {
            text: text.to_owned(),
            initial,
            later,
        }
    }

    /// Returns the next round. Each object that is added during a round gets a new UID in all places
    /// of the text. In a cluster, too, a new object with an old name has a new UID. Many keys of
    /// pieces of work contain a UID, so the work of two rounds stays separate.
    fn next_round(&self) -> Self {
        let mut text = self.text.clone();
        for uid in self.later.iter().filter_map(SceneStep::added_uid) {
            let next = Uuid::from_u128(uid.as_u128().wrapping_add(1));
            text = text.replace(&uid.to_string(), &next.to_string());
        }
        Self::parse(&text)
    }

    fn steps(&self) -> impl Iterator<Item = &SceneStep> {
        self.initial.iter().chain(&self.later)
    }

    /// Returns all objects that the scene adds.
    fn added(&self) -> Vec<Object> {
        let mut objects = Vec::new();
        for step in self.steps().filter(|step| step.change == ChangeType::Added) {
            let appended = manifest::append_objects(step.object.clone(), &mut objects);
            appended.expect("a test checks that each object has a name and a kind");
        }
        objects
    }

    /// Returns the time of the last step.
    fn length(&self) -> Duration {
        self.steps().last().map(SceneStep::at).unwrap_or_default()
    }

    async fn play(mut self, store: &ObjectStore) {
        loop {
            let time = self.set_up(store);
            let begun = Instant::now();
            for step in &self.later {
                sleep_until(begun + step.at()).await;
                step.apply(store, time);
            }
            sleep_until(begun + self.length() + PAUSE_BETWEEN_ROUNDS).await;
            // Deletes the objects that exist only during a round.
            for key in self.later.iter().map(SceneStep::key) {
                if self.initial.iter().all(|first| first.key() != key) {
                    store.delete(&key);
                }
            }
            self = self.next_round();
        }
    }

    /// Applies the initial steps. Returns the time of the round.
    fn set_up(&self, store: &ObjectStore) -> Timestamp {
        let time = now_in_seconds();
        self.initial.iter().for_each(|step| step.apply(store, time));
        time
    }
}

impl SceneStep {
    fn at(&self) -> Duration {
        Duration::from_secs_f64(self.t)
    }

    fn key(&self) -> Key {
        key(&self.object).expect("a test checks that each object has a name and a kind")
    }

    /// Returns the UID of the object, if this step adds the object.
    fn added_uid(&self) -> Option<Uuid> {
        let uid = self.object["metadata"]["uid"].as_str()?;
        let is_added = self.change == ChangeType::Added;
        is_added.then(|| uid.parse().expect("a test parses the UIDs"))
    }

    fn apply(&self, store: &ObjectStore, begun: Timestamp) {
        let (key, mut object) = (self.key(), self.object.clone());
        move_times(&mut object, begun);
        match self.change {
            ChangeType::Added => store.put(&key, object),
            ChangeType::Modified => store.patch(&key, &object),
            ChangeType::Deleted => store.delete(&key),
        }
    }
}

/// Moves the timestamps in a value to the time of a round, which has begun at `begun`.
fn move_times(value: &mut Value, begun: Timestamp) {
    match value {
        Value::String(text) => {
            if let Ok(time) = text.parse::<Timestamp>() {
                let moved = begun.checked_add(time.duration_since(ORIGIN));
                *text = moved.unwrap_or(begun).to_string();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|it| move_times(it, begun)),
        Value::Object(fields) => fields.values_mut().for_each(|it| move_times(it, begun)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
pub(super) mod tests;
