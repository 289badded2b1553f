//! Tests of lists that may lack operations, with a fake API server. Each answer of the server says
//! whether it is complete. A later answer can be complete, because a rule set works again. But the
//! operations that were missing from an earlier answer are still missing from it.

use super::CommandOutput;
use super::tests_with_fake_apiserver::{
    LIVE, RULE_SETS, execute, json_response, list_response, not_found, operation, plugin,
    quiet_watch, serve, watched_rule_set,
};
use axum::response::Response;
use serde_json::json;

/// The warning of `ifo-apiserver` while the watch of the target of a rule set is interrupted.
const WARNING: &str = "299 - \"1 of 1 rule set is not working, operations may be missing: \
                       vm (target cannot be watched)\"";

fn incomplete(mut answer: Response) -> Response {
    let warning = WARNING.parse().expect("a header");
    answer.headers_mut().insert("warning", warning);
    answer
}

fn complete(mut answer: Response) -> Response {
    let value = "true".parse().expect("a header");
    answer.headers_mut().insert("ifo-complete", value);
    answer
}

#[test]
fn a_list_is_incomplete_if_any_of_its_pages_is_incomplete() {
    for incomplete_page in [1, 2] {
        let (_runtime, address) = serve(move |request| {
            let query = request.uri().query().unwrap_or_default();
            let (page, answer) = match request.uri().path() {
                LIVE if query.contains("continue=next") => (2, list_response(&[operation(2)], "")),
                LIVE => (1, list_response(&[operation(1)], "next")),
                _ => return not_found(),
            };
            if page == incomplete_page {
                incomplete(answer)
            } else {
                complete(answer)
            }
        });
        for command in ["list", "tree", "summary"] {
            let output = execute(plugin(address).arg(command));
            output.exits(0);
            assert!(
                output.stderr.contains("1 of 1 rule set is not working"),
                "{command}, page {incomplete_page}: {}",
                output.stderr
            );
        }
    }
}

/// Runs `wait` against a server whose lists lack the operations in flight. The server is asked once
/// more after each list, and then all rule sets work.
fn wait_with_incomplete_lists(timeout: &str) -> CommandOutput {
    let (_runtime, address) = serve(|request| {
        let query = request.uri().query().unwrap_or_default();
        match request.uri().path() {
            LIVE if query.contains("watch=") => quiet_watch(),
            LIVE if query.starts_with("limit=1") => complete(list_response(&[operation(1)], "")),
            LIVE => incomplete(list_response(&[], "")),
            RULE_SETS => json_response(&json!({"items": [watched_rule_set()]})),
            _ => not_found(),
        }
    });
    execute(plugin(address).args(["wait", "--timeout", timeout]))
}

#[test]
fn wait_does_not_trust_a_list_that_was_incomplete_when_it_was_read() {
    for timeout in ["0", "4s"] {
        let output = wait_with_incomplete_lists(timeout);
        assert_eq!(output.code, 3, "{timeout}: {}", output.stderr);
        assert!(
            output.stderr.contains("vm (target cannot be watched)"),
            "{timeout}: {}",
            output.stderr
        );
    }
}
