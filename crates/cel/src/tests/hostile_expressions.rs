//! Tests with hostile expressions, which are deeply nested or expensive. The evaluation must return a
//! value or an error within the budget, and must not panic or overflow the stack. The fuzz target
//! `expression` does the same with random expressions.

use std::thread;

use super::*;

/// Stack size of a tokio worker thread in bytes.
const WORKER_STACK: usize = 2 << 20;

/// Calls `work` on a stack of [`WORKER_STACK`] bytes. A stack overflow would end the test process.
fn on_worker_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| {
        let thread = thread::Builder::new().stack_size(WORKER_STACK);
        let thread = thread.spawn_scoped(scope, work).unwrap();
        thread.join().unwrap()
    })
}

/// Compiles and evaluates `source` on a small stack. Returns true if `source` compiled.
fn compiles_and_evaluates(source: &str) -> bool {
    on_worker_stack(|| {
        let Ok(program) = compile_any(source) else {
            return false;
        };
        let json = br#"{"a":{"a":{"a":1}},"l":[1,2,3],"s":"text"}"#;
        let doc = Doc::parse(json, &program.projection).unwrap();
        let _ = evaluate(&program, &doc, &mut full_budget());
        true
    })
}

/// Returns `inner` between `times` repetitions of `open` and of `close`.
fn nest(open: &str, inner: &str, close: &str, times: usize) -> String {
    format!("{}{inner}{}", open.repeat(times), close.repeat(times))
}

/// Returns expressions in which one construct is repeated `times` times. The parser or the
/// evaluation recurses for each repetition.
fn shapes(times: usize) -> Vec<String> {
    vec![
        format!("1{}", "+1".repeat(times)),
        format!("1{}", " + 1".repeat(times)),
        format!("1{}", "==1".repeat(times)),
        format!("true{}", "&&true".repeat(times)),
        format!("object{}", ".a".repeat(times)),
        format!("object{}", "[0]".repeat(times)),
        format!("object{}", ".f()".repeat(times)),
        format!("'a'{}", ".size()".repeat(times)),
        format!("object{}", ".l.map(x,x)".repeat(times)),
        nest("(", "1", ")", times),
        nest("[", "", "]", times),
        nest("{1:", "1", "}", times),
        nest("!", "true", "", times),
        nest("-", "1", "", times),
        nest("- ", "1", "", times),
        nest("!(", "true", ")", times),
        nest("-(", "1", ")", times),
        nest("true?1:", "1", "", times),
        nest("true?(", "1", "):1", times),
        nest("dyn(", "1", ")", times),
        nest("type(", "1", ")", times),
        nest("1 in [", "1", "]", times),
        nest("[1].exists(x,", "true", ")", times),
        nest("[1].map(x,", "x", ")", times),
        nest("has(object.a)&&(", "true", ")", times),
        nest("object[", "0", "]", times),
        "(".repeat(times),
        "[".repeat(times),
        "{".repeat(times),
        "!".repeat(times),
        "a?".repeat(times),
        "'\\".repeat(times),
        "a.b(".repeat(times),
    ]
}

#[test]
fn deep_expressions_return_a_value_or_an_error_and_never_abort() {
    // The first length is twice the maximum length of an expression, and the second length equals
    // the maximum.
    for length in [8192, crate::compile::parse::MAX_SOURCE] {
        for shape in shapes(1) {
            let unit = shapes(2)
                .iter()
                .zip(shapes(1))
                .find_map(|(two, one)| (one == shape).then(|| two.len() - one.len()))
                .unwrap();
            let times = length / unit;
            let index = shapes(1).iter().position(|one| *one == shape).unwrap();
            let mut source = shapes(times).swap_remove(index);
            if length == crate::compile::parse::MAX_SOURCE && source.len() > length {
                source = shapes(times - shape.len().div_ceil(unit)).swap_remove(index);
                assert!(source.len() <= length);
            }
            compiles_and_evaluates(&source);
        }
    }
}

#[test]
fn the_deepest_expressions_that_compile_evaluate_on_a_worker_stack() {
    for index in 0..shapes(1).len() {
        // No source may overflow the stack, even if the source does not compile.
        let compiled = [20, 100, 124, 248, 249, 250]
            .into_iter()
            .filter(|times| compiles_and_evaluates(&shapes(*times).swap_remove(index)))
            .count();
        // The last shapes of the list, such as `((`, are never valid.
        let source = shapes(20).swap_remove(index);
        let valid = compile_any(&source).is_ok();
        assert_eq!(compiled > 0, valid, "{source}");
    }
}

