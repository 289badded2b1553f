//! Tests of the hints for compile errors.

use super::*;

#[test]
fn frequent_mistakes_have_a_hint() {
    for (source, hint) in rows(
        r#"
        object.spec.paused = true             => write `==`
        object.a = 'b' && object.c == 1       => write `==`
        object.a === 'b'                      => write `==`
        object.a & object.b                   => write `&&`
        object.a | object.b                   => write `||`
        object.a and object.b                 => write `&&`
        object.a == 'x' or object.b == 'y'    => write `||`
        not object.a                          => write `!`
        Blocked                               => inside the YAML quotes: "'Blocked'"
        Copying the disk, please wait         => "'Copying the disk, please wait'"
        Waiting for the node!                 => "'Waiting for the node!'"
        Waiting for the node's disk (slow)    => quotes inside the YAML
        Copied object.status.done volumes     => Join strings and values
        object.status.phase == Running        => a string needs quotes: 'Running'
        request.object.spec == 1              => no admission request. Use `object`
        oldObject.spec != object.spec         => no admission request
        has(params.x)                         => no admission request
        namespaceObject.metadata.name == 'a'  => no admission request
        authorizer.group('')                  => no admission request
        self.spec.x == 1                      => the watched object is `object`
        cel.bind(x, object.a, x)              => Declare a variable
        math.greatest(1, 2) == 2              => [a, b].max()
        base64.decode(object.a)               => `base64` is not in Kubernetes
        now() > timestamp(object.a)           => `now` is a value
        item.name                             => only in a rule with `forEach`
        object.name.startswith('a')           => `startsWith`
        object.name.toLowerCase() == 'a'      => `lowerAscii`
        len(object.list) == 1                 => `size`
        objct.name == 'a'                     => `object`
        variables.x == 1                      => list `variables`
        has(object)                           => `has` takes the selection of a field
        'a' + 1                               => string(…)
        size(object.a) + ' of 3'              => string(…)
        string(object.a) < now                => timestamp(…)
        string(object.a) > duration('1s')     => duration(…)
        string(object.a) == 1                 => int(…)
        string(object.a) == true              => without quotes
        size(object.a) * 1.5                  => double(…) or int(…)
        now - 60                              => duration(string(…) + 's')
        quantity(object.a) > quantity('1Gi')  => isGreaterThan
        duration('10 min') > duration('1s')   => '10m'
        now > timestamp('yesterday')          => 2026-01-31T12:00:00Z
        "#,
    ) {
        assert_hint(&source, ResultKind::Any, hint);
    }
}

#[track_caller]
fn assert_hint(source: &str, kind: ResultKind, hint: &str) {
    let error = compile(source, kind).expect_err(source);
    let found = error.hint.as_deref().unwrap_or_default();
    assert!(found.contains(hint), "{source}: {error}: {found:?}");
}

#[test]
fn a_result_of_a_wrong_type_has_a_hint() {
    for (source, kind, hint) in [
        ("1", ResultKind::String, "string(…)"),
        ("'a'", ResultKind::Bool, "compare the value"),
        ("'10m'", ResultKind::Duration, "duration(…)"),
        (
            "size(object.a)",
            ResultKind::Duration,
            "duration(string(…) + 's')",
        ),
        ("60", ResultKind::Duration, "30m or 1h30m"),
        ("1mo", ResultKind::Duration, "30m or 1h30m"),
        ("1h30", ResultKind::Duration, "30m or 1h30m"),
        ("30 Minuten", ResultKind::Duration, "30m or 1h30m"),
        ("five minutes", ResultKind::Duration, "30m or 1h30m"),
        ("-5m", ResultKind::Duration, "30m or 1h30m"),
        ("'1Gi'", ResultKind::Amount, "quantity(…)"),
        ("'kubectl x'", ResultKind::Strings, "['kubectl', 'delete',"),
        (
            "string(object.node)",
            ResultKind::Strings,
            "put the string into a list",
        ),
        ("true", ResultKind::String, "? 'Succeeded' : 'Failed'"),
        ("object.?a", ResultKind::String, "orValue"),
    ] {
        assert_hint(source, kind, hint);
    }
}

#[test]
fn other_errors_have_no_hint() {
    for source in ["object.a ==", "[1, 2", "object.xyzzy()", "1 + true"] {
        let error = compile(source, ResultKind::Any);
        assert_eq!(error.expect_err(source).hint, None, "{source}");
    }
}

#[test]
fn the_excerpt_marks_the_position() {
    let source = "object.a == 1 &&\n  object.b = 'ü'";
    let error = compile(source, ResultKind::Any);
    let error = error.expect_err(source);
    assert_eq!(error.excerpt(source), "  object.b = 'ü'\n           ^");
    let source = "\u{1F389} && object.ä";
    let error = compile(source, ResultKind::Any);
    let error = error.expect_err(source);
    assert!(error.excerpt(source).ends_with('^'));
    let long = format!("{} = 1", "object.aa + ".repeat(30));
    let error = compile(&long, ResultKind::Any);
    let error = error.expect_err("`=` is no operator");
    let excerpt = error.excerpt(&long);
    let lines: Vec<&str> = excerpt.lines().collect();
    assert!(lines[0].chars().count() <= 82, "{excerpt}");
    let at = lines[1].chars().count() - 1;
    assert!(
        lines[0].chars().skip(at).take(2).any(|c| c == '='),
        "{excerpt}"
    );
}
