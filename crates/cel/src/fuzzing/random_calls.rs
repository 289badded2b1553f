//! Random calls of functions and operators.

use super::expression::{Expression, call_expression};
use super::operands::{self, texts};
use super::random_expressions::{Generator, NamedOverload};
use crate::types::Ty;

impl Generator {
    /// Returns a call of a function or operator that returns the type `ty`.
    pub(super) fn call(&mut self, ty: &Ty, depth: usize) -> Expression {
        let mut fitting: Vec<(NamedOverload, [Option<Ty>; 2])> = Vec::new();
        for signature in &self.signatures {
            let mut bound = [None, None];
            if returns(&signature.1.result, ty, &mut bound) {
                fitting.push((*signature, bound));
            }
        }
        // The generator chooses a name first, and then one of its overloads. Operators have many
        // overloads. With a direct choice of an overload, most calls would be calls of operators.
        let mut names: Vec<_> = fitting.iter().map(|((name, _), _)| *name).collect();
        names.dedup();
        if names.is_empty() {
            return self.leaf(ty, depth);
        }
        let name = *self.random.pick(&names);
        fitting.retain(|((own, _), _)| *own == name);
        let ((_, overload), mut bound) = self.random.pick(&fitting).clone();
        if name == "format" {
            return self.format(depth);
        }
        let mut args = Vec::new();
        if overload
            .args
            .iter()
            .any(|wanted| matches!(wanted.optional_value().unwrap_or(wanted), Ty::Map(..)))
        {
            bound[0].get_or_insert_with(|| self.key_ty());
        }
        for (index, wanted) in overload.args.iter().enumerate() {
            let pool = texts_for(name, index);
            if matches!(wanted, Ty::String) && !pool.is_empty() && !self.random.one_in(4) {
                args.push(Expression::text(format!(
                    "'{}'",
                    self.random.pick(&texts(pool))
                )));
            } else if name == "lists.range" || (matches!(wanted, Ty::Int) && self.random.one_in(2))
            {
                // Kubernetes makes the whole list of `lists.range` before it checks its cost limit.
                // So the argument must be a small number.
                let small = texts(operands::SMALL_INTS);
                args.push(Expression::text(*self.random.pick(&small)));
            } else {
                let ty = self.instance(wanted, &mut bound);
                args.push(self.expression(&ty, depth));
            }
        }
        call_expression(name, overload.is_member, args)
    }

    /// Returns the type of an argument for the parameter `wanted` of an overload. `bound` contains
    /// the types of the type parameters `A` and `B`. A type parameter that has no type yet gets a
    /// random type.
    fn instance(&mut self, wanted: &Ty, bound: &mut [Option<Ty>; 2]) -> Ty {
        match wanted {
            Ty::A => bound[0].get_or_insert_with(|| self.ty(1)).clone(),
            Ty::B => bound[1].get_or_insert_with(|| self.ty(1)).clone(),
            Ty::Map(key, value) => {
                let key = self.instance(key, bound);
                Ty::map(key, self.instance(value, bound))
            }
            Ty::List(of) => Ty::list(self.instance(of, bound)),
            Ty::Optional(of) => Ty::optional(self.instance(of, bound)),
            Ty::Type(of) => Ty::Type(Box::new(self.instance(of, bound))),
            other => other.clone(),
        }
    }

    /// Returns a call of `format` with one argument for each verb (a clause such as `%s`). In a few
    /// calls, the last argument is missing.
    fn format(&mut self, depth: usize) -> Expression {
        let mut text = String::new();
        let mut args = Vec::new();
        for _ in 0..=self.random.below(3) {
            let verb = *self.random.pick(&texts(operands::VERBS));
            text.push_str(verb);
            let separator = *self.random.pick(&["", " ", ":"]);
            text.push_str(separator);
            let ty = match verb.chars().last() {
                Some('%' | 'é') => continue,
                Some('s') => self.ty(2),
                Some('f' | 'e') => Ty::Double,
                Some('x' | 'X') if self.random.one_in(2) => Ty::String,
                _ if self.random.one_in(6) => self.ty(1),
                _ => Ty::Int,
            };
            args.push(self.expression(&ty, depth));
        }
        if self.random.one_in(20) {
            args.pop();
        }
        let marks = vec!["$"; args.len()].join(", ");
        Expression::filled(&format!("'{text}'.format([{marks}])"), args)
    }
}

/// Returns true if the result type `result` of an overload can be `ty`. Sets the type parameters in
/// `bound`: if `result` is `list(A)` and `ty` is `list(int)`, `A` becomes `int`.
fn returns(result: &Ty, ty: &Ty, bound: &mut [Option<Ty>; 2]) -> bool {
    let mut bind = |at: usize| {
        let own = bound[at].get_or_insert_with(|| ty.clone());
        own == ty
    };
    match (result, ty) {
        (Ty::A, _) => bind(0),
        (Ty::B, _) => bind(1),
        (Ty::List(of), Ty::List(ty))
        | (Ty::Optional(of), Ty::Optional(ty))
        | (Ty::Type(of), Ty::Type(ty)) => returns(of, ty, bound),
        (Ty::Map(key, value), Ty::Map(key_ty, value_ty)) => {
            returns(key, key_ty, bound) && returns(value, value_ty, bound)
        }
        (result, ty) => result == ty,
    }
}

/// Returns typical texts for an argument of a function, without quotes and separated by ` ;; `.
/// Returns an empty text for an argument that needs no typical text.
fn texts_for(name: &str, index: usize) -> &'static str {
    match (name, index) {
        ("duration", 0) => operands::DURATIONS,
        ("timestamp", 0) => operands::TIMES,
        ("quantity" | "isQuantity", 0) => operands::QUANTITIES,
        ("url" | "isURL", 0) => operands::URLS,
        ("ip" | "isIP" | "ip.isCanonical", 0) | ("containsIP", 1) => operands::IPS,
        ("cidr" | "isCIDR", 0) | ("containsCIDR", 1) => operands::CIDRS,
        ("semver" | "isSemver", 0) => operands::SEMVERS,
        ("format.named", 0) => operands::FORMATS,
        ("validate", 1) => operands::FORMAT_TEXTS,
        ("matches" | "find" | "findAll", 1) => operands::PATTERNS,
        (_, 1) if name.starts_with("get") => operands::ZONES,
        ("int" | "uint", 0) => "1 ;; -1 ;; +1 ;; 9223372036854775808 ;; 1.5 ;;  1 ;; 0x1",
        ("double", 0) => "1 ;; 1.5 ;; NaN ;; Infinity ;; -Inf ;; 1e400 ;; .5 ;; 1e-400 ;; 1.",
        ("bool", 0) => "true ;; True ;; tRUE ;; t ;; 0 ;; yes ;; ",
        _ => "",
    }
}
