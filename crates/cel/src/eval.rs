//! Evaluates an op tree, which is the compiled form of an expression. An op is a node of this tree.
//!
//! If an op has an error, the result of the evaluation is an error, with two exceptions:
//!
//! - `&&` and `||` ignore an error of one operand if another operand decides the result.
//! - `all` and `exists` ignore an error of one iteration if another iteration decides the result.
//!
//! The [`Budget`] limits the steps of an evaluation. If the budget is exhausted, the evaluation
//! always ends with an error.

use std::rc::Rc;

use super::conversions::{COPY_BYTES_PER_STEP, arithmetic, convert};
use super::failure::{FailureText, FixedText};
use super::lists;
use super::observe_evaluation::{EvaluationObserver, locate};
use super::op::{
    Comprehension, ComprehensionKind, Const, Function, Library, Op, OptionalTransform, Order,
    PatternSearch, TimePart,
};
use super::optionals;
use super::pattern::{Pattern, cached_pattern, find, find_all};
use super::quantity;
use super::strings;
use super::time::duration_part;
use super::value::{Fault, Text, V, charge, equal, exact_int, key_cost, order, same_key, steps};
use super::{
    Budget, EvaluationScope, Program, named_format_functions, semver_functions,
    url_and_ip_functions,
};

/// Number of bytes that are compared or searched in one step of the budget.
pub(super) const SEARCH_BYTES_PER_STEP: usize = 1024;

/// Number of bytes that are matched with a regular expression in one step of the budget. The number
/// is smaller than [`SEARCH_BYTES_PER_STEP`], because matching is slower than searching for a text.
pub(super) const MATCH_BYTES_PER_STEP: usize = 64;

/// The state of one evaluation. `'e` is the lifetime of the op tree.
pub(super) struct Context<'e, 's, 'a, O> {
    scope: &'s mut EvaluationScope<'a>,
    /// The values of the variables of the comprehensions around the current op, such as `x` in
    /// `list.all(x, x > 0)`.
    vars: Vec<V<'e>>,
    observer: O,
}

/// The result of the evaluation of an op.
pub(super) type OpResult<'e> = Result<V<'e>, Fault<'e>>;

impl<'e, 's, 'a: 'e, O: EvaluationObserver<'e>> Context<'e, 's, 'a, O> {
    pub(super) fn new(scope: &'s mut EvaluationScope<'a>, observer: O) -> Self {
        Self {
            scope,
            vars: Vec::new(),
            observer,
        }
    }

    pub(super) fn eval(&mut self, op: &'e Op) -> OpResult<'e> {
        if !O::OBSERVES {
            return self.dispatch(op);
        }
        let mut outcome = self.dispatch(op);
        self.observer.evaluated(op, &mut outcome);
        outcome
    }

    // This function is recursive, and the evaluation of the deepest tree must fit on a stack of
    // 2 MiB. So most arms call a function that is not inlined. This keeps the stack frame of
    // `dispatch` small.
    #[inline]
    fn dispatch(&mut self, op: &'e Op) -> OpResult<'e> {
        match op {
            Op::Const(value) => Ok(value.value()),
            Op::Object => Ok(V::of(self.scope.doc.root())),
            Op::Now => Ok(self.read_now()),
            Op::Item => self.item(),
            Op::Variable(slot) => self.variable(*slot),
            Op::LocalVariable(slot) => self.comprehension_variable(*slot),
            Op::Path(base, fields) => self.path(base, fields),
            Op::OptionalPath(base, fields) => self.optional_path(base, fields),
            Op::Has(base, field) => self.has(base, field),
            Op::Index(pair) => self.index(pair),
            Op::OptionalIndex(pair) => self.optional_index(pair),
            Op::List(items) => self.list(items),
            Op::OptionalList(items) => self.optional_list(items),
            Op::Map(entries) => self.map(entries),
            Op::OptionalMap(entries) => self.optional_map(entries),
            Op::Not(operand) => self.not(operand),
            Op::Neg(operand) => self.negate(operand),
            Op::And(terms) => self.logic(terms, false),
            Op::Or(terms) => self.logic(terms, true),
            Op::Cond(parts) => self.condition(parts),
            Op::Equal(pair, wanted) => self.equality(pair, *wanted),
            Op::Order(pair, op) => self.ordering(pair, *op),
            Op::Arith(pair, op) => {
                let (left, right) = self.pair(pair)?;
                arithmetic(*op, left, right, self.scope.budget)
            }
            Op::In(pair) => self.contained(pair),
            Op::InSet(operand, set) => self.in_set(operand, set),
            Op::Matches(operand, pattern) => self.matches(operand, pattern),
            Op::Find(search) => self.find(search),
            Op::Call(function, args) => self.call(*function, args),
            Op::Otherwise(pair, unwraps) => self.otherwise(pair, *unwraps),
            Op::Fold(fold) => self.fold(fold),
            Op::OptionalTransform(transform) => self.optional_transform(transform),
        }
    }

    #[inline(never)]
    fn read_now(&mut self) -> V<'e> {
        self.scope.read_now = true;
        V::Time(self.scope.now.into())
    }

    #[inline(never)]
    fn item(&self) -> OpResult<'e> {
        // The error occurs only if the program uses `item` and the caller has not set `item`.
        self.scope
            .item
            .as_ref()
            .map(|item| item.0.clone())
            .ok_or(Fault::error("no such attribute"))
    }

