//! Tests of the generator of random expressions.

use super::expression::{Expression, ExpressionPart};
use super::random_expressions::Generator;
use crate::tests::{compile_all, whole_object};
use crate::types::Ty;
use crate::{Environment, Projection};

/// Returns the texts of the first 1,000 expressions for a seed, without the cases that have
/// variables.
fn expressions(seed: u64) -> Vec<String> {
    let object = serde_json::json!({"list": [1, 2], "map": {"a": "x"}, "text": "y", "n": null});
    let mut generator = Generator::new(seed, vec![object]);
    let cases = (0..1_000).map(|_| generator.case());
    let cases = cases.filter(|case| case.variables.is_empty());
    cases.map(|case| case.expression.to_string()).collect()
}

#[test]
fn a_seed_yields_the_same_expressions_again_and_most_of_them_compile() {
    let texts = expressions(1);
    assert_eq!(texts, expressions(1));
    assert_ne!(texts, expressions(2));
    let programs = compile_all(&texts, &Environment::default());
    let compiled: Vec<_> = programs.into_iter().flatten().collect();
    assert!(compiled.len() > 700, "only {} compile", compiled.len());
    let reads = |projection: &Projection| {
        *projection != Projection::default() && *projection != whole_object()
    };
    let reading = compiled.iter().filter(|program| reads(&program.projection));
    assert!(reading.count() > 100, "few expressions read the object");
}

#[test]
fn an_element_of_a_list_literal_can_be_a_call() {
    let mut generator = Generator::new(1, vec![serde_json::json!({"number": 1})]);
    generator.case();
    let of = Ty::List(Box::new(Ty::Int));
    let expressions = (0..10_000).map(|_| generator.typed(&of, 3));
    // Lists with optional elements are left out.
    let is_list = |part: &ExpressionPart| match part {
        ExpressionPart::Text(text) => ["[", ", ", "]"].contains(&text.as_str()),
        ExpressionPart::Child(_) => true,
    };
    let lists = expressions.filter(|it| it.0.iter().all(is_list));
    let is_call = |element: &Expression| element.to_string().contains('(');
    let with_call = lists.filter(|list| list.children().any(is_call));
    assert!(with_call.count() > 10, "few elements are calls");
}

#[test]
fn a_smaller_expression_is_made_by_one_change() {
    let children = ["object.a", "1"].map(Expression::text).into();
    let sum = Expression::filled("f($, $)", children);
    let smaller: Vec<_> = sum.smaller().iter().map(ToString::to_string).collect();
    for expected in ["object.a", "1", "0", "f(0, 1)", "f(object.a)"] {
        assert!(smaller.iter().any(|text| text == expected), "{smaller:?}");
    }
    assert!(
        smaller
            .iter()
            .all(|text| text.len() < sum.to_string().len())
    );
}
