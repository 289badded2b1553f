//! Computes which fields of the object an expression can read. [`super::Doc::parse`] decodes only
//! these fields. A [`Projection`] can contain more fields than an evaluation reads, but never
//! fewer.

use super::op::{Comprehension, ComprehensionKind, Function, Op};

/// Maximum number of parts of one [`Projection`]. If more parts are needed, the whole value is
/// needed. A Kubernetes type with its most-used fields has fewer than 200 parts.
pub const MAX_PROJECTION_PARTS: usize = 1024;

/// Maximum number of parts that one program needs. The server stores these parts for each of up to
/// 1,000 programs of a rule set. If a program needs more parts, it needs the whole value.
const MAX_PROGRAM_PARTS: usize = 128;

/// Maximum number of parts that are copied while the fields of one program are collected. If more
/// copies are necessary, the program needs the whole object. Without this limit, the number of
/// copies could double with each variable: `object.a ? variables.v['a'] : variables.v['b']` needs
/// every part of `v` twice.
const MAX_COPIED_PARTS: usize = 1 << 16;

/// A set of field paths of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Projection {
    pub(super) root: NeededPart,
}

impl Projection {
    /// Adds a path of field names, with everything below the last field. The name `"*"` stands for
    /// every element of a list and every member of an object. An empty path stands for the whole
    /// object.
    pub fn add(&mut self, path: &[&str]) {
        let need = path.iter().rev().fold(NeededPart::whole(), |need, name| {
            if *name == "*" {
                NeededPart::every(need)
            } else {
                NeededPart::named(name, need)
            }
        });
        self.root.merge_up_to(need, MAX_PROJECTION_PARTS);
    }

    /// Adds all paths of `other`. With more than [`MAX_PROJECTION_PARTS`] parts, the result is the
    /// whole object.
    pub fn merge(&mut self, other: &Projection) {
        self.root
            .merge_up_to(other.root.clone(), MAX_PROJECTION_PARTS);
    }

    /// Returns the field paths of `object` and the part of `item` that an evaluation of `op` can
    /// read, also through variables. `variables` contains the op of each variable. `want` is the
    /// part of the result of `op` that the caller needs.
    pub(super) fn of(op: &Op, want: NeededPart, variables: &[&Op]) -> (Self, NeededPart) {
        let mut collector = NeedCollector {
            object: NeededPart::default(),
            item: NeededPart::default(),
            variables: vec![None; variables.len()],
            vars: Vec::new(),
            copies_left: MAX_COPIED_PARTS,
        };
        collector.visit(op, want);
        // A variable can use only variables with a lower index. So the variables are visited in
        // reverse order. When the expression of a variable is visited, all uses of this variable
        // are already known, so one visit is enough.
        for (slot, op) in variables.iter().enumerate().rev() {
            if let Some(need) = collector.variables.get_mut(slot).and_then(Option::take) {
                collector.visit(op, need);
            }
        }
        let object = Self {
            root: collector.object,
        };
        (object, collector.item)
    }
}

/// The part of one value that an evaluation needs. With the default of this type, the evaluation
/// only needs to know whether the value exists.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NeededPart {
    /// True if the evaluation needs the whole value.
    whole: bool,
    /// The needed parts of some members, by their names.
    named: Vec<(Box<str>, NeededPart)>,
    /// The part that the evaluation needs of every member or element. None if it needs only the
    /// members in `named`.
    every: Option<Box<NeededPart>>,
}

static WHOLE: NeededPart = NeededPart {
    whole: true,
    named: Vec::new(),
    every: None,
};

impl NeededPart {
    pub(super) fn whole() -> Self {
        WHOLE.clone()
    }

    fn named(name: &str, need: NeededPart) -> Self {
        Self {
            named: vec![(name.into(), need)],
            ..Self::default()
        }
    }

    /// Returns the needed part of a list or map, if the evaluation needs the part `need` of every
    /// element or member.
    pub(super) fn every(need: NeededPart) -> Self {
        Self {
            every: Some(Box::new(need)),
            ..Self::default()
        }
    }

    /// Returns the number of parts below this part.
    pub(super) fn count(&self) -> usize {
        let named = self.named.iter().map(|(_, need)| need);
        named
            .chain(self.every.as_deref())
            .map(|need| 1 + need.count())
            .sum()
    }

