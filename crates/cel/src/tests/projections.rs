//! Tests that an expression decodes only the fields that it reads.

use super::*;
use crate::document::projection::NeededPart;

/// The name `*` stands for every element and every member. A path that ends with `?` stands for the
/// existence of the field, whose value is not decoded.
const TABLE: &str = "
    has(object.a.b)                                => a.b?
    object.?a.?b                                   => a.b
    object.?a.b.?c.orValue(0)                      => a.b.c
    object[?'a'].?b.value()                        => a.b
    object.?a.?b.hasValue()                        => a.b?
    has(object.?a.b)                               => a.b?
    object.?a.optMap(x, x.b)                       => a.b
    object.?a.optMap(x, x.b + x.?c.orValue(1))     => a.b a.c
    object.?a.?b.optMap(x, 1)                      => a.b?
    object.?a.optFlatMap(x, x.?b).orValue(object.c.d) => a.b c.d
    object.?a.or(object.?b).value().c              => a.c b.c
    optional.of(object.a).?b.hasValue() ? object.c : 1 => a.b? c
    object.l[?0].?a                                => l.*.a
    [?object.?a, ?object.?b].map(x, x.c)           => a.c b.c
    {?'k': object.?a.b}.size()                     => a.b

    object.l.all(i, x, x.a > i)                    => l.*.a
    object.m.exists(k, v, v.a.b == k)              => m.*.a.b
    object.l.existsOne(i, x, x.a && x.b)           => l.*.a l.*.b
    object.l.transformList(i, x, x.a, x.b)         => l.*.a l.*.b
    object.l.transformList(i, x, x.a).map(a, a.b)  => l.*.a.b
    object.l.transformList(i, x, x)[0].a           => l.*.a
    object.m.transformMap(k, v, v.a)               => m.*.a
    object.m.transformMap(k, v, v.a > 1, v.b)      => m.*.a m.*.b
    object.m.transformMap(k, v, v).first.a         => m.*.a
    object.m.transformMap(k, v, v)[object.key].a   => m.*.a key
    object.m.transformMap(k, v, v).exists(k, v, v.a) => m.*.a
    object.l.transformMapEntry(i, x, {x.name: x.a}) => l.*.name l.*.a
    object.l.transformMapEntry(i, x, i > 1, {x.name: i}) => l.*.name

    object.l.first().value().a                     => l.*.a
    object.l.last().?a.orValue(1)                  => l.*.a
    object.l.first().optMap(x, x.a)                => l.*.a
    object.l.slice(0, object.n)[0].a               => l.*.a n
    object.l.slice(1, 2).map(x, x.a)               => l.*.a
    object.l.reverse().exists(x, x.a == 1)         => l.*.a
    object.l.reverse().first().value().a           => l.*.a
    object.l.sortBy(x, x.a)[0].b                   => l.*.a l.*.b
    object.l.sortBy(x, x.a).map(x, x.b.c)          => l.*.a l.*.b.c
    object.l.sortBy(x, x.a).size()                 => l.*.a
    object.l.filter(x, x.a).sortBy(x, x.b).first().value().c => l.*.a l.*.b l.*.c
    object.l.distinct().size()                     => l
    object.l.sort()[0]                             => l

    variables.vms.exists(v, v.id == 'a')           => status.vms.*.id
    variables.vms.exists(v, v.id == variables.status.percent) => status.percent status.vms.*.id
";

#[test]
fn only_the_fields_that_an_expression_reads_are_decoded() {
    let environment = environment(&[
        ("status", "object.status"),
        ("vms", "variables.status.vms"),
        ("unused", "object"),
    ]);
    for (source, paths) in rows(TABLE) {
        let program = crate::compile(&source, ResultKind::Any, &environment).unwrap();
        let mut expected = NeededPart::default();
        for path in paths.split(' ') {
            let last = match path.strip_suffix('?') {
                Some(_) => NeededPart::default(),
                None => NeededPart::whole(),
            };
            let names = path.trim_end_matches('?').split('.').rev();
            expected.merge_program(names.fold(last, |need, name| match name {
                "*" => NeededPart::every(need),
                name => NeededPart::named(name, need),
            }));
        }
        assert_eq!(program.projection().root, expected, "{source}");
    }
}

#[test]
fn a_value_whose_fields_are_read_by_name_and_by_computed_key_is_decoded_completely() {
    // If the projection kept the named path and the computed path separately, its size would double
    // at each level.
    let named = format!("object{}", ".a".repeat(60));
    let indexed = format!("object{}", "[object.k]".repeat(60));
    let program = compile_any(&format!("[{named}, {indexed}]")).unwrap();
    assert_eq!(program.projection, whole_object());
}
