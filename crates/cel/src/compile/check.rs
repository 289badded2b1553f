//! The type check of calls. For a call, it finds the overloads of the function (the accepted
//! combinations of argument types) that match the types of the arguments. If no overload matches,
//! it returns the error of cel-go.

use cel::common::ast::operators;

use crate::library::overloads;
use crate::types::Ty;

/// Returns the result type of a call like [`resolve`], for an expression that is compiled with a
/// schema. In contrast to cel-go, this function accepts some calls whose evaluation cannot fail:
/// comparisons of numbers of different types, comparisons with null, and conditionals whose results
/// have different types.
pub(crate) fn resolve_with_schema(name: &str, args: &[Ty], member: bool) -> Result<Ty, String> {
    resolve(name, args, member).or_else(|message| {
        let comparable: Vec<Ty> = match (name, args) {
            (operators::CONDITIONAL, [test, _, _]) => vec![test.clone(), Ty::Dyn, Ty::Dyn],
            (operators::EQUALS | operators::NOT_EQUALS | operators::IN, args) => {
                args.iter().map(Ty::comparable).collect()
            }
            _ => return Err(message),
        };
        resolve(name, &comparable, member).map_err(|_| message)
    })
}

/// Returns the result type of a call, or cel-go's error if no overload matches. In a member call,
/// the first of `args` is the type of the receiver.
pub(crate) fn resolve(name: &str, args: &[Ty], member: bool) -> Result<Ty, String> {
    let mut result: Option<Ty> = None;
    let mut known = args.to_vec();
    for overload in overloads(name) {
        if overload.is_member != member || overload.args.len() != args.len() {
            continue;
        }
        let mut bound = Bound::default();
        let mut pairs = known.iter().zip(&overload.args);
        if pairs.all(|(arg, wanted)| bound.binds(arg, wanted)) {
            let ty = bound.result(&overload.result);
            // If several overloads match, and their results differ, the result is `dyn`. As in
            // cel-go, a result with a type parameter that no argument decides differs from every
            // other result.
            result = Some(match result {
                Some(other) if other != ty || !bound.decides(&overload.result) => Ty::Dyn,
                _ => ty,
            });
            // The types that this overload wants replace the unknown types of the arguments. The
            // next overloads are matched with these types.
            for (arg, wanted) in known.iter_mut().zip(&overload.args) {
                bound.make_known(arg, wanted);
            }
        }
    }
    result.ok_or_else(|| {
        let list = |args: &[Ty]| {
            let names: Vec<_> = args.iter().map(ToString::to_string).collect();
            format!("({})", names.join(", "))
        };
        let signature = match args.split_first() {
            Some((receiver, args)) if member => format!("{receiver}.{}", list(args)),
            _ => list(args),
        };
        format!("found no matching overload for '{name}' applied to '{signature}'")
    })
}

/// The types that replace the type parameters `A` and `B` of one overload.
#[derive(Default)]
struct Bound {
    a: Option<Ty>,
    b: Option<Ty>,
}

impl Bound {
    /// Returns true if an argument of the type `arg` matches `wanted`. Sets `A` and `B` if `wanted`
    /// contains them.
    fn binds(&mut self, arg: &Ty, wanted: &Ty) -> bool {
        match (wanted, arg) {
            (Ty::A, _) => bind(&mut self.a, arg),
            (Ty::B, _) => bind(&mut self.b, arg),
            (Ty::Dyn, _) => true,
            (_, arg) if arg.is_dynamic() => true,
            (Ty::List(wanted), Ty::List(of))
            | (Ty::Type(wanted), Ty::Type(of))
            | (Ty::Optional(wanted), Ty::Optional(of)) => self.binds(of, wanted),
            (Ty::Map(wanted_key, wanted_value), Ty::Map(key, value)) => {
                self.binds(key, wanted_key) && self.binds(value, wanted_value)
            }
            (wanted, arg) => arg.fits(&self.result(wanted)),
        }
    }

    /// Replaces each unknown type in the type of an argument by the type at the same place in
    /// `wanted`.
    fn make_known(&self, arg: &mut Ty, wanted: &Ty) {
        match (wanted, arg) {
            (wanted, arg @ Ty::Unknown) => *arg = self.result(wanted),
            (Ty::List(wanted), Ty::List(of))
            | (Ty::Type(wanted), Ty::Type(of))
            | (Ty::Optional(wanted), Ty::Optional(of)) => self.make_known(of, wanted),
            (Ty::Map(wanted_key, wanted_value), Ty::Map(key, value)) => {
                self.make_known(key, wanted_key);
                self.make_known(value, wanted_value);
            }
            _ => {}
        }
    }

    /// Returns true if the arguments decide all type parameters in `ty`.
    fn decides(&self, ty: &Ty) -> bool {
        match ty {
            Ty::A => self.a.is_some(),
            Ty::B => self.b.is_some(),
            Ty::Type(of) | Ty::List(of) | Ty::Optional(of) => self.decides(of),
            Ty::Map(key, value) => self.decides(key) && self.decides(value),
            _ => true,
        }
    }

    /// Returns the type with the type parameters replaced. A type parameter without a type becomes
    /// [`Ty::Unknown`].
    fn result(&self, ty: &Ty) -> Ty {
        match ty {
            Ty::A => self.a.clone().unwrap_or(Ty::Unknown),
            Ty::B => self.b.clone().unwrap_or(Ty::Unknown),
            Ty::Type(of) => Ty::Type(Box::new(self.result(of))),
            Ty::List(of) => Ty::list(self.result(of)),
            Ty::Map(key, value) => Ty::map(self.result(key), self.result(value)),
            Ty::Optional(of) => Ty::optional(self.result(of)),
            other => other.clone(),
        }
    }
}

/// Sets a type parameter to `ty`, and returns true. If the type parameter already has a type, it
/// gets the common type of both. If the two types do not fit each other, returns false.
fn bind(bound: &mut Option<Ty>, ty: &Ty) -> bool {
    match bound {
        None => {
            *bound = Some(ty.clone());
            true
        }
        Some(own) if own.fits(ty) => {
            if ty.covers(own) {
                *own = ty.clone();
            } else if own.loses_schema_with(ty) {
                *own = Ty::Dyn;
            }
            true
        }
        Some(_) => false,
    }
}
