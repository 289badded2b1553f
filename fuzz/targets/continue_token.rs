//! Fuzz target for continue tokens of lists.

#![no_main]

libfuzzer_sys::fuzz_target!(
    |input: &[u8]| aggregated_apiserver::serve::fuzzing::continue_token(input)
);
