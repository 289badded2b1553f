//! Tests that the cost of each CEL function grows with the size of its arguments and of its result.
//! The cost is a number of steps, which the evaluation takes from its budget. The README describes
//! the costs in the section "Evaluate within a budget".

use super::*;
use crate::library::{Function, Overload};
use crate::types::Ty;
use crate::value::{Bytes, Text};

/// The large arguments are this many times as large as the small arguments.
const FACTOR: usize = 64;

/// The size of the small arguments: bytes of a text, or elements of a list.
const SMALL: usize = 64;

/// Returns the overloads of all functions, with the names of the functions.
fn functions() -> Vec<(&'static str, &'static Overload)> {
    let with_overloads = |function: &'static Function| {
        let overloads = function.overloads.iter();
        overloads.map(|overload| (function.name, overload))
    };
    Function::all().flat_map(with_overloads).collect()
}

/// Returns an expression of the type `wanted`, for an argument of the function `name`. A text, a
/// list, a map, a URL or a semantic version comes from a field of [`object`] and is as large as
/// this field.
fn argument(name: &str, wanted: &Ty) -> String {
    match wanted {
        Ty::A | Ty::B | Ty::Dyn | Ty::String => text_for(name),
        Ty::Bool => "true".to_owned(),
        Ty::Int => "object.int".to_owned(),
        Ty::Uint => "3u".to_owned(),
        Ty::Double => "3.5".to_owned(),
        Ty::Bytes => "bytes(object.text)".to_owned(),
        Ty::Duration => "duration('1h')".to_owned(),
        Ty::Timestamp => "timestamp('2024-02-29T12:00:00Z')".to_owned(),
        Ty::Quantity => "quantity('1.5Gi')".to_owned(),
        Ty::Url => "url(object.url)".to_owned(),
        Ty::Ip => "ip('10.0.0.1')".to_owned(),
        Ty::Cidr => "cidr('10.0.0.0/8')".to_owned(),
        Ty::Semver => "semver(object.semver)".to_owned(),
        Ty::NamedFormat => "format.byte()".to_owned(),
        Ty::Type(_) => "int".to_owned(),
        Ty::List(of) => match &**of {
            Ty::String | Ty::A | Ty::Dyn => "object.texts".to_owned(),
            Ty::Int => "object.ints".to_owned(),
            Ty::Double => "object.doubles".to_owned(),
            Ty::Bool => "object.bools".to_owned(),
            Ty::List(_) => "object.lists".to_owned(),
            Ty::Optional(_) => "object.texts.map(x, optional.of(x))".to_owned(),
            of => format!("object.texts.map(x, {})", argument(name, of)),
        },
        Ty::Map(..) => "object.map".to_owned(),
        Ty::Optional(of) => format!("optional.of({})", argument(name, of)),
        Ty::Error | Ty::Unknown | Ty::Null | Ty::Schema(_) => panic!("{wanted} is no parameter"),
    }
}

/// Returns a field of [`object`] whose text the function `name` reads to the end. For example,
/// `int` stops at the first letter. So the text for `int` consists of zeros.
fn text_for(name: &str) -> String {
    let field = match name {
        "int" | "uint" | "double" | "quantity" | "isQuantity" => "zeros",
        "url" | "isURL" => "url",
        "semver" | "isSemver" => "semver",
        _ => "text",
    };
    format!("object.{field}")
}

/// Returns an object whose long texts have about `size` bytes, and whose lists and maps have `size`
/// elements.
fn object(size: usize) -> String {
    let list = |element: &str| format!("[{}]", vec![element; size].join(","));
    let members: Vec<_> = (0..size).map(|at| format!("\"{at}\":{at}")).collect();
    let tail = "a".repeat(size);
    format!(
        r#"{{"int":3,"letter":"a","text":"{tail}","zeros":"{}","url":"https://h/?{}","semver":"1.2.3-{tail}",
            "texts":{},"ints":{},"doubles":{},"bools":{},"lists":{},"map":{{{}}}}}"#,
        "0".repeat(size),
        "&a=b".repeat(size / 4),
        list("\"a\""),
        list("1"),
        list("1.5"),
        list("true"),
        list("[1]"),
        members.join(","),
    )
}

