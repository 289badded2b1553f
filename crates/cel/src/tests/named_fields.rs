//! Tests of the list of the fields that an expression names.

use crate::*;

#[test]
fn reads_that_exclude_objects_are_told_from_reads_that_are_needed() {
    for (source, needed, excluding, guarded) in [
        ("object.a == 'x' && !object.b.c", "a", "b c", ""),
        ("object.a != 'x' || object.b == ''", "", "a b", ""),
        ("object.a != '' && object.n == 0", "a", "n", ""),
        ("has(object.a) && !has(object.b.c)", "a", "b c", "a c"),
        (
            "!object.?a.?b.orValue(false) && object.?c.d == optional.of(1)",
            "c d",
            "a b",
            "a b c d",
        ),
        (
            "!object.l.exists(e, e.t == 'x' && e.r != 'y')",
            "r",
            "l t",
            "",
        ),
        ("object.a ? false : object.b", "b", "a", ""),
        ("!(!object.a)", "a", "", ""),
    ] {
        let found = fields(source, &NameOrigins::default());
        let found = found.expect("the test has no syntax error");
        let names = |wanted: &dyn Fn(&NamedField) -> bool| {
            let named = found.named.iter().filter(|field| wanted(field));
            let names = named.map(|field| match field.path.last() {
                Some(PathStep::Field(name)) => name.as_str(),
                _ => "",
            });
            names.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&|it| !it.is_exclusion), needed, "{source}");
        assert_eq!(names(&|it| it.is_exclusion), excluding, "{source}");
        assert_eq!(names(&|it| it.is_guarded), guarded, "{source}");
    }
    let found = fields("variables.a && !variables.b", &NameOrigins::default());
    let variables = found.expect("the test has no syntax error").variables;
    let variables: Vec<_> = variables
        .iter()
        .map(|it| (&*it.name, it.is_exclusion))
        .collect();
    assert_eq!(variables, [("a", false), ("b", true)]);
}

/// Returns the position and path of each field selection, as text.
fn selections(source: &str, origins: &NameOrigins) -> Vec<String> {
    let fields = fields(source, origins).expect("the test has no syntax error");
    let describe = |field: &NamedField| {
        let path: String = field
            .path
            .iter()
            .map(|step| match step {
                PathStep::Field(name) => format!(".{name}"),
                PathStep::Index => "[]".to_owned(),
                PathStep::Each => "[*]".to_owned(),
            })
            .collect();
        format!("{}:{} {path}", field.line, field.column)
    };
    fields.named.iter().map(describe).collect()
}

#[test]
fn each_field_selection_is_reported_with_its_position() {
    let none = NameOrigins::default();
    assert_eq!(
        selections("has(object.a.b) &&\n  object.a['c'] == 'a'", &none),
        ["1:12 .a", "1:14 .a.b", "2:10 .a", "2:13 .a.c"]
    );
    assert_eq!(
        selections("object.list[0].x + object.map[object.key].y", &none),
        [
            "1:8 .list",
            "1:16 .list[].x",
            "1:27 .map",
            "1:38 .key",
            "1:43 .map[].y"
        ]
    );
    assert_eq!(
        selections("{'a': 1}.a == [1].size()", &none),
        Vec::<String>::new()
    );
}

