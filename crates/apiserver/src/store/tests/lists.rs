//! Tests of lists while a writer writes.

use super::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

#[test]
fn lists_beside_a_fast_writer_are_exact() {
    let (mut writer, reader) = store(MANY);
    let mut at = reader.head();
    let done = Arc::new(AtomicBool::new(false));
    let (log, states) = mpsc::channel();
    let worker = std::thread::spawn({
        let done = done.clone();
        move || {
            // A pair is two objects of the same name, in the namespaces `a` and `z`. At a published
            // version, the objects of a pair always have the same number.
            for n in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    return;
                }
                let pair = (n % 50).to_string();
                let batch = if n % 7 == 0 {
                    vec![delete("a", &pair), delete("z", &pair)]
                } else {
                    vec![put("a", &pair, n), put("z", &pair, n)]
                };
                let rv = mint(&mut writer, batch);
                let number = (n % 7 != 0).then(|| n.to_string());
                // The receiver is dropped at the end of the test.
                if log.send((rv, pair, number)).is_err() {
                    return;
                }
            }
        }
    });

    let mut model = BTreeMap::new();
    for _ in 0..2_000 {
        let (rv, listed) = reader.list(&DEFAULT, ReadVersion::Latest).unwrap();
        while at < rv {
            let (then, pair, n) = states.recv().unwrap();
            match n {
                Some(n) => model.insert(pair, n),
                None => model.remove(&pair),
            };
            at = then;
        }
        assert_eq!(at, rv, "a version in the middle of a batch was published");
        let expected: Vec<_> = ["a", "z"]
            .iter()
            .flat_map(|ns| {
                model
                    .iter()
                    .map(move |(k, v)| (format!("{ns}/{k}"), v.clone()))
            })
            .collect();
        let seen: Vec<_> = summaries(&listed)
            .into_iter()
            .map(|(k, _, n)| (k, n))
            .collect();
        assert_eq!(seen, expected, "at version {rv}");
    }
    done.store(true, Ordering::Relaxed);
    drop(states);
    worker.join().unwrap();
}
