//! Tests with hostile rule sets: rules that could use up the memory or processor time of the server
//! under test. Other users must not be affected. `tests/pipeline` has the tests with hostile
//! connections, which need no cluster.

mod slow_rules;
mod too_many_operations;