#[test]
fn optional_fields_are_reported_like_other_fields() {
    let none = NameOrigins::default();
    for (source, expected) in [
        (
            "object.?a.?b.c",
            &["1:9 .a", "1:12 .a.b", "1:14 .a.b.c"][..],
        ),
        ("has(object.?a.b)", &["1:13 .a", "1:15 .a.b"]),
        ("object[?'a'].?b", &["1:10 .a", "1:15 .a.b"]),
        ("object.l[?0].?x", &["1:8 .l", "1:15 .l[].x"]),
        (
            "[?object.?a, ?object.?b][0].c",
            &["1:11 .a", "1:23 .b", "1:29 .a.c", "1:29 .b.c"],
        ),
        ("{?'k': object.?a}", &["1:16 .a"]),
        (
            "object.?a.optMap(x, x.b + x.?c.orValue(1))",
            &["1:9 .a", "1:23 .a.b", "1:30 .a.c"],
        ),
        (
            "object.?a.optMap(x, x.b).value().c",
            &["1:9 .a", "1:23 .a.b", "1:34 .a.b.c"],
        ),
        (
            "object.?a.optFlatMap(x, x.?b).?c",
            &["1:9 .a", "1:28 .a.b", "1:32 .a.b.c"],
        ),
        (
            "object.?a.or(object.?b).value().c",
            &["1:9 .a", "1:22 .b", "1:33 .a.c", "1:33 .b.c"],
        ),
        (
            "object.?a.orValue(object.b).c",
            &["1:9 .a", "1:26 .b", "1:29 .a.c", "1:29 .b.c"],
        ),
        ("optional.of(object.a).?b", &["1:20 .a", "1:24 .a.b"]),
        (
            "optional.ofNonZeroValue(object.a).value().b",
            &["1:32 .a", "1:43 .a.b"],
        ),
    ] {
        assert_eq!(selections(source, &none), expected, "{source}");
    }
}

#[test]
fn field_selections_are_followed_through_the_macros_with_two_variables() {
    let none = NameOrigins::default();
    for (source, expected) in [
        (
            "object.l.all(i, e, e.a > i)",
            &["1:8 .l", "1:22 .l[].a"][..],
        ),
        (
            "object.m.exists(k, v, v.a == k)",
            &["1:8 .m", "1:25 .m[].a"],
        ),
        (
            "object.l.existsOne(i, e, e.a && has(e.b))",
            &["1:8 .l", "1:28 .l[].a", "1:39 .l[].b"],
        ),
        ("object.l.exists_one(i, e, e.a)", &["1:8 .l", "1:29 .l[].a"]),
        (
            "object.l.transformList(i, e, e.a, e.b).map(b, b.c)",
            &["1:8 .l", "1:32 .l[].a", "1:37 .l[].b", "1:49 .l[].b.c"],
        ),
        (
            "object.m.transformMap(k, v, v.a)['k'].b",
            &["1:8 .m", "1:31 .m[].a"],
        ),
        (
            "object.m.transformMapEntry(k, v, v.a, {v.b: v.c})",
            &["1:8 .m", "1:36 .m[].a", "1:42 .m[].b", "1:47 .m[].c"],
        ),
        (
            "object.l.sortBy(e, e.a)[0].b",
            &["1:8 .l", "1:22 .l[*].a", "1:28 .l[].b"],
        ),
        ("object.l.first().?a", &["1:8 .l", "1:19 .l[].a"]),
        ("object.l.last().value().a", &["1:8 .l", "1:25 .l[].a"]),
        (
            "object.l.slice(0, object.n).reverse().exists(e, e.a)",
            &["1:8 .l", "1:26 .n", "1:51 .l[*].a"],
        ),
    ] {
        assert_eq!(selections(source, &none), expected, "{source}");
    }
}

#[test]
fn field_selections_are_followed_through_variables() {
    let none = NameOrigins::default();
    assert_eq!(
        selections("object.l.filter(e, e.a).map(e, e.b).exists(b, b.c)", &none),
        ["1:8 .l", "1:22 .l[*].a", "1:34 .l[*].b", "1:49 .l[*].b.c"]
    );
    assert_eq!(
        selections("object.a.exists(object, object.b) && object.c", &none),
        ["1:8 .a", "1:32 .a[*].b", "1:45 .c"]
    );
    let list = fields("[object.a] + object.b", &none).expect("the test has no syntax error");
    let origins = NameOrigins {
        item: list.origin.elements(),
        variables: vec![("v".to_owned(), list.origin)],
    };
    assert_eq!(
        selections("item.x == variables.v[0].y", &origins),
        ["1:6 .a.x", "1:6 .b[*].x", "1:26 .a.y", "1:26 .b[].y"]
    );
}
