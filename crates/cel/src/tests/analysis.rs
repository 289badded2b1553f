//! Tests the analysis of expressions, which evaluates nothing: possible results, and mistakes.

use super::*;

/// Each row has the position and the text of each possible result. The name of a variable precedes
/// the position in its expression. A `?` stands for a computed result.
#[test]
fn literals_are_found_in_each_position_that_can_be_the_result() {
    let environment = environment(&[("v", "object.v ? 'v' : 'w'"), ("m", "{'a': 'x', 'b': 'y'}")]);
    for (source, expected) in rows(
        r"
        'a'                                      => 1:1 a
        object.a == 'x' ? 'b' :\n 'c'            => 1:19 b, 2:2 c
        object.a ? 'b' : object.c ? object.d : 'e' => 1:12 b, ?, 1:40 e
        object.?a.orValue('b')                   => ?, 1:19 b
        object.?a.optMap(x, x ? 'b' : 'c').orValue('d') => 1:25 b, 1:31 c, 1:44 d
        object.?a.or(optional.of('b')).value()   => ?, 1:26 b
        ['a', object.b][object.i]                => 1:2 a, ?
        object.l.map(x, x.a ? 'b' : 'c')[0]      => 1:23 b, 1:29 c
        ['a', 'b'].filter(x, x == object.c)[0]   => 1:2 a, 1:7 b
        {'a': 'b', 'c': 'd'}[object.e]           => 1:7 b, 1:17 d
        {'a': 'b', 'c': 'd'}['c']                => 1:17 d
        {'a': 'b', 'c': 'd'}.?a.orValue('e')     => 1:7 b, 1:33 e
        variables.v                              => v:1:12 v, v:1:18 w
        variables.m[object.a]                    => m:1:7 x, m:1:17 y
        variables.m.b                            => m:1:17 y
        dyn('a')                                 => 1:4 a
        string(object.a) + '%'                   => ?
        1 + object.a                             => ?
        ",
    ) {
        let program = crate::compile(&source, ResultKind::Any, &environment).expect(&source);
        let results = program.possible_results(&environment).into_iter();
        let found = results.map(|result| {
            let Some(text) = result.text else {
                return "?".to_owned();
            };
            let variable = result.variable.map(|name| format!("{name}:"));
            let (line, column) = (result.line, result.column);
            format!("{}{line}:{column} {text}", variable.unwrap_or_default())
        });
        assert_eq!(found.collect::<Vec<_>>().join(", "), expected, "{source}");
    }
}

#[test]
fn comparisons_of_the_texts_of_times_are_found() {
    for (source, expected) in rows(
        r"
        object.metadata.creationTimestamp < '2024-01-01T00:00:00Z' => 1:35
        '2024-01' >= object.a                                 => 1:11
        object.a &&\n object.status.startTime > 'y'           => 2:26
        object.l.exists(x, x.?startedAt.orValue('') <= object.b || x.finishedAt < '') => 1:73
        object.?a.?endTime.orValue('') < 'x'                  => 1:32
        object.version < '2024'                               => none
        object.metadata.creationTimestamp < object.status.at  => none
        object.metadata.creationTimestamp == '2024-01-01T00:00:00Z' => none
        timestamp(object.startTime) < timestamp('2024-01-01T00:00:00Z') => none
        ",
    ) {
        let found = comparisons_of_time_texts(&source).expect(&source);
        let places = found.iter().map(|it| format!("{}:{}", it.line, it.column));
        let places: Vec<_> = places.collect();
        let places = if places.is_empty() {
            "none".to_owned()
        } else {
            places.join(", ")
        };
        assert_eq!(places, expected, "{source}");
    }
}