#[test]
fn the_maximum_length_is_counted_in_characters() {
    let text = |characters: usize| format!("'{}'", "é".repeat(characters - 2));
    assert!(compile_any(&text(crate::compile::parse::MAX_SOURCE)).is_ok());
    let error = compile_any(&text(crate::compile::parse::MAX_SOURCE + 1)).unwrap_err();
    let expected = "expression code point size exceeds limit: size: 4097, limit 4096";
    assert_eq!(error.message, expected);
}

#[test]
fn an_exceeded_budget_is_not_absorbed_by_logical_operators() {
    let json = format!("{{\"l\":[{}1]}}", "1,".repeat(999));
    let table = "
        SPEND || true
        true && (SPEND || true)
        !(SPEND) && false
        [1].exists(x, SPEND) || true
        [1].all(x, SPEND) && false
        has({'a': SPEND}.a) || true
        (SPEND ? 1 : 2) == 1 || true
        (SPEND) == true || true
    ";
    let spend = "object.l.all(x, object.l.all(y, true))";
    exhaust_the_budget(&json, &table.replace("SPEND", spend));
}

#[test]
fn operators_charge_the_data_that_they_copy_or_read() {
    let json = format!(
        "{{\"s\":\"{}\",\"l\":[{}1]}}",
        "x".repeat(1 << 20),
        "1,".repeat(999)
    );
    exhaust_the_budget(
        &json,
        "
        object.l.map(x, object.s + object.s)
        object.l.map(x, object.l + object.l)
        object.l.all(x, object.l.map(y, y) == object.l)
        object.l.all(x, !('a' in object.l) && !('b' in object.l) && !(2 in object.l))
        !object.s.matches('(([x]?){100}z){10}')
        ",
    );
}

#[test]
fn functions_charge_their_result_before_they_build_it() {
    let long = "x".repeat(1 << 16);
    let json = format!("{{\"s\":\"{long}\",\"l\":[{}1]}}", "1,".repeat(999));
    // Without a budget, each expression would create gigabytes of data, or take as long as the
    // creation of gigabytes.
    let mut nested = "object.s".to_owned();
    for _ in 0..6 {
        nested = format!("{nested}.replace('x', 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx')");
    }
    let mut squared = "object.s".to_owned();
    for _ in 0..4 {
        squared = format!("{squared}.replace('', object.s)");
    }
    let mut doubled = "object.s".to_owned();
    let mut listed = "['a']".to_owned();
    for _ in 0..60 {
        doubled = format!("'%s%s'.format([1].map(y, {doubled}).map(x, [x, x])[0])");
        listed = format!("[{listed}].map(x, [x, x])[0]");
    }
    let table = format!(
        "
        {nested}
        {squared}
        {doubled}
        '%s'.format([{listed}])
        object.l.map(x, object.s.replace('x', object.s))
        object.l.map(x, object.s.split(''))
        object.l.map(x, object.l.map(y, object.s).join(object.s))
        "
    );
    exhaust_the_budget(&json, &table);
}

