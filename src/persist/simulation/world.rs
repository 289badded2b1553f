//! The objects that operations happen on. Enters: changes at random. Leaves: what each
//! server's feed lists and is told of, and which operations really go on.

use super::Trace;
use crate::clock;
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// An operation of a subject, and its item.
pub type What = (&'static str, Option<&'static str>);

/// Ends what else goes on.
const STOPPING: What = ("Stopping", None);
const MIGRATING: What = ("Migrating", None);
const COPYING: [What; 2] = [("Copying", Some("a")), ("Copying", Some("b"))];

/// The operations that there are rules for, in the order of the rules.
pub const OPERATIONS: [&str; 3] = ["Migrating", "Stopping", "Copying"];

/// An object, as it is after a change.
#[derive(Clone, Debug)]
pub struct Object {
    pub name: String,
    pub uid: Arc<str>,
    /// What rules detect, with the run that they tell of.
    pub detected: BTreeMap<What, Option<Arc<str>>>,
    /// Of managedFields: whole seconds.
    pub managed: Timestamp,
}

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum Told {
    Applied(Object),
    Deleted(Object),
}

/// When it was told.
pub type Telling = (Instant, Told);

/// Since when something is detected without a break.
#[derive(Clone, Debug)]
pub struct Stretch {
    pub since: Timestamp,
    /// When the one before it began.
    pub before: Option<Timestamp>,
    run: Option<Arc<str>>,
    pub goes_on: bool,
}

#[derive(Default)]
struct State {
    objects: Vec<Option<Object>>,
    watchers: Vec<mpsc::UnboundedSender<Telling>>,
    stretches: BTreeMap<(Arc<str>, What), Stretch>,
    made: usize,
    runs: usize,
}

/// See above.
pub struct World {
    state: Mutex<State>,
    trace: Arc<Trace>,
}

impl World {
    pub fn new(subjects: usize, trace: Arc<Trace>) -> Self {
        let state = State {
            objects: vec![None; subjects],
            ..State::default()
        };
        let world = Self {
            state: Mutex::new(state),
            trace,
        };
        for slot in 0..subjects {
            world.make(slot, BTreeMap::new());
        }
        world
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics that holds it")
    }

    /// All objects, and what happens to them from now on.
    pub fn watch(&self) -> (Vec<Object>, mpsc::UnboundedReceiver<Telling>) {
        let mut state = self.state();
        let (sender, events) = mpsc::unbounded_channel();
        state.watchers.push(sender);
        (state.objects.iter().flatten().cloned().collect(), events)
    }

    /// Changes objects at random until `over`.
    pub async fn move_on(&self, mut rng: fastrand::Rng, pace: Duration, over: Instant) {
        while Instant::now() < over {
            let wait = if rng.u8(..4) == 0 {
                Duration::from_millis(rng.u64(..800))
            } else {
                pace.mul_f64(rng.f64() * 2.0)
            };
            tokio::time::sleep(wait).await;
            self.step(&mut rng);
        }
    }

    fn step(&self, rng: &mut fastrand::Rng) {
        let slot = rng.usize(..self.state().objects.len());
        let there = self.state().objects[slot].clone();
        let Some(object) = there else {
            let detected = self.status(slot, rng);
            self.make(slot, detected);
            return;
        };
        match rng.u8(..20) {
            0 => {
                self.delete(slot);
                if rng.bool() {
                    let detected = self.status(slot, rng);
                    self.make(slot, detected);
                }
            }
            // Something that no rule is about.
            1..4 => self.change(slot, object.detected),
            // It blinks: over within a debounce, or not at all.
            4..6 if !object.detected.is_empty() => {
                self.change(slot, BTreeMap::new());
                if rng.bool() {
                    self.change(slot, object.detected);
                }
            }
            // Another run takes over at once.
            6..8 if object.detected.contains_key(&MIGRATING) => {
                let mut detected = object.detected;
                detected.insert(MIGRATING, self.run(slot));
                self.change(slot, detected);
            }
            _ => {
                let detected = self.status(slot, rng);
                self.change(slot, detected);
            }
        }
    }

