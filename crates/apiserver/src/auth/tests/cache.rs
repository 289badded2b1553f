//! Tests the cache of reviews and of certificate verdicts: its capacity, eviction and expiry.

use super::super::review_cache::{ExpiringCache, digest};
use std::time::Duration;

fn key(number: u32) -> [u8; 32] {
    digest([number.to_be_bytes().as_slice()])
}

#[tokio::test(start_paused = true)]
async fn the_cache_never_exceeds_its_limit_and_evicts_the_oldest() {
    let recent = ExpiringCache::new(Duration::from_secs(10), 100);
    for number in 0..1000 {
        recent.insert(key(number), number);
        assert!(recent.len() <= 100);
    }
    let is_cached = |number| recent.get(&key(number)) == Some(number);
    assert!(is_cached(999));
    assert!(is_cached(901));
    assert!(!is_cached(1));
}

#[tokio::test(start_paused = true)]
async fn replacing_one_entry_repeatedly_evicts_no_other_entry() {
    let recent = ExpiringCache::new(Duration::from_secs(10), 100);
    for number in 0..1000 {
        recent.insert(key(7), number);
        assert_eq!(recent.len(), 1);
    }
    assert_eq!(recent.get(&key(7)), Some(999));
}

#[tokio::test(start_paused = true)]
async fn expired_entries_are_removed_by_the_next_insertion() {
    let recent = ExpiringCache::new(Duration::from_secs(10), 100);
    for number in 0..50 {
        recent.insert(key(number), number);
    }
    tokio::time::advance(Duration::from_secs(10)).await;
    recent.insert(key(50), 50);
    assert_eq!(recent.len(), 1);
}

#[test]
fn digest_parts_are_separated() {
    let parts = |parts: &[&'static str]| digest(parts.iter().map(|part| part.as_bytes()));
    assert_ne!(parts(&["ab", "c"]), parts(&["a", "bc"]));
    assert_ne!(parts(&["ab"]), parts(&["ab", ""]));
}
