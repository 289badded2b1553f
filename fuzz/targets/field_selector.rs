//! Fuzz target for field selectors.

#![no_main]

libfuzzer_sys::fuzz_target!(
    |input: &[u8]| aggregated_apiserver::serve::fuzzing::field_selector(input)
);