    /// Returns the value of a variable of the environment. Its expression is evaluated at the first
    /// read, and later reads return the cached result.
    #[inline(never)]
    fn variable(&mut self, slot: usize) -> OpResult<'e> {
        if let Some(cached) = self.scope.cached_result(slot) {
            return cached;
        }
        let Some(program) = self.scope.variable(slot) else {
            return Err(Fault::error("no such attribute"));
        };
        let before = std::mem::take(&mut self.scope.read_now);
        let steps = self.scope.budget.left;
        let outcome = charge(self.scope.budget, program.0.weight)
            .and_then(|()| Context::new(self.scope, ()).eval(&program.0.op));
        let outcome = match outcome {
            Err(Fault::Error(text)) => {
                let failure = locate_in_variable(self.scope, slot, program, text, steps);
                Err(Fault::Located(failure))
            }
            outcome => outcome,
        };
        let read_now = std::mem::replace(&mut self.scope.read_now, before);
        self.scope.cache_result(slot, outcome, read_now);
        self.scope
            .cached_result(slot)
            .unwrap_or(Err(Fault::error("no such attribute")))
    }

    #[inline(never)]
    fn comprehension_variable(&self, slot: usize) -> OpResult<'e> {
        // The variable always exists, because the compiler assigned the index.
        self.vars
            .get(slot)
            .cloned()
            .ok_or(Fault::error("no such attribute"))
    }

    fn pair(&mut self, pair: &'e (Op, Op)) -> Result<(V<'e>, V<'e>), Fault<'e>> {
        let left = self.eval(&pair.0);
        if matches!(left, Err(Fault::Budget)) {
            return Err(Fault::Budget);
        }
        Ok((left?, self.eval(&pair.1)?))
    }

    #[inline(never)]
    fn path(&mut self, base: &'e Op, fields: &'e [Box<str>]) -> OpResult<'e> {
        let mut value = self.eval(base)?;
        if let V::Node(mut node) = value {
            // This is a fast path: if all fields are in the document, only the last node is
            // converted to a value.
            for field in fields {
                match node.get(field) {
                    Some(member) => node = member,
                    None => return select(&V::of(node), field, self.scope.budget),
                }
            }
            return Ok(V::of(node));
        }
        // A field of an optional value is optional.
        if let V::Optional(optional) = value {
            let Some(optional) = optional else {
                return Ok(V::Optional(None));
            };
            let found = present_path((*optional).clone(), fields, self.scope.budget)?;
            return Ok(found.map_or(V::Optional(None), V::some));
        }
        for field in fields {
            value = select(&value, field, self.scope.budget)?;
        }
        Ok(value)
    }

    #[inline(never)]
    fn optional_path(&mut self, base: &'e Op, fields: &'e [Box<str>]) -> OpResult<'e> {
        let found = self.find_path(base, fields)?;
        Ok(found.map_or(V::Optional(None), V::some))
    }

    /// Returns the value at a path whose first selection is optional, such as `a.?b.c`. Returns
    /// None if a field of the path does not exist.
    fn find_path(
        &mut self,
        base: &'e Op,
        fields: &'e [Box<str>],
    ) -> Result<Option<V<'e>>, Fault<'e>> {
        match self.eval(base)? {
            V::Optional(None) => Ok(None),
            V::Optional(Some(value)) => present_path((*value).clone(), fields, self.scope.budget),
            value => present_path(value, fields, self.scope.budget),
        }
    }

    #[inline(never)]
    fn has(&mut self, base: &'e Op, field: &'e str) -> OpResult<'e> {
        let base = self.eval(base)?;
        let value = match &base {
            V::Optional(None) => return Ok(V::Bool(false)),
            V::Optional(Some(value)) => value,
            value => value,
        };
        let found = present_field(value, field, self.scope.budget)?;
        Ok(V::Bool(found.is_some()))
    }

    #[inline(never)]
    fn index(&mut self, pair: &'e (Op, Op)) -> OpResult<'e> {
        let value = self.eval(&pair.0)?;
        if let V::Optional(optional) = value {
            return self.present_index(optional.as_deref(), &pair.1);
        }
        let index = self.eval(&pair.1)?;
        let found = self.element_at(&value, &index)?;
        found.ok_or(match &pair.1 {
            Op::Const(literal) => Fault::MissingLiteral(literal),
            _ => Fault::MissingComputed,
        })
    }

    #[inline(never)]
    fn optional_index(&mut self, pair: &'e (Op, Op)) -> OpResult<'e> {
        match self.eval(&pair.0)? {
            V::Optional(optional) => self.present_index(optional.as_deref(), &pair.1),
            value => self.present_index(Some(&value), &pair.1),
        }
    }

    /// Returns the element or member at an index as an optional value. `value` is None if the list
    /// or map itself does not exist. As in cel-go, the index is then not evaluated.
    fn present_index(&mut self, value: Option<&V<'e>>, index: &'e Op) -> OpResult<'e> {
        let Some(value) = value else {
            return Ok(V::Optional(None));
        };
        let index = self.eval(index)?;
        let found = self.element_at(value, &index)?;
        Ok(found.map_or(V::Optional(None), V::some))
    }

    /// Returns the element or member of `value` at an index, or None if there is no such element or
    /// member.
    fn element_at(&mut self, value: &V<'e>, index: &V<'e>) -> Result<Option<V<'e>>, Fault<'e>> {
        if value.is_list() {
            let at = match index {
                V::Int(int) => *int,
                V::Uint(uint) => i64::try_from(*uint)
                    .map_err(|_| Fault::error("unsupported index value in list: too large"))?,
                V::Double(double) => {
                    let fractional = "unsupported index value in list: not a whole number";
                    exact_int(*double).ok_or(Fault::error(fractional))?
                }
                other => {
                    let found = other.type_name();
                    let words = ["unsupported index type '", found, "' in list"];
                    return Err(Fault::words(&words));
                }
            };
            return Ok(usize::try_from(at).ok().and_then(|at| value.element(at)));
        }
        match index {
            V::Bool(_) | V::Int(_) | V::Uint(_) | V::Double(_) | V::Str(_) => {
                charge(self.scope.budget, value.find_cost(index))?;
                Ok(value.find(index))
            }
            other => Err(Fault::words(&[
                "invalid qualifier type: ",
                other.type_name(),
            ])),
        }
    }

    #[inline(never)]
    fn list(&mut self, items: &'e [Op]) -> OpResult<'e> {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            values.push(self.eval(item)?);
        }
        Ok(V::List(values.into()))
    }

    #[inline(never)]
    fn optional_list(&mut self, items: &'e [(Op, bool)]) -> OpResult<'e> {
        let mut values = Vec::with_capacity(items.len());
        for (item, optional) in items {
            let value = self.eval(item)?;
            values.extend(present_item(value, *optional)?);
        }
        Ok(V::List(values.into()))
    }

    #[inline(never)]
    fn map(&mut self, entries: &'e [(Op, Op)]) -> OpResult<'e> {
        // Each key is compared with all previous keys, so the cost is quadratic.
        charge(self.scope.budget, steps(entries.len() * entries.len(), 256))?;
        let mut map = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            charge(self.scope.budget, key_cost(map.len(), &key))?;
            insert(&mut map, key, value);
        }
        Ok(V::Map(map.into()))
    }

    #[inline(never)]
    fn optional_map(&mut self, entries: &'e [(Op, Op, bool)]) -> OpResult<'e> {
        charge(self.scope.budget, steps(entries.len() * entries.len(), 256))?;
        let mut map = Vec::with_capacity(entries.len());
        for (key, value, optional) in entries {
            let (key, value) = (self.eval(key)?, self.eval(value)?);
            charge(self.scope.budget, key_cost(map.len(), &key))?;
            match present_item(value, *optional)? {
                Some(value) => insert(&mut map, key, value),
                // As in cel-go, an optional entry without a value removes an earlier entry with the
                // same key.
                None => map.retain(|(own, _)| !same_key(own, &key)),
            }
        }
        Ok(V::Map(map.into()))
    }

    /// Evaluates `orValue` if `unwraps` is true, and `or` if `unwraps` is false. As in cel-go, if
    /// the first operand is not an optional, the first operand is the result.
    #[inline(never)]
    fn otherwise(&mut self, pair: &'e (Op, Op), unwraps: bool) -> OpResult<'e> {
        // The most frequent form is `a.?b.orValue(c)`. Here, the value of `a.?b` is not put into an
        // optional, which saves an allocation.
        if let (true, Op::OptionalPath(base, fields)) = (unwraps, &pair.0) {
            return match self.find_path(base, fields)? {
                Some(value) => Ok(value),
                None => self.eval(&pair.1),
            };
        }
        match self.eval(&pair.0)? {
            V::Optional(None) => self.eval(&pair.1),
            V::Optional(Some(value)) if unwraps => Ok((*value).clone()),
            value => Ok(value),
        }
    }

    #[inline(never)]
    fn optional_transform(&mut self, transform: &'e OptionalTransform) -> OpResult<'e> {
        let value = match self.eval(&transform.target)? {
            V::Optional(Some(value)) => (*value).clone(),
            V::Optional(None) => return Ok(V::Optional(None)),
            _ => return Err(Fault::no_overload()),
        };
        charge(self.scope.budget, transform.weight)?;
        let depth = self.vars.len();
        self.vars.push(value);
        let result = self.eval(&transform.body);
        self.vars.truncate(depth);
        if transform.flat {
            return result;
        }
        // If the body of `optMap` returns an optional, the result contains the value of this
        // optional, or null if it has no value. cel-go 0.26 does the same.
        Ok(V::some(match result? {
            V::Optional(Some(value)) => (*value).clone(),
            V::Optional(None) => V::Null,
            value => value,
        }))
    }

    #[inline(never)]
    fn not(&mut self, operand: &'e Op) -> OpResult<'e> {
        match self.eval(operand)? {
            V::Bool(value) => Ok(V::Bool(!value)),
            _ => Err(Fault::no_overload()),
        }
    }

    #[inline(never)]
    fn negate(&mut self, operand: &'e Op) -> OpResult<'e> {
        let overflow = Fault::error("integer overflow");
        match self.eval(operand)? {
            V::Int(value) => value.checked_neg().map(V::Int).ok_or(overflow),
            V::Double(value) => Ok(V::Double(-value)),
            V::Duration(value) => value.checked_neg().map(V::Duration).ok_or(overflow),
            _ => Err(Fault::no_overload()),
        }
    }

    /// Evaluates `&&` if `decides` is false, or `||` if `decides` is true. If a term equals
    /// `decides`, this value is the result, and errors of other terms are ignored.
    #[inline(never)]
    fn logic(&mut self, terms: &'e [Op], decides: bool) -> OpResult<'e> {
        let mut failed = None;
        for term in terms {
            match self.eval(term) {
                Ok(V::Bool(value)) if value == decides => return Ok(V::Bool(decides)),
                Ok(V::Bool(_)) => {}
                Err(Fault::Budget) => return Err(Fault::Budget),
                Ok(_) => failed = failed.or(Some(Fault::no_overload())),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        failed.map_or(Ok(V::Bool(!decides)), Err)
    }

    #[inline(never)]
    fn condition(&mut self, parts: &'e (Op, Op, Op)) -> OpResult<'e> {
        match self.eval(&parts.0)? {
            V::Bool(true) => self.eval(&parts.1),
            V::Bool(false) => self.eval(&parts.2),
            _ => Err(Fault::no_overload()),
        }
    }

    #[inline(never)]
    fn equality(&mut self, pair: &'e (Op, Op), wanted: bool) -> OpResult<'e> {
        let (left, right) = self.pair(pair)?;
        // As in cel-go, `==` with values that cannot be compared is an error, and `!=` is true.
        Ok(V::Bool(if wanted {
            equal(&left, &right, self.scope.budget)?
        } else {
            !lists::equals(&left, &right, self.scope.budget)?
        }))
    }

    #[inline(never)]
    fn ordering(&mut self, pair: &'e (Op, Op), op: Order) -> OpResult<'e> {
        let (left, right) = self.pair(pair)?;
        let order = order(&left, &right, self.scope.budget)?;
        Ok(V::Bool(match op {
            Order::Less => order.is_lt(),
            Order::LessEqual => order.is_le(),
            Order::Greater => order.is_gt(),
            Order::GreaterEqual => order.is_ge(),
        }))
    }

    #[inline(never)]
    fn contained(&mut self, pair: &'e (Op, Op)) -> OpResult<'e> {
        let (value, range) = self.pair(pair)?;
        if range.is_map() {
            charge(self.scope.budget, range.find_cost(&value))?;
            return Ok(V::Bool(range.find(&value).is_some()));
        }
        if !range.is_list() {
            return Err(Fault::no_overload());
        }
        for index in 0..range.len() {
            charge(self.scope.budget, u64::from(index % 16 == 15))?;
            if let Some(element) = range.element(index)
                && lists::equals(&value, &element, self.scope.budget)?
            {
                return Ok(V::Bool(true));
            }
        }
        Ok(V::Bool(false))
    }

    #[inline(never)]
    fn in_set(&mut self, operand: &'e Op, set: &'e [Const]) -> OpResult<'e> {
        let value = self.eval(operand)?;
        for element in set {
            if lists::equals(&value, &element.value(), self.scope.budget)? {
                return Ok(V::Bool(true));
            }
        }
        Ok(V::Bool(false))
    }

    #[inline(never)]
    fn matches(&mut self, operand: &'e Op, pattern: &Pattern) -> OpResult<'e> {
        let V::Str(text) = self.eval(operand)? else {
            return Err(Fault::no_overload());
        };
        self.match_pattern(pattern, &text).map(V::Bool)
    }

    /// Evaluates `find` or `findAll` with a pattern that is a string literal.
    #[inline(never)]
    fn find(&mut self, search: &'e PatternSearch) -> OpResult<'e> {
        let text = self.eval(&search.text)?;
        let limit = match &search.limit {
            Some(limit) => Some(self.eval(limit)?),
            None => None,
        };
        self.search(&search.pattern, &text, search.all, limit.as_ref())
    }

    /// Searches a text with a pattern. Returns a list of all matches if `all` is true, and the
    /// first match if `all` is false. `limit` is the maximum number of matches in the list.
    fn search(
        &mut self,
        pattern: &Pattern,
        text: &V<'e>,
        all: bool,
        limit: Option<&V<'e>>,
    ) -> OpResult<'e> {
        let V::Str(text) = text else {
            return Err(Fault::no_overload());
        };
        let limit = match limit {
            None => None,
            Some(V::Int(limit)) => usize::try_from(*limit).ok(),
            Some(_) => return Err(Fault::no_overload()),
        };
        if all {
            find_all(pattern, text, limit, self.scope.budget)
        } else {
            find(pattern, text, self.scope.budget)
        }
    }

    /// Evaluates `find` or `findAll` with a computed pattern, which is not a string literal.
    fn find_computed(&mut self, function: Function, args: &[V<'e>]) -> OpResult<'e> {
        let [text, V::Str(pattern), limit @ ..] = args else {
            return Err(Fault::no_overload());
        };
        let pattern = self.computed_pattern(pattern)?;
        self.search(&pattern, text, function == Function::FindAll, limit.first())
    }

    /// Compiles a computed pattern, or returns it from the cache.
    fn computed_pattern(&mut self, source: &str) -> Result<Pattern, Fault<'e>> {
        charge(self.scope.budget, steps(source.len(), MATCH_BYTES_PER_STEP))?;
        let (pattern, steps) = cached_pattern(source);
        charge(self.scope.budget, steps)?;
        // cel-go's error contains the pattern. This error does not contain the pattern, because a
        // computed pattern can be a value of the object.
        pattern.ok_or(Fault::error("error parsing regexp"))
    }

    fn match_pattern(&mut self, pattern: &Pattern, text: &str) -> Result<bool, Fault<'e>> {
        let cost = steps(text.len(), MATCH_BYTES_PER_STEP).saturating_mul(pattern.weight());
        charge(self.scope.budget, cost)?;
        Ok(pattern.matches(text))
    }

    #[inline(never)]
    fn call(&mut self, function: Function, args: &'e [Op]) -> OpResult<'e> {
        let library = function.library();
        if library != Library::Core {
            return self.extension(library, function, args);
        }
        // The type checker allows only one or two arguments.
        let first = args
            .first()
            .map_or(Err(Fault::no_overload()), |op| self.eval(op))?;
        match args.get(1) {
            None => self.unary(function, first),
            Some(op) => {
                let second = self.eval(op)?;
                self.binary(function, &first, &second)
            }
        }
    }

    /// Calls a function of an extension library. If functions of two libraries have the same name,
    /// the type of the first argument decides which function is called.
    #[inline(never)]
    fn extension(&mut self, library: Library, function: Function, args: &'e [Op]) -> OpResult<'e> {
        let mut values = Vec::with_capacity(args.len());
        for arg in args {
            values.push(self.eval(arg)?);
        }
        let budget = &mut *self.scope.budget;
        let library = match (library, values.first()) {
            (Library::Strings, Some(list)) if function.is_of_lists() && list.is_list() => {
                Library::Lists
            }
            (Library::Quantities, Some(V::Semver(_))) => Library::Versions,
            _ => library,
        };
        match library {
            Library::Strings => strings::call(function, &values, budget),
            Library::Quantities => quantity::call(function, &values, budget),
            Library::Lists => lists::call(function, &values, budget),
            Library::Optionals => optionals::call(function, &values, budget),
            Library::Addresses => url_and_ip_functions::call(function, &values, budget),
            Library::Versions => semver_functions::call(function, &values, budget),
            Library::Formats => named_format_functions::call(function, &values, budget),
            Library::Patterns => self.find_computed(function, &values),
            Library::Core => Err(Fault::no_overload()),
        }
    }

    #[inline(never)]
    fn unary(&mut self, function: Function, value: V<'e>) -> OpResult<'e> {
        match function {
            Function::Size => self.size(&value),
            Function::Type => Ok(V::Type(value.type_name())),
            Function::Dyn => Ok(value),
            Function::Get(part) => get(part, &value, None),
            _ => convert(function, value, self.scope.budget),
        }
    }

    fn size(&mut self, value: &V<'e>) -> OpResult<'e> {
        let len = match value {
            V::Str(text) => {
                charge(self.scope.budget, steps(text.len(), SEARCH_BYTES_PER_STEP))?;
                text.chars().count()
            }
            V::Bytes(bytes) => bytes.len(),
            V::Node(_) | V::List(_) | V::Map(_) => value.len(),
            _ => return Err(Fault::no_overload()),
        };
        Ok(V::Int(i64::try_from(len).unwrap_or(i64::MAX)))
    }

    #[inline(never)]
    fn binary(&mut self, function: Function, left: &V<'e>, right: &V<'e>) -> OpResult<'e> {
        let (text, V::Str(argument)) = (left, right) else {
            return Err(Fault::no_overload());
        };
        if let Function::Get(part) = function {
            charge(
                self.scope.budget,
                steps(argument.len(), COPY_BYTES_PER_STEP),
            )?;
            return get(part, text, Some(argument));
        }
        let V::Str(text) = text else {
            return Err(Fault::no_overload());
        };
        charge(self.scope.budget, steps(text.len(), SEARCH_BYTES_PER_STEP))?;
        Ok(V::Bool(match function {
            Function::Contains => text.contains(&**argument),
            Function::StartsWith => text.starts_with(&**argument),
            Function::EndsWith => text.ends_with(&**argument),
            Function::Matches => {
                let pattern = self.computed_pattern(argument)?;
                self.match_pattern(&pattern, text)?
            }
            _ => return Err(Fault::no_overload()),
        }))
    }

    #[inline(never)]
    fn fold(&mut self, fold: &'e Comprehension) -> OpResult<'e> {
        let range = self.eval(&fold.range)?;
        if !range.is_list() && !range.is_map() {
            let found = range.type_name();
            return Err(Fault::words(&["got '", found, "', expected iterable type"]));
        }
        let depth = self.vars.len();
        let result = match fold.kind {
            ComprehensionKind::All => self.quantify(fold, &range, false),
            ComprehensionKind::Exists => self.quantify(fold, &range, true),
            ComprehensionKind::ExistsOne => self.exists_one(fold, &range),
            ComprehensionKind::Filter | ComprehensionKind::Map => self.collect(fold, &range),
            ComprehensionKind::TransformMap => self.transform_map(fold, &range),
            ComprehensionKind::TransformMapEntry => self.merge_entries(fold, &range),
            ComprehensionKind::SortBy => self.sort_by(fold, &range),
        };
        self.vars.truncate(depth);
        result
    }

    /// Charges the steps of one iteration, and sets the variables of a comprehension to the element
    /// or entry at `index` of `range`. `depth` is the number of variables of the comprehensions
    /// around this comprehension.
    fn bind(
        &mut self,
        fold: &Comprehension,
        range: &V<'e>,
        depth: usize,
        index: usize,
    ) -> Result<(), Fault<'e>> {
        charge(self.scope.budget, fold.weight)?;
        self.vars.truncate(depth);
        if !fold.two_variables {
            self.vars.extend(range.item(index));
        } else if range.is_list() {
            self.vars
                .push(V::Int(i64::try_from(index).unwrap_or(i64::MAX)));
            self.vars.extend(range.element(index));
        } else if let Some((key, value)) = range.entry(index) {
            self.vars.extend([key, value]);
        }
        Ok(())
    }

    /// Evaluates `all` if `decides` is false, or `exists` if `decides` is true. If an iteration
    /// returns `decides`, this value is the result, and errors of other iterations are ignored.
    #[inline(never)]
    fn quantify(&mut self, fold: &'e Comprehension, range: &V<'e>, decides: bool) -> OpResult<'e> {
        let depth = self.vars.len();
        let mut failed = None;
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            match self.eval(&fold.body) {
                Ok(V::Bool(value)) if value == decides => return Ok(V::Bool(decides)),
                Ok(V::Bool(_)) => {}
                Err(Fault::Budget) => return Err(Fault::Budget),
                Ok(_) => failed = failed.or(Some(Fault::no_overload())),
                Err(fault) => failed = failed.or(Some(fault)),
            }
        }
        failed.map_or(Ok(V::Bool(!decides)), Err)
    }

    /// Evaluates a condition, which must be a bool.
    fn test(&mut self, op: &'e Op) -> Result<bool, Fault<'e>> {
        match self.eval(op)? {
            V::Bool(value) => Ok(value),
            _ => Err(Fault::no_overload()),
        }
    }

    #[inline(never)]
    fn exists_one(&mut self, fold: &'e Comprehension, range: &V<'e>) -> OpResult<'e> {
        let depth = self.vars.len();
        let mut found = 0;
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            match self.test(&fold.body) {
                Ok(passed) => found += usize::from(passed),
                Err(fault) => return Err(self.last_fault(fold, range, index, fault)),
            }
        }
        Ok(V::Bool(found == 1))
    }

    #[inline(never)]
    fn collect(&mut self, fold: &'e Comprehension, range: &V<'e>) -> OpResult<'e> {
        let depth = self.vars.len();
        let mut items = Vec::new();
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            match self.collected(fold, range, index) {
                Ok(item) => items.extend(item),
                Err(fault) => return Err(self.last_fault(fold, range, index, fault)),
            }
        }
        Ok(V::List(items.into()))
    }

    /// Returns the value that the iteration `index` adds to the result of the comprehension, or
    /// None if the condition is false.
    fn collected(
        &mut self,
        fold: &'e Comprehension,
        range: &V<'e>,
        index: usize,
    ) -> Result<Option<V<'e>>, Fault<'e>> {
        if fold.kind != ComprehensionKind::Filter {
            return if self.passes(fold)? {
                self.eval(&fold.body).map(Some)
            } else {
                Ok(None)
            };
        }
        let passed = self.test(&fold.body)?;
        Ok(passed.then(|| range.item(index)).flatten())
    }

    /// Returns the fault of a comprehension in which the iteration `failed` has ended with `fault`.
    /// As in cel-go, the conditions of the later iterations are evaluated, too. The fault of the
    /// last condition that fails is the result. If none of these conditions fails, `fault` is the
    /// result.
    #[inline(never)]
    fn last_fault(
        &mut self,
        fold: &'e Comprehension,
        range: &V<'e>,
        failed: usize,
        fault: Fault<'e>,
    ) -> Fault<'e> {
        let condition = match fold.kind {
            ComprehensionKind::ExistsOne | ComprehensionKind::Filter => Some(&fold.body),
            _ => fold.test.as_ref(),
        };
        let Some(condition) = condition else {
            return fault;
        };
        let depth = self.vars.len() - 1 - usize::from(fold.two_variables);
        let mut last = fault;
        for index in failed + 1..range.len() {
            if matches!(last, Fault::Budget) {
                break;
            }
            let tested = self.bind(fold, range, depth, index);
            if let Err(fault) = tested.and_then(|()| self.test(condition)) {
                last = fault;
            }
        }
        last
    }

    /// Evaluates the condition of a comprehension. Without a condition, the result is true.
    fn passes(&mut self, fold: &'e Comprehension) -> Result<bool, Fault<'e>> {
        fold.test.as_ref().map_or(Ok(true), |test| self.test(test))
    }

    #[inline(never)]
    fn transform_map(&mut self, fold: &'e Comprehension, range: &V<'e>) -> OpResult<'e> {
        let depth = self.vars.len();
        let mut entries = Vec::new();
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            match self.collected(fold, range, index) {
                Ok(Some(value)) => entries.push((self.comprehension_variable(depth)?, value)),
                Ok(None) => {}
                Err(fault) => return Err(self.last_fault(fold, range, index, fault)),
            }
        }
        Ok(V::Map(entries.into()))
    }

    #[inline(never)]
    fn merge_entries(&mut self, fold: &'e Comprehension, range: &V<'e>) -> OpResult<'e> {
        let depth = self.vars.len();
        let mut entries: Vec<(V<'e>, V<'e>)> = Vec::new();
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            let added = match self.collected(fold, range, index) {
                Ok(None) => continue,
                Ok(Some(map)) => self.add_entries(&mut entries, &map),
                Err(fault) => Err(fault),
            };
            if let Err(fault) = added {
                return Err(self.last_fault(fold, range, index, fault));
            }
        }
        Ok(V::Map(entries.into()))
    }

    /// Adds the entries of `map` to `entries`. Returns an error if `entries` already contains a key
    /// of `map`.
    fn add_entries(
        &mut self,
        entries: &mut Vec<(V<'e>, V<'e>)>,
        map: &V<'e>,
    ) -> Result<(), Fault<'e>> {
        if !map.is_map() {
            return Err(Fault::no_overload());
        }
        for (key, value) in (0..map.len()).filter_map(|index| map.entry(index)) {
            // The new key is compared with all previous keys.
            let compared = steps(entries.len(), 16) + key_cost(entries.len(), &key);
            charge(self.scope.budget, 1 + compared)?;
            if entries.iter().any(|(own, _)| same_key(own, &key)) {
                return Err(Fault::error("insert failed: key already exists"));
            }
            entries.push((key, value));
        }
        Ok(())
    }

    #[inline(never)]
    fn sort_by(&mut self, fold: &'e Comprehension, range: &V<'e>) -> OpResult<'e> {
        if !range.is_list() {
            return Err(Fault::no_overload());
        }
        let depth = self.vars.len();
        let mut keys = Vec::with_capacity(range.len());
        for index in 0..range.len() {
            self.bind(fold, range, depth, index)?;
            keys.push(self.eval(&fold.body)?);
        }
        lists::sort_by_keys(range, &keys, self.scope.budget)
    }
}

/// Returns the error `text` of a variable, with the place of the error in the variable's
/// expression. `steps` is the number of steps that the budget had before the evaluation of the
/// variable.
#[cold]
#[inline(never)]
fn locate_in_variable<'a>(
    scope: &mut EvaluationScope<'a>,
    slot: usize,
    program: &'a Program,
    text: FixedText,
    steps: u64,
) -> Rc<FailureText> {
    let taken = steps - scope.budget.left;
    let mut failure = locate(&program.0, text, taken, scope);
    if let Some(place) = &mut failure.place {
        place.variable = scope.variable_name(slot).map(Into::into);
    }
    Rc::new(failure)
}

/// Adds an entry to a map literal. As in cel-go, a later entry replaces an earlier entry with the
/// same key.
fn insert<'e>(map: &mut Vec<(V<'e>, V<'e>)>, key: V<'e>, value: V<'e>) {
    match map.iter_mut().find(|(own, _)| same_key(own, &key)) {
        Some((_, own)) => *own = value,
        None => map.push((key, value)),
    }
}

/// Returns the value of an element or entry of a list or map literal. Returns None for an optional
/// element or entry without a value, such as the element of `[?object.?a]` if `a` does not exist.
fn present_item(value: V<'_>, optional: bool) -> Result<Option<V<'_>>, Fault<'_>> {
    match value {
        value if !optional => Ok(Some(value)),
        V::Optional(value) => Ok(value.map(|value| (*value).clone())),
        other => Err(Fault::words(&[
            "cannot initialize optional list element or map entry from non-optional value of type ",
            other.type_name(),
        ])),
    }
}

/// Returns the value of a field of the map `value`. Returns None if the field does not exist, or if
/// `value` is neither a map nor a list. Returns an error if `value` is a list.
fn present_field<'e>(
    value: &V<'e>,
    field: &'e str,
    budget: &mut Budget,
) -> Result<Option<V<'e>>, Fault<'e>> {
    charge_field(value, field, budget)?;
    match value.field(field) {
        None if value.is_list() => Err(Fault::error("unsupported index type 'string' in list")),
        found => Ok(found),
    }
}

/// Returns the value at a path of fields, or None if a field of the path does not exist.
fn present_path<'e>(
    mut value: V<'e>,
    fields: &'e [Box<str>],
    budget: &mut Budget,
) -> Result<Option<V<'e>>, Fault<'e>> {
    for field in fields {
        match present_field(&value, field, budget)? {
            Some(member) => value = member,
            None => return Ok(None),
        }
    }
    Ok(Some(value))
}

/// Returns the value of a field of the map `value`. If the field does not exist, returns the error
/// of a missing field. As in cel-go, returns the same error if `value` is neither a map nor a list.
fn select<'e>(value: &V<'e>, field: &'e str, budget: &mut Budget) -> OpResult<'e> {
    charge_field(value, field, budget)?;
    match value.field(field) {
        Some(value) => Ok(value),
        None if value.is_list() => Err(Fault::error("unsupported index type 'string' in list")),
        None => Err(Fault::MissingField(field)),
    }
}

/// Charges the steps for the search of a field. Only a search in a map that the evaluation has
/// created takes steps. A search in a map of the document compares the short name of the field with
/// few keys, so it takes no steps.
fn charge_field<'e>(value: &V<'e>, field: &'e str, budget: &mut Budget) -> Result<(), Fault<'e>> {
    match value {
        V::Map(_) => charge(budget, value.find_cost(&V::Str(Text::Ref(field)))),
        _ => Ok(()),
    }
}

/// Evaluates a getter of a timestamp or duration.
fn get<'e>(part: TimePart, value: &V<'e>, zone: Option<&str>) -> OpResult<'e> {
    match value {
        V::Time(time) => time
            .part(part, zone)
            .map(V::Int)
            .ok_or(Fault::error("unknown time zone")),
        V::Duration(nanoseconds) if zone.is_none() => duration_part(*nanoseconds, part)
            .map(V::Int)
            .ok_or(Fault::no_overload()),
        _ => Err(Fault::no_overload()),
    }
}
