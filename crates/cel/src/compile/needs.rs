//! Computes which fields of the object an expression can read.

use super::op::{Comprehension, ComprehensionKind, Op};
use crate::document::projection::{NeededPart, Projection};

/// Maximum number of parts that are copied while the fields of one program are collected. If more
/// copies are necessary, the program needs the whole object. Without this limit, the number of
/// copies could double with each variable: `object.a ? variables.v['a'] : variables.v['b']` needs
/// every part of `v` twice.
const MAX_COPIED_PARTS: usize = 1 << 16;

/// Returns the field paths of `object` and the part of `item` that an evaluation of `op` can
/// read, also through variables. `variables` contains the op of each variable. `want` is the
/// part of the result of `op` that the caller needs.
pub(super) fn needs(op: &Op, want: NeededPart, variables: &[&Op]) -> (Projection, NeededPart) {
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
    let object = Projection {
        root: collector.object,
    };
    (object, collector.item)
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
                for (item, _) in items {
                    self.visit(item, element.clone());
                }
            }
            Op::Map(_) | Op::InSet(..) | Op::And(_) | Op::Or(_) => self.visit_all(op.operands()),
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
            Op::Cond(parts) => {
                self.visit(&parts.0, NeededPart::whole());
                self.visit(&parts.1, want.clone());
                self.visit(&parts.2, want);
            }
            Op::Call(function, args) => self.visit_call(function.name, args, want),
            Op::Fold(fold) => self.visit_comprehension(fold, want),
        }
    }

    fn visit_call(&mut self, name: &str, args: &[Op], want: NeededPart) {
        let need = match name {
            "size" => NeededPart::every(NeededPart::default()),
            // The result has the same parts as the argument. An optional has the parts of its
            // value.
            "dyn" | "optional.of" | "value" => want,
            "hasValue" => NeededPart::default(),
            // The result is an element of the list.
            "first" | "last" => NeededPart::every(want),
            // The result has some or all elements of the list. The other arguments are numbers.
            "slice" | "reverse" => {
                let [list, numbers @ ..] = args else { return };
                self.visit(list, NeededPart::every(want.into_element()));
                return self.visit_all(numbers);
            }
            _ => NeededPart::whole(),
        };
        for arg in args {
            self.visit(arg, need.clone());
        }
    }

    fn visit_all<'o>(&mut self, ops: impl IntoIterator<Item = &'o Op>) {
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