    /// Returns true if the evaluation only needs to know whether the value exists.
    pub(super) fn is_existence(&self) -> bool {
        !self.whole && self.named.is_empty() && self.every.is_none()
    }

    /// Returns the needed part of the member `name`, or None if the member is not needed.
    pub(super) fn member(&self, name: &str) -> Option<&NeededPart> {
        if self.whole {
            return Some(&WHOLE);
        }
        self.named
            .iter()
            .find_map(|(key, need)| (**key == *name).then_some(need))
            .or(self.every.as_deref())
    }

    /// Returns the needed part of each element of a list, or None if no element is needed.
    pub(super) fn element(&self) -> Option<&NeededPart> {
        if self.whole {
            Some(&WHOLE)
        } else {
            self.every.as_deref()
        }
    }

    fn into_element(mut self) -> NeededPart {
        if self.whole {
            return Self::whole();
        }
        self.every.take().map(|need| *need).unwrap_or_default()
    }

    /// Returns the union of the needed parts of all members of a map.
    fn into_member(self) -> NeededPart {
        if self.whole {
            return Self::whole();
        }
        let mut member = self.every.map(|need| *need).unwrap_or_default();
        for (_, need) in self.named {
            member.merge(need);
        }
        member
    }

    /// Adds `other`. If the result has more than `limit` parts, the whole value is needed instead.
    fn merge_up_to(&mut self, other: NeededPart, limit: usize) {
        self.merge(other);
        if self.count() > limit {
            *self = Self::whole();
        }
    }

    /// Adds the part `other`, which another program needs of the same value.
    pub(super) fn merge_program(&mut self, other: NeededPart) {
        self.merge_up_to(other, MAX_PROGRAM_PARTS);
    }

    fn merge(&mut self, other: NeededPart) {
        if self.whole {
            return;
        }
        if other.whole {
            *self = Self::whole();
            return;
        }
        for (name, need) in other.named {
            match self.named.iter_mut().find(|(key, _)| *key == name) {
                Some((_, own)) => own.merge(need),
                None => self.named.push((name, need)),
            }
        }
        if let Some(need) = other.every {
            self.every.get_or_insert_default().merge(*need);
        }
        // The part that is needed of every member is also needed of each named member. With a copy
        // of this part in each named member, the size of the tree could double at each level. So
        // the whole value is marked as needed instead.
        if !self.named.is_empty() && self.every.as_ref().is_some_and(|need| !need.is_existence()) {
            *self = Self::whole();
        }
    }
}

/// Visits an op tree from its root to its leaves, and collects the needed parts of `object`, `item`
/// and the variables.
struct NeedCollector {
    object: NeededPart,
    item: NeededPart,
    /// The needed part of each variable of the environment, or None if the variable is not used.
    variables: Vec<Option<NeededPart>>,
    /// The needed part of each comprehension variable in scope, beginning with the outermost one.
    vars: Vec<NeededPart>,
    /// Number of parts that may still be copied. See [`MAX_COPIED_PARTS`].
    copies_left: usize,
}