    /// What may go on at once.
    fn status(&self, slot: usize, rng: &mut fastrand::Rng) -> BTreeMap<What, Option<Arc<str>>> {
        let mut detected = BTreeMap::new();
        match rng.u8(..8) {
            0..3 => {}
            3..5 => {
                detected.insert(MIGRATING, self.run(slot));
            }
            5 | 6 => {
                for what in COPYING {
                    if rng.bool() {
                        detected.insert(what, None);
                    }
                }
            }
            // The others know no operation that ends another, so that of those it is easy to
            // tell what is to go on.
            _ if slot.is_multiple_of(2) => {
                detected.insert(STOPPING, None);
                if rng.bool() {
                    detected.insert(MIGRATING, self.run(slot));
                }
            }
            _ => {
                detected.insert(MIGRATING, self.run(slot));
            }
        }
        detected
    }

    /// The name of a new run, for every third subject.
    fn run(&self, slot: usize) -> Option<Arc<str>> {
        let mut state = self.state();
        state.runs += 1;
        slot.is_multiple_of(3)
            .then(|| format!("run-{}", state.runs).into())
    }

    /// Nothing goes on any more.
    pub fn rest(&self) {
        let slots = self.state().objects.len();
        for slot in 0..slots {
            if self.state().objects[slot].is_some() {
                self.change(slot, BTreeMap::new());
            }
        }
    }

    fn make(&self, slot: usize, detected: BTreeMap<What, Option<Arc<str>>>) {
        let mut state = self.state();
        state.made += 1;
        let object = Object {
            name: format!("vm-{slot}"),
            uid: format!("uid-{slot}-{}", state.made).into(),
            detected,
            managed: second(clock::now()),
        };
        self.tell(&mut state, slot, Some(object));
    }

    fn change(&self, slot: usize, detected: BTreeMap<What, Option<Arc<str>>>) {
        let mut state = self.state();
        let Some(object) = state.objects[slot].clone() else {
            return;
        };
        let managed = second(clock::now());
        let object = Object {
            detected,
            managed,
            ..object
        };
        self.tell(&mut state, slot, Some(object));
    }

    fn delete(&self, slot: usize) {
        self.tell(&mut self.state(), slot, None);
    }

    fn tell(&self, state: &mut State, slot: usize, object: Option<Object>) {
        let now = clock::now();
        let before = std::mem::replace(&mut state.objects[slot], object.clone());
        let told = match (object, before) {
            (Some(object), _) => Told::Applied(object),
            (None, Some(before)) => Told::Deleted(before),
            (None, None) => return,
        };
        self.trace.add(|| format!("world: {told:?}"));
        let (uid, detected) = match &told {
            Told::Applied(object) => (&object.uid, object.detected.clone()),
            Told::Deleted(object) => (&object.uid, BTreeMap::new()),
        };
        for ((of, what), stretch) in &mut state.stretches {
            stretch.goes_on &= of != uid || detected.contains_key(what);
        }
        for (what, run) in detected {
            let known = state.stretches.get(&(uid.clone(), what));
            if known.is_some_and(|known| known.goes_on && known.run == run) {
                continue;
            }
            let before = known.map(|known| known.since);
            let stretch = Stretch {
                since: now,
                before,
                run,
                goes_on: true,
            };
            state.stretches.insert((uid.clone(), what), stretch);
        }
        let telling = (Instant::now(), told);
        state.watchers.retain(|it| it.send(telling.clone()).is_ok());
    }

    /// The operations that go on once everything has settled.
    pub fn going_on(&self) -> BTreeSet<(Arc<str>, What)> {
        let state = self.state();
        let objects = state.objects.iter().flatten();
        let operations = objects.flat_map(|object| {
            let stops = object.detected.contains_key(&STOPPING);
            let detected = object.detected.keys();
            let stays = detected.filter(move |what| **what != MIGRATING || !stops);
            stays.map(|what| (object.uid.clone(), *what))
        });
        operations.collect()
    }

    /// What is detected now, since when, where no other operation ever meddles.
    pub fn undisturbed(&self) -> BTreeMap<(Arc<str>, What), Stretch> {
        let state = self.state();
        let ever_stopped = |uid: &Arc<str>| {
            let id = (uid.clone(), STOPPING);
            state.stretches.contains_key(&id)
        };
        let stretches = state.stretches.iter();
        stretches
            .filter(|((uid, what), it)| it.goes_on && (*what != MIGRATING || !ever_stopped(uid)))
            .map(|(id, it)| (id.clone(), it.clone()))
            .collect()
    }
}

/// As managedFields have it.
fn second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).expect("a time of this century")
}
