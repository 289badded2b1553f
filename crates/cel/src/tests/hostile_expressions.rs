//! Tests with hostile expressions, which are deeply nested, expensive or random. The evaluation
//! must return a value or an error within the budget, and must not panic or overflow the stack.

use std::thread;

use super::same_results_as_kubernetes::Answers;
use super::*;

/// Stack size of a tokio worker thread in bytes.
const WORKER_STACK: usize = 2 << 20;

/// Compiles and evaluates `source` on a stack of [`WORKER_STACK`] bytes. Returns true if `source`
/// compiled. A stack overflow would end the test process.
fn compiles_and_evaluates(source: &str) -> bool {
    thread::scope(|scope| {
        thread::Builder::new()
            .stack_size(WORKER_STACK)
            .spawn_scoped(scope, || {
                let Ok(program) = compile_any(source) else {
                    return false;
                };
                let json = br#"{"a":{"a":{"a":1}},"l":[1,2,3],"s":"text"}"#;
                let doc = Doc::parse(json, &program.projection).unwrap();
                let _ = evaluate(&program, &doc, &mut full_budget());
                true
            })
            .unwrap()
            .join()
            .unwrap()
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
    let spend = "object.l.all(x, object.l.all(y, true))";
    for source in [
        format!("{spend} || true"),
        format!("true && ({spend} || true)"),
        format!("!({spend}) && false"),
        format!("[1].exists(x, {spend}) || true"),
        format!("[1].all(x, {spend}) && false"),
        format!("has({{'a': {spend}}}.a) || true"),
        format!("({spend} ? 1 : 2) == 1 || true"),
        format!("({spend}) == true || true"),
    ] {
        exhausts_the_budget(&json, &source);
    }
}

#[test]
fn operators_charge_the_data_that_they_copy_or_read() {
    let json = format!(
        "{{\"s\":\"{}\",\"l\":[{}1]}}",
        "x".repeat(1 << 20),
        "1,".repeat(999)
    );
    for source in [
        "object.l.map(x, object.s + object.s)",
        "object.l.map(x, object.l + object.l)",
        "object.l.all(x, object.l.map(y, y) == object.l)",
        "object.l.all(x, !('a' in object.l) && !('b' in object.l) && !(2 in object.l))",
        "!object.s.matches('(([x]?){100}z){10}')",
    ] {
        exhausts_the_budget(&json, source);
    }
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
    for source in [
        nested,
        squared,
        doubled,
        format!("'%s'.format([{listed}])"),
        "object.l.map(x, object.s.replace('x', object.s))".to_owned(),
        "object.l.map(x, object.s.split(''))".to_owned(),
        "object.l.map(x, object.l.map(y, object.s).join(object.s))".to_owned(),
    ] {
        exhausts_the_budget(&json, &source);
    }
}

#[test]
fn the_digits_of_quantities_are_limited() {
    for (source, expected) in [
        (
            "quantity('1e2147483647').compareTo(quantity('1'))",
            Ok("int:1"),
        ),
        ("quantity('1e-2147483647')", Ok("quantity:0.000000001")),
        (
            "quantity('-1e99999999999').isLessThan(quantity('-1e2147483646'))",
            Ok("bool:true"),
        ),
        ("quantity('1e2147483647').isInteger()", Ok("bool:false")),
        ("quantity('0e2147483647').asInteger()", Ok("int:0")),
        (
            "quantity('1e2147483647').asApproximateFloat()",
            Ok("double:7ff0000000000000"),
        ),
        ("quantity('1e2147483647').add(1)", Err(())),
        (
            "quantity('12345678901234567890e2147483647')",
            Ok("quantity:12345678901234567890e2147483647"),
        ),
        ("quantity(object.long)", Err(())),
        // `object.most` is the largest number with 38 digits.
        ("quantity(object.most).sub(1).isInteger()", Ok("bool:false")),
        ("quantity(object.most).add(quantity(object.most))", Err(())),
        ("isQuantity(object.long)", Ok("bool:false")),
    ] {
        let (long, most) = ("9".repeat(1 << 12), "9".repeat(38));
        let json = format!(r#"{{"long":"{long}","most":"{most}"}}"#);
        let program = compile_any(source).unwrap();
        let doc = Doc::parse(json.as_bytes(), &program.projection).unwrap();
        match (evaluate(&program, &doc, &mut full_budget()), expected) {
            (Ok(value), Ok(expected)) => assert_eq!(value, expected, "{source}"),
            (Err(EvaluationFault::Error(message)), Err(())) => {
                let message = message.text.to_string();
                let expected = "quantity has more than 38 digits";
                assert!(message.starts_with(expected), "{source}: {message}");
            }
            (outcome, _) => panic!("{source}: {outcome:?}"),
        }
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
        // The deepest variable is evaluated, compared and formatted on a worker's stack.
        let name = format!("variables.v{last}");
        thread::scope(|scope| {
            let reading = thread::Builder::new()
                .stack_size(WORKER_STACK)
                .spawn_scoped(scope, || {
                    for source in [
                        name.clone(),
                        format!("{name} == {name}"),
                        format!("'%s'.format([{name}])"),
                    ] {
                        let Ok(program) = compile(&source, &environment) else {
                            continue;
                        };
                        let doc = Doc::parse(b"{}", program.projection()).unwrap();
                        let mut budget = full_budget();
                        let mut scope =
                            EvaluationScope::new(&doc, Timestamp::UNIX_EPOCH, &mut budget);
                        scope.set_variables(&environment);
                        let outcome = program.value(&mut scope);
                        // The third `step` doubles the value at each level, so the evaluation
                        // exceeds the budget.
                        let doubles = step.contains(',');
                        assert_eq!(
                            outcome.err(),
                            doubles.then_some(EvaluationFault::Budget),
                            "{source}"
                        );
                    }
                })
                .unwrap();
            reading.join().unwrap();
        });
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

/// The texts that mutations insert into an expression.
const PIECES: &str = "( ) [ ] { } . , : ? ' \" \\ ! - + * / % == < && || object now x 1 1u 1.5 'a' null é has( \
    .map(x, .all(x, .exists_one(x, .matches( timestamp( duration( ` 9223372036854775807 \
    -9223372036854775808 .size() .join( .split( .format([ %.3f%s%x quantity(' 1.5Gi // b' r' \
    \u{0} .? [? {? .optMap(x, .optFlatMap(x, .transformList(i,x, .transformMap(i,x, \
    .transformMapEntry(i,x, .existsOne(i,x, .sortBy(x, url( ip( cidr( semver( format. sets. \
    .validate( optional. .orValue( .flatten( lists.range( .findAll( .getQuery() .slice(";

#[test]
fn mutated_expressions_neither_panic_nor_hang() {
    let answers = Answers::load();
    let object = answers.object_named("custom");
    let whole = whole_object();
    let doc = Doc::parse(object.as_bytes(), &whole).unwrap();
    let seeds = answers.expressions();
    let pieces: Vec<&str> = PIECES.split(' ').chain([" in ", "\n"]).collect();
    let mut random = fastrand::Rng::with_seed(0x2545_f491_4f6c_dd1d);
    let mut sources = Vec::new();
    for _ in 0..4_000 {
        let seed = seeds[random.usize(0..seeds.len())];
        let mut text: Vec<char> = seed.chars().take(300).collect();
        for _ in 0..=random.usize(0..3) {
            let at = random.usize(0..=text.len());
            match random.usize(0..4) {
                0 if at < text.len() => {
                    text.remove(at);
                }
                1 => {
                    let other: Vec<char> = seeds[random.usize(0..seeds.len())].chars().collect();
                    let from = random.usize(0..other.len());
                    let to = (from + random.usize(0..12)).min(other.len());
                    text.splice(at..at, other[from..to].iter().copied());
                }
                2 if at < text.len() => text.truncate(at),
                _ => {
                    let piece = pieces[random.usize(0..pieces.len())];
                    text.splice(at..at, piece.chars());
                }
            }
        }
        sources.push(text.into_iter().collect::<String>());
    }
    let mut compiled = 0;
    for (source, program) in sources
        .iter()
        .zip(compile_all(&sources, &Environment::default()))
    {
        if let Ok(program) = program {
            compiled += 1;
            let projected = Doc::parse(object.as_bytes(), &program.projection).unwrap();
            let expected = evaluate(&program, &doc, &mut full_budget());
            assert_eq!(
                evaluate(&program, &projected, &mut full_budget()),
                expected,
                "{source}"
            );
        }
    }
    assert!(compiled > 300, "only {compiled} expressions compiled");
}