/// In the object, `most` is the largest number with 38 digits, and `long` has more digits.
#[test]
fn the_digits_of_quantities_are_limited() {
    let (long, most) = ("9".repeat(1 << 12), "9".repeat(38));
    let json = format!(r#"{{"long":"{long}","most":"{most}"}}"#);
    for (source, expected) in rows(
        r#"
        quantity('1e2147483647').compareTo(quantity('1')) => 1
        quantity('1e-2147483647')                     => "0.000000001"
        quantity('-1e99999999999').isLessThan(quantity('-1e2147483646')) => true
        quantity('1e2147483647').isInteger()          => false
        quantity('0e2147483647').asInteger()          => 0
        quantity('1e2147483647').asApproximateFloat() => "+Inf"
        quantity('1e2147483647').add(1)               => quantity has more than 38 digits
        quantity('12345678901234567890e2147483647')   => "12345678901234567890e2147483647"
        quantity(object.long)                         => quantity has more than 38 digits
        quantity(object.most).sub(1).isInteger()      => false
        quantity(object.most).add(quantity(object.most)) => quantity has more than 38 digits
        isQuantity(object.long)                       => false
        "#,
    ) {
        let text = evaluate_to_text(&json, &source, &Environment::default());
        assert!(text.contains(expected), "{source}: {text}");
    }
}

#[test]
fn chains_of_variables_have_the_depth_limit_of_one_expression() {
    let compile = |source: &str, environment: &Environment| {
        crate::compile(source, ResultKind::Any, environment)
    };
    for step in [
        "variables.NAME",
        "[variables.NAME]",
        "[variables.NAME, variables.NAME]",
    ] {
        let mut environment = Environment::default();
        let first = compile("['text']", &environment).unwrap();
        environment.declare("v0", first).unwrap();
        let mut last = 0;
        let refused = loop {
            let source = step.replace("NAME", &format!("v{last}"));
            match compile(&source, &environment) {
                Ok(program) => {
                    last += 1;
                    environment.declare(&format!("v{last}"), program).unwrap();
                }
                Err(error) => break error,
            }
        };
        assert_eq!(refused.message, "expression recursion limit exceeded: 250");
        assert!(last > 100, "{last}");
        // The deepest variable is evaluated, compared and formatted on a worker's stack. The third
        // `step` doubles the value at each level, so the evaluation exceeds the budget.
        let doubles = step.contains(',');
        let name = format!("variables.v{last}");
        for source in [
            name.clone(),
            format!("{name} == {name}"),
            format!("'%s'.format([{name}])"),
        ] {
            if compile(&source, &environment).is_ok() {
                let kind = ResultKind::Any;
                let value = Program::value;
                let evaluate = || evaluate_in("{}", &source, kind, &environment, value);
                let fault = on_worker_stack(|| evaluate().err());
                assert_eq!(
                    fault,
                    doubles.then_some(EvaluationFault::Budget),
                    "{source}"
                );
            }
        }
    }
}

#[test]
fn mutated_patterns_do_not_panic() {
    let pieces = "( ) [ ] { } [: :] [:alpha:] ^ $ . * + ? | - , \\ \\p \\pL \\Q \\E \\x \\d \\W \\b (? \
        (?i) (?P< > : a é 1 2 0 7 9 🎉";
    let pieces: Vec<&str> = pieces.split(' ').chain([" ", "\n"]).collect();
    let mut random = fastrand::Rng::with_seed(0x9e37_79b9_7f4a_7c15);
    let mut compiled = 0;
    for _ in 0..5_000 {
        let pattern: String = (0..=random.usize(0..8))
            .map(|_| pieces[random.usize(0..pieces.len())])
            .collect();
        if let Ok(pattern) = crate::regex::pattern::LiteralPatterns::default().get(&pattern) {
            compiled += 1;
            pattern.matches("aé-19 \n");
        }
    }
    assert!(compiled > 500, "only {compiled} patterns compiled");
}

#[test]
fn patterns_that_the_crate_reads_differently_are_refused() {
    for (pattern, part) in [
        ("[--a]", "[--a]"),
        ("[]-a]", "[]-a]"),
        ("[^]-a]", "[^]-a]"),
        ("[+--]", "[+--]"),
        ("[a&&b]", "[a&&b]"),
        ("[[a]]", "[a]"),
        (r"[\w-.]", r"\w"),
        ("a{02}", "{02}"),
        ("a{ 2}", "{ 2}"),
        ("a{2}{3}", "{3}"),
        ("(a{100}){11}", "{100}"),
        ("{a", "{a"),
        (r"\1", r"\1"),
        (r"\u0041", r"\u0041"),
        (r"[a-\u{62}]", r"\u{62}"),
        (r"\b{start}", r"\b{start}"),
        (r"\p{gc=L}", r"\p{gc=L}"),
        (r"\Qa\E", r"\Q"),
        ("(?u)a", "u"),
        ("(?-x:a)", "-x"),
        ("(?P<a.b>x)", "a.b"),
        ("(?P<é>x)", "é"),
        ("(?<a[0]>x)", "a[0]"),
        (r"\p{^gc=L}", r"\p{^gc=L}"),
    ] {
        let compiled = crate::regex::pattern::LiteralPatterns::default().get(pattern);
        let error = compiled.expect_err(pattern);
        assert!(error.starts_with("error parsing regexp: "), "{error}");
        assert!(error.ends_with(&format!(": `{part}`")), "{error}");
    }
}

#[test]
fn a_circumflex_in_a_unicode_class_negates_it() {
    for (pattern, text, matches) in [
        (r"^\p{^Greek}$", "a", true),
        (r"^\p{^Greek}$", "α", false),
        (r"^\P{^Greek}$", "a", false),
        (r"^\P{^Greek}$", "α", true),
        (r"^[\P{^Greek}x]$", "α", true),
        (r"^[^\p{^L}]$", "α", true),
    ] {
        assert_eq!(search(pattern, text), matches, "{pattern} in {text}");
    }
}

#[test]
fn no_match_is_between_two_bytes_of_a_character() {
    for (pattern, text, matches) in [
        (r"\B", "aéa", false),
        (r"\B", "a中a", false),
        (r"\B", "aé", true),
        (r"^\B*a$", "a", true),
        (r"é\Bé", "aéé", true),
        (r"a\Bb", "ab", true),
        (r"é\Ba", "éa", false),
        (r"^\B$", "", true),
    ] {
        assert_eq!(search(pattern, text), matches, "{pattern} in {text}");
    }
}

/// True if the text contains a match of the pattern.
fn search(pattern: &str, text: &str) -> bool {
    let compiled = crate::regex::pattern::LiteralPatterns::default().get(pattern);
    compiled.expect(pattern).matches(text)
}
