//! Fuzz target for label selectors.

#![no_main]

libfuzzer_sys::fuzz_target!(
    |input: &[u8]| aggregated_apiserver::serve::fuzzing::label_selector(input)
);