/// The cost of a call, and the size of its result.
struct Call {
    steps: u64,
    /// The least number of steps for creating the result. If the result is a part of the document,
    /// this number is 0.
    creation_steps: u64,
    is_value: bool,
}

/// Evaluates a call of the function `name`. Returns the source of the call, and its cost without
/// the cost of the arguments.
fn call<'d>(name: &str, overload: &Overload, doc: &'d Doc<'d>) -> (String, Call) {
    let args = overload.args.iter();
    let mut args: Vec<_> = args.map(|wanted| argument(name, wanted)).collect();
    if matches!(name, "matches" | "find" | "findAll") {
        // The pattern is short, so that nearly all of the cost is for the text.
        args[1] = "object.letter".to_owned();
    }
    let source = match &*args {
        [receiver, args @ ..] if overload.is_member => {
            format!("{receiver}.{name}({})", args.join(", "))
        }
        args => format!("{name}({})", args.join(", ")),
    };
    let run = |source: &str| {
        let program = compile_any(source).unwrap_or_else(|error| panic!("{source}: {error}"));
        let mut budget = Budget { left: u64::MAX };
        let mut scope = EvaluationScope::new(doc, Timestamp::UNIX_EPOCH, &mut budget);
        let value = Context::new(&mut scope, &program).eval(&program.op);
        let creation_steps = value.as_ref().map_or(0, creation_steps);
        let is_value = value.is_ok();
        (u64::MAX - budget.left, creation_steps, is_value)
    };
    let (steps, creation_steps, is_value) = run(&source);
    let arguments: u64 = args.iter().map(|arg| run(arg).0).sum();
    let call = Call {
        steps: steps.saturating_sub(arguments),
        creation_steps,
        is_value,
    };
    (source, call)
}

/// Returns the least number of steps for creating `value`, as the README describes. Parts that are
/// borrowed from the document need no steps.
fn creation_steps(value: &V<'_>) -> u64 {
    match value {
        V::Str(Text::Own(text)) => steps(text.len(), 64),
        V::Bytes(Bytes::Own(bytes)) => steps(bytes.len(), 64),
        V::Optional(Some(value)) => creation_steps(value),
        V::List(items) => steps(items.len(), 1),
        V::Map(entries) => steps(entries.len(), 1),
        _ => 0,
    }
}

/// Returns true for a function that does not read its arguments to their end. The comments in the
/// list give the reasons.
fn reads_little(name: &str, overload: &Overload) -> bool {
    let names = [
        // The function reads the length, or an element at an index.
        "size",
        "slice",
        "charAt",
        "first",
        "last",
        // The function returns or wraps its argument.
        "type",
        "dyn",
        "or",
        "orValue",
        "value",
        "hasValue",
        "optional.of",
        "optional.ofNonZeroValue",
        // The function looks up the name in a small table.
        "format.named",
        // In most calls, the first comparison finds a match, because both arguments are equal.
        "sets.intersects",
        "indexOf",
        "lastIndexOf",
        // The format text has no clause such as `%s`. So the function does not read the list.
        "format",
    ];
    let is_same = matches!(&*overload.args, [Ty::String | Ty::Bytes]);
    names.contains(&name) || (matches!(name, "string" | "bytes") && is_same)
}

/// Returns the least number of steps for reading an argument of `size` bytes or elements.
fn read_steps(wanted: &Ty, size: usize) -> u64 {
    match wanted {
        Ty::String | Ty::Bytes | Ty::Url | Ty::Semver => steps(size, 1024),
        Ty::List(_) => steps(size, 16),
        _ => 0,
    }
}

