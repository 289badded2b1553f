//! Tests that an expression decodes only the fields that it reads.

use super::*;

/// Returns the projection that contains the given paths, such as `list.*.name`. The name `*` stands
/// for every element and every member.
fn paths(paths: &[&str]) -> Projection {
    let mut projection = Projection::default();
    for path in paths {
        projection.add(&path.split('.').collect::<Vec<_>>());
    }
    projection
}

#[test]
fn optionals_read_only_the_selected_fields() {
    for (source, expected) in [
        ("object.?a.?b", &["a.b"][..]),
        ("object.?a.b.?c.orValue(0)", &["a.b.c"]),
        ("object[?'a'].?b.value()", &["a.b"]),
        ("object.?a.optMap(x, x.b)", &["a.b"]),
        (
            "object.?a.optMap(x, x.b + x.?c.orValue(1))",
            &["a.b", "a.c"],
        ),
        ("object.?a.optMap(x, 1)", &["a"]),
        (
            "object.?a.optFlatMap(x, x.?b).orValue(object.c.d)",
            &["a.b", "c.d"],
        ),
        ("object.?a.or(object.?b).value().c", &["a.c", "b.c"]),
        (
            "optional.of(object.a).?b.hasValue() ? object.c : 1",
            &["a.b", "c"],
        ),
        ("object.l[?0].?a", &["l.*.a"]),
        ("[?object.?a, ?object.?b].map(x, x.c)", &["a.c", "b.c"]),
        ("{?'k': object.?a.b}.size()", &["a.b"]),
    ] {
        let program = compile_any(source).unwrap();
        let mut expected = paths(expected);
        if source.contains("optMap(x, 1)") {
            expected = compile_any("has(object.a)").unwrap().projection;
        }
        if source.contains("hasValue") {
            expected = compile_any("has(object.a.b) ? object.c : 1")
                .unwrap()
                .projection;
        }
        assert_eq!(program.projection, expected, "{source}");
    }
    let test = compile_any("has(object.a.b)").unwrap().projection;
    for source in [
        "object.?a.?b.hasValue()",
        "has(object.?a.b)",
        "object.?a.?b.optMap(x, 1)",
    ] {
        assert_eq!(compile_any(source).unwrap().projection, test, "{source}");
    }
}

#[test]
fn comprehensions_with_two_variables_read_only_the_selected_fields() {
    for (source, expected) in [
        ("object.l.all(i, x, x.a > i)", &["l.*.a"][..]),
        ("object.m.exists(k, v, v.a.b == k)", &["m.*.a.b"]),
        ("object.l.existsOne(i, x, x.a && x.b)", &["l.*.a", "l.*.b"]),
        (
            "object.l.transformList(i, x, x.a, x.b)",
            &["l.*.a", "l.*.b"],
        ),
        (
            "object.l.transformList(i, x, x.a).map(a, a.b)",
            &["l.*.a.b"],
        ),
        ("object.l.transformList(i, x, x)[0].a", &["l.*.a"]),
        ("object.m.transformMap(k, v, v.a)", &["m.*.a"]),
        (
            "object.m.transformMap(k, v, v.a > 1, v.b)",
            &["m.*.a", "m.*.b"],
        ),
        ("object.m.transformMap(k, v, v).first.a", &["m.*.a"]),
        (
            "object.m.transformMap(k, v, v)[object.key].a",
            &["m.*.a", "key"],
        ),
        (
            "object.m.transformMap(k, v, v).exists(k, v, v.a)",
            &["m.*.a"],
        ),
        (
            "object.l.transformMapEntry(i, x, {x.name: x.a})",
            &["l.*.name", "l.*.a"],
        ),
        (
            "object.l.transformMapEntry(i, x, i > 1, {x.name: i})",
            &["l.*.name"],
        ),
    ] {
        let program = compile_any(source).unwrap();
        assert_eq!(program.projection, paths(expected), "{source}");
    }
}

#[test]
fn functions_that_return_elements_read_only_the_selected_fields() {
    for (source, expected) in [
        ("object.l.first().value().a", &["l.*.a"][..]),
        ("object.l.last().?a.orValue(1)", &["l.*.a"]),
        ("object.l.first().optMap(x, x.a)", &["l.*.a"]),
        ("object.l.slice(0, object.n)[0].a", &["l.*.a", "n"]),
        ("object.l.slice(1, 2).map(x, x.a)", &["l.*.a"]),
        ("object.l.reverse().exists(x, x.a == 1)", &["l.*.a"]),
        ("object.l.reverse().first().value().a", &["l.*.a"]),
        ("object.l.sortBy(x, x.a)[0].b", &["l.*.a", "l.*.b"]),
        (
            "object.l.sortBy(x, x.a).map(x, x.b.c)",
            &["l.*.a", "l.*.b.c"],
        ),
        ("object.l.sortBy(x, x.a).size()", &["l.*.a"]),
        (
            "object.l.filter(x, x.a).sortBy(x, x.b).first().value().c",
            &["l.*.a", "l.*.b", "l.*.c"],
        ),
        ("object.l.distinct().size()", &["l"]),
        ("object.l.sort()[0]", &["l"]),
    ] {
        let program = compile_any(source).unwrap();
        assert_eq!(program.projection, paths(expected), "{source}");
    }
}