impl NeedCollector {
    /// Collects the parts that an evaluation of `op` reads, if the part `want` of the result of
    /// `op` is needed.
    fn visit(&mut self, op: &Op, want: NeededPart) {
        // Each visit has a `want` of its own, so each copy is counted here.
        self.copies_left = self.copies_left.saturating_sub(want.count());
        if self.copies_left == 0 {
            self.object = NeededPart::whole();
            self.item = NeededPart::whole();
            return;
        }
        match op {
            Op::Const(_) | Op::Now => {}
            Op::Object => self.object.merge_program(want),
            Op::Item => self.item.merge_program(want),
            Op::Variable(slot) => {
                if let Some(variable) = self.variables.get_mut(*slot) {
                    variable.get_or_insert_default().merge_program(want);
                }
            }
            Op::LocalVariable(slot) => {
                if let Some(var) = self.vars.get_mut(*slot) {
                    var.merge_program(want);
                }
            }
            Op::Path(base, fields) | Op::OptionalPath(base, fields) => {
                let need = fields
                    .iter()
                    .rev()
                    .fold(want, |need, field| NeededPart::named(field, need));
                self.visit(base, need);
            }
            Op::Has(base, field) => {
                self.visit(base, NeededPart::named(field, NeededPart::default()));
            }
            Op::Index(pair) | Op::OptionalIndex(pair) => {
                self.visit(&pair.0, NeededPart::every(want));
                self.visit(&pair.1, NeededPart::whole());
            }
            Op::List(items) => {
                let element = want.into_element();
                for item in items {
                    self.visit(item, element.clone());
                }
            }
            Op::OptionalList(items) => {
                let element = want.into_element();
                for (item, _) in items {
                    self.visit(item, element.clone());
                }
            }
            Op::Map(entries) => {
                for (key, value) in entries {
                    self.visit(key, NeededPart::whole());
                    self.visit(value, NeededPart::whole());
                }
            }
            Op::OptionalMap(entries) => {
                for (key, value, _) in entries {
                    self.visit(key, NeededPart::whole());
                    self.visit(value, NeededPart::whole());
                }
            }
            Op::Not(operand) | Op::Neg(operand) | Op::InSet(operand, _) => {
                self.visit(operand, NeededPart::whole());
            }
            Op::Matches(operand, _) => self.visit(operand, NeededPart::whole()),
            Op::Find(search) => {
                self.visit(&search.text, NeededPart::whole());
                if let Some(limit) = &search.limit {
                    self.visit(limit, NeededPart::whole());
                }
            }
            Op::Otherwise(pair, _) => {
                self.visit(&pair.0, want.clone());
                self.visit(&pair.1, want);
            }
            Op::OptionalTransform(transform) => {
                self.vars.push(NeededPart::default());
                self.visit(&transform.body, want);
                let var = self.vars.pop().unwrap_or_default();
                self.visit(&transform.target, var);
            }
            Op::And(terms) | Op::Or(terms) => self.visit_all(terms),
            Op::Cond(parts) => {
                self.visit(&parts.0, NeededPart::whole());
                self.visit(&parts.1, want.clone());
                self.visit(&parts.2, want);
            }
            Op::Equal(pair, _) | Op::Order(pair, _) | Op::Arith(pair, _) | Op::In(pair) => {
                self.visit(&pair.0, NeededPart::whole());
                self.visit(&pair.1, NeededPart::whole());
            }
            Op::Call(function, args) => self.visit_call(*function, args, want),
            Op::Fold(fold) => self.visit_comprehension(fold, want),
        }
    }

    fn visit_call(&mut self, function: Function, args: &[Op], want: NeededPart) {
        match function {
            Function::Size => {
                for arg in args {
                    self.visit(arg, NeededPart::every(NeededPart::default()));
                }
            }
            // The result has the same parts as the argument. An optional has the parts of its
            // value.
            Function::Dyn | Function::OptionalOf | Function::Value => {
                for arg in args {
                    self.visit(arg, want.clone());
                }
            }
            Function::HasValue => {
                for arg in args {
                    self.visit(arg, NeededPart::default());
                }
            }
            // The result is an element of the list.
            Function::First | Function::Last => {
                for arg in args {
                    self.visit(arg, NeededPart::every(want.clone()));
                }
            }
            // The result has some or all elements of the list. The other arguments are numbers.
            Function::Slice | Function::Reverse => {
                let [list, numbers @ ..] = args else { return };
                self.visit(list, NeededPart::every(want.into_element()));
                self.visit_all(numbers);
            }
            _ => self.visit_all(args),
        }
    }

    fn visit_all(&mut self, ops: &[Op]) {
        for op in ops {
            self.visit(op, NeededPart::whole());
        }
    }

    fn visit_comprehension(&mut self, fold: &Comprehension, want: NeededPart) {
        let outer = self.vars.len();
        // With two variables, the second variable is an element of the list or a member of the map.
        // The first variable is an index or a key, which needs no decoded value.
        let element = outer + usize::from(fold.two_variables);
        self.vars.resize(element + 1, NeededPart::default());
        if let Some(test) = &fold.test {
            self.visit(test, NeededPart::whole());
        }
        let body = match fold.kind {
            ComprehensionKind::Map => want.clone().into_element(),
            ComprehensionKind::TransformMap => want.clone().into_member(),
            _ => NeededPart::whole(),
        };
        self.visit(&fold.body, body);
        if matches!(
            fold.kind,
            ComprehensionKind::Filter | ComprehensionKind::SortBy
        ) && let Some(var) = self.vars.get_mut(element)
        {
            var.merge_program(want.into_element());
        }
        let var = self.vars.pop().unwrap_or_default();
        self.vars.truncate(outer);
        self.visit(&fold.range, NeededPart::every(var));
    }
}
