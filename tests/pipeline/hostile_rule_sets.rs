//! Test of hostile rule sets. Their expressions are invalid, or are expensive to compile or to
//! evaluate. The server must report these expressions, limit their cost, and continue to evaluate
//! other rule sets.

use crate::demo::{Demo, Folders, RULE_SETS, condition, eventually, rule_set};

/// Returns expressions that are invalid, expensive or very long.
fn hostile_expressions() -> Vec<String> {
    let nested = |open: &str, middle: &str, close: &str| {
        format!("{}{middle}{}", open.repeat(1500), close.repeat(1500))
    };
    let ten = "[0,1,2,3,4,5,6,7,8,9]";
    let exponential = |macros: &str, end: &str| {
        (0..12).fold(end.to_owned(), |inner, depth| {
            format!("{ten}.{macros}(x{depth}, {inner})")
        })
    };
    let doubling = (0..40).fold("[1]".to_owned(), |inner, depth| {
        format!("[{inner}].map(x{depth}, x{depth} + x{depth})[0]")
    });
    let text = (0..40).fold("'abcdefgh'".to_owned(), |inner, depth| {
        format!("[{inner}].map(x{depth}, x{depth} + x{depth})[0]")
    });
    let matches = |pattern: &str| format!("object.metadata.name.matches('{pattern}')");
    vec![
        nested("(", "true", ")"),
        nested("[", "1", "]") + " == 1",
        nested("{'a': ", "1", "}") + " == 1",
        format!("{}true", "!".repeat(4000)),
        format!("object{} == 1", ".a".repeat(2000)),
        format!("object{} == 1", "[0]".repeat(1300)),
        format!("{}true", "true ? ".repeat(300)) + &" : false".repeat(300),
        exponential("exists", "false"),
        exponential("all", "true"),
        format!("{}.size() > 0", exponential("map", "0")),
        format!("size({doubling}) > 0"),
        format!("size({text}) > 0"),
        format!("{text}.contains('z')"),
        matches("(((a{100}){100}){100}){100}"),
        matches(&"(a?){50}".repeat(100)),
        matches(&nested("(", "a", ")")),
        matches(&format!("[{}]", r"\\pL".repeat(500))),
        matches(&format!("({})", "a|".repeat(1500))),
        "9223372036854775807 + 1 > 0".to_owned(),
        "object.".to_owned() + &"metadata".repeat(100_000),
        format!("'{}' == ''", "x".repeat(1_000_000)),
        format!("'{}", "\\".repeat(4001)),
        "\u{0}\u{202e}}}}} = ; --".to_owned(),
        String::new(),
        "timestamp('9999-12-31T23:59:59Z') + duration('999999999h') > timestamp('x')".to_owned(),
    ]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_hostile_rule_sets_get_errors_and_do_not_affect_others() {
    let folders = Folders::new();
    folders.vm("web", "Starting");
    folders.rule_set(
        "good",
        "Starting",
        "object.status.printableStatus == 'Starting'",
    );
    let demo = Demo::start(&folders.args()).await;
    demo.wait_for_operations(&["web Starting"]).await;

    let expressions = hostile_expressions();
    let name = |number: usize| format!("hostile-{number:03}");
    for number in 0..100 {
        let expression = &expressions[number % expressions.len()];
        let text = rule_set(&name(number), "virtualmachines", "Hostile", expression);
        std::fs::write(folders.rules.join(name(number) + ".json"), text).unwrap();
    }
    // The valid rule set must detect further operations.
    folders.vm("db", "Starting");
    eventually("an operation of the valid rule set", async || {
        let operations = demo.operations().await;
        let is_expected = |operation: &serde_json::Value| {
            operation["spec"]["subject"]["name"] == "db"
                && operation["spec"]["operation"] == "Starting"
        };
        operations.iter().any(is_expected).then_some(())
    })
    .await;

    let results = eventually("a condition of each rule set", async || {
        let rule_sets = demo.items(RULE_SETS).await;
        let result = |rule_set: &serde_json::Value| -> Option<(String, String)> {
            let name = rule_set["metadata"]["name"].as_str()?.to_owned();
            let ready = condition(rule_set, "Ready")?;
            let failed = condition(rule_set, "EvaluationFailed");
            if ready["reason"] == "InvalidRule" {
                return Some((name, ready["message"].as_str()?.to_owned()));
            }
            let unknown = ["EvaluationFailed", "Throttled"];
            if ready["status"] != "True" && !unknown.iter().any(|it| ready["reason"] == *it) {
                return None;
            }
            // If no evaluation failed, there is no condition `EvaluationFailed`, so the message is
            // empty. Otherwise, the message has the reason, for example a cost that was too high.
            let message = failed.map_or("", |failed| failed["message"].as_str().unwrap_or(""));
            Some((name, message.to_owned()))
        };
        let results: Vec<_> = rule_sets.iter().filter_map(result).collect();
        let good = ("good".to_owned(), String::new());
        // The server must have stopped at least one evaluation because of its cost.
        let stopped = results
            .iter()
            .any(|(_, message)| message.contains("cost limit"));
        (results.len() == 101 && results.contains(&good) && stopped).then_some(results)
    })
    .await;
    for (name, message) in &results {
        let is_about_rule =
            message.contains("rules[Hostile].") || message.starts_with("the expressions of ");
        assert!(message.is_empty() || is_about_rule, "{name}: {message}");
        assert!(message.chars().count() <= 1024, "{name}: {message}");
    }
    // Expressions of two kinds can be harmless: many negations of a constant, and regular
    // expressions that are small enough to compile. The server must report all other expressions.
    let has_no_message = |number: usize| {
        let name = name(number);
        results
            .iter()
            .any(|(of, message)| *of == name && message.is_empty())
    };
    for (number, expression) in expressions.iter().enumerate() {
        let harmless = expression.starts_with("!!") || expression.contains(".matches(");
        assert!(
            harmless || !has_no_message(number),
            "the rule set has no message about {expression:.80}"
        );
    }

    for number in 0..100 {
        std::fs::remove_file(folders.rules.join(name(number) + ".json")).unwrap();
    }
    folders.vm("web", "Running");
    demo.wait_for_operations(&["db Starting"]).await;
    crate::assert_no_panics(&demo.log());
    let peak = crate::peak_memory(demo.id());
    assert!(peak < 256 << 20, "{} MiB at the peak", peak >> 20);
}