#[test]
fn the_cost_of_each_function_grows_with_its_arguments_and_its_result() {
    let mut wrong = Vec::new();
    let mut with_value = 0;
    let objects = [SMALL, SMALL * FACTOR].map(|size| (size, object(size)));
    let docs = objects.each_ref().map(|(size, json)| {
        let doc = Doc::parse(json.as_bytes(), &whole_object());
        (*size, doc.unwrap())
    });
    for (name, overload) in functions() {
        for (size, doc) in &docs {
            let (source, call) = call(name, overload, doc);
            let args = overload.args.iter();
            // A search in a text reads both texts at the same time. So only the argument that needs
            // the most steps counts.
            let read = args.map(|arg| read_steps(arg, *size)).max();
            let read = read.filter(|_| !reads_little(name, overload));
            let least = call.creation_steps.max(read.unwrap_or_default());
            if call.steps < least {
                let found = call.steps;
                wrong.push(format!(
                    "{source}: {found} steps instead of {least} or more"
                ));
            }
            with_value += usize::from(call.is_value);
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        with_value > 300,
        "only {with_value} calls return a value instead of an error"
    );
}

#[test]
fn a_huge_result_ends_with_an_exhausted_budget() {
    let numbers: Vec<_> = (0..30_000).map(|at| at.to_string()).collect();
    let json = format!(
        r#"{{"list":[{}1],"numbers":[{}],"text":"{}","url":"https://h/?{}"}}"#,
        "1,".repeat(999),
        numbers.join(","),
        "x".repeat(1 << 20),
        "&a=b".repeat(1 << 16),
    );
    exhaust_the_budget(
        &json,
        "
        lists.range(9223372036854775807)
        lists.range(100001)
        lists.range(object.list.size() * 1000000000000)
        object.list.map(x, object.list).map(x, object.list.map(y, x)).flatten(9223372036854775807)
        lists.range(50000).flatten(9223372036854775807) + lists.range(50000)
        lists.range(1000).transformMapEntry(i, x, {x: lists.range(1000)})
        object.list.transformMapEntry(i, x, object.list.transformMapEntry(j, y, {i * 1000 + j: y}))
        object.numbers.transformMapEntry(i, x, {x: x})
        object.list.transformMap(i, x, object.list.transformList(j, y, i * j))
        object.text.findAll('')
        object.text.findAll('' + '')
        object.list.map(x, object.text.find('y'))
        object.numbers.distinct()
        sets.equivalent(object.numbers, object.numbers)
        sets.intersects(object.numbers, object.numbers.map(x, -1 - x))
        object.list.map(x, object.numbers.sort())
        object.list.map(x, object.numbers.sortBy(y, -y))
        object.list.map(x, object.numbers.reverse())
        object.list.map(x, object.numbers.slice(0, 20000))
        object.list.map(x, url(object.url))
        object.list.map(x, url(object.url).getQuery())
        [url(object.url)].map(u, object.list.map(x, u.getQuery()))
        object.list.map(x, optional.unwrap(object.numbers.map(y, optional.of(y))))
        object.list.map(x, strings.quote(object.text))
        object.list.map(x, semver('1.2.3-' + object.text))
        object.list.map(x, format.uri().validate(object.text))
        ",
    );
}

#[test]
fn long_texts_that_are_converted_or_compared_as_keys_are_charged() {
    let long = "0".repeat(1 << 16);
    let json = format!(
        r#"{{"list":[{}1],"zeros":"{long}","map":{{"{long}":1}}}}"#,
        "1,".repeat(9_999)
    );
    exhaust_the_budget(
        &json,
        "
        object.list.all(x, int(object.zeros) == 0)
        object.list.all(x, uint(object.zeros) == 0u)
        object.list.all(x, double(object.zeros) == 0.0)
        object.list.all(x, !bool(object.zeros) || true)
        object.list.all(x, duration(object.zeros) == null || true)
        object.list.all(x, timestamp(object.zeros) == null || true)
        object.list.all(x, timestamp(0).getHours(object.zeros) == 0 || true)
        object.list.all(x, object.map[object.zeros] == 1)
        object.list.all(x, object.zeros in object.map)
        object.list.all(x, {object.zeros: 1}[object.zeros] == 1)
        object.list.all(x, object.zeros in {object.zeros: 1})
        object.list.all(x, {object.zeros: 1, object.zeros: 2}.size() == 1)
        [object.list.transformMap(i, x, x)].all(m, object.list.all(x, has(m.a) || true))
        [object.list.transformMap(i, x, x)].all(m, object.list.all(x, m.a == 1 || true))
        [object.list.transformMap(i, x, x)].all(m, object.list.all(x, m.?a.hasValue() || true))
        [object.list.transformMap(i, x, x)].all(m, object.list.all(x, m[?0].hasValue() || true))
        object.list.transformMapEntry(i, x, {object.zeros + string(i): x}).size() > 0
        ",
    );
}
