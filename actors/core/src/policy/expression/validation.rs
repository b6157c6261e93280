//! What may be written in an expression, and how much work it can be.
//!
//! The language has no loops but `all`, `exists`, `map` and the like over a list, so the work is
//! bounded by what is written and by the size of the arguments; [`Weight`] says how.

use super::{ExpressionContext, context, mixed_arithmetic};
use crate::limits;
use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, operators},
};

const LOOPS_MAX: usize = limits::EXPRESSION_LOOPS_MAX;

/// Functions and names of types. All operators are among the functions.
const ALLOWED_FUNCTIONS: [&str; 27] = [
    operators::CONDITIONAL,
    operators::LOGICAL_AND,
    operators::LOGICAL_OR,
    operators::LOGICAL_NOT,
    operators::SUBSTRACT,
    operators::ADD,
    operators::MULTIPLY,
    operators::DIVIDE,
    operators::MODULO,
    operators::EQUALS,
    operators::NOT_EQUALS,
    operators::GREATER_EQUALS,
    operators::LESS_EQUALS,
    operators::GREATER,
    operators::LESS,
    operators::NEGATE,
    operators::INDEX,
    operators::IN,
    operators::NOT_STRICTLY_FALSE,
    "size",
    "contains",
    "startsWith",
    "endsWith",
    "int",
    "double",
    "string",
    "type",
];
const TYPES: [&str; 7] = ["bool", "double", "int", "list", "map", "null_type", "string"];

/// Bounds what the parser would recurse over: each sign may make the tree one level deeper, and
/// one in a text counts too, since only the parser knows where texts end.
pub(super) fn validate_operator_count(source: &str) -> Result<(), String> {
    let deepens = |byte: &u8| b"([{?!-+*/%<>=&|.".contains(byte);
    let words = source.split(|c: char| !c.is_alphanumeric()).filter(|word| *word == "in").count();
    let signs = source.bytes().filter(|byte| deepens(byte)).count() + words;
    let signs_max = limits::EXPRESSION_OPERATORS_MAX;
    if signs > signs_max {
        return Err(format!("it has more than {signs_max} operators and brackets"));
    }
    Ok(())
}

/// Checks the tree, and lets its numbers meet.
pub(super) fn check_and_rewrite(tree: &mut IdedExpr) -> Result<WorkBound, String> {
    let mut walk = ExpressionChecker { scope: Vec::new(), growth: 1 };
    let nodes = walk.expression(tree, 1)?;
    Ok(WorkBound { nodes, growth: walk.growth })
}

/// Parts of an expression by how many loops are around or before them.
type NodeCounts = [u64; LOOPS_MAX + 1];

/// How much work an expression is at most, as a function of the size of what it sees.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkBound {
    nodes: NodeCounts,
    /// How much larger than what it sees a value can become: additions, and places in lists.
    growth: u64,
}

impl WorkBound {
    /// Each part is evaluated once, in a loop once for each value there can be; and one evaluation
    /// may look at everything there is.
    pub(super) fn for_context(&self, facts: &ExpressionContext) -> u64 {
        let written: u64 = self.nodes.iter().sum();
        let values = facts.values.saturating_add(written);
        let size = values.saturating_add(facts.bytes / 16).saturating_mul(self.growth);
        let mut turns = 1_u64;
        let mut work = 0_u64;
        for nodes in self.nodes {
            work = work.saturating_add(nodes.saturating_mul(turns).saturating_mul(size));
            turns = turns.saturating_mul(values);
        }
        work
    }
}

struct ExpressionChecker {
    /// Variables of the loops we are in.
    scope: Vec<String>,
    growth: u64,
}

impl ExpressionChecker {
    fn expression(&mut self, part: &mut IdedExpr, depth: usize) -> Result<NodeCounts, String> {
        if depth > limits::EXPRESSION_DEPTH_MAX {
            return Err(format!(
                "it is nested deeper than {} levels",
                limits::EXPRESSION_DEPTH_MAX
            ));
        }
        let mut nodes = NodeCounts::default();
        nodes[0] = 1;
        let mut inner: Vec<&mut IdedExpr> = Vec::new();
        match &mut part.expr {
            Expr::Literal(_) => {}
            Expr::Ident(name) => self.name(name)?,
            Expr::Select(select) => {
                check_field(&select.operand, &select.field)?;
                inner.push(&mut select.operand);
            }
            Expr::Call(call) => {
                self.call(call)?;
                inner.extend(call.target.as_deref_mut());
                inner.extend(&mut call.args);
            }
            Expr::List(list) => {
                let grows = |item: &&mut IdedExpr| !matches!(item.expr, Expr::Literal(_));
                inner.extend(&mut list.elements);
                self.growth += inner.iter().filter(|item| grows(item)).count() as u64;
            }
            Expr::Map(map) => {
                for entry in &mut map.entries {
                    match &mut entry.expr {
                        EntryExpr::MapEntry(entry) => {
                            inner.extend([&mut entry.key, &mut entry.value]);
                        }
                        EntryExpr::StructField(_) => return Err("it builds a message".to_owned()),
                    }
                }
                self.growth += inner.len() as u64;
            }
            Expr::Comprehension(looping) => return self.check_comprehension(looping, depth),
            Expr::Struct(_) => return Err("it builds a message".to_owned()),
            Expr::Unspecified => return Err("a part of it is missing".to_owned()),
        }
        for part in inner {
            add(&mut nodes, &self.expression(part, depth + 1)?);
        }
        Ok(nodes)
    }

    /// A loop: everything in it is one level higher, its list included, since the list may come
    /// from another loop and be larger for it.
    fn check_comprehension(
        &mut self,
        looping: &mut ComprehensionExpr,
        depth: usize,
    ) -> Result<NodeCounts, String> {
        let mut nodes = self.expression(&mut looping.iter_range, depth + 1)?;
        let outside = self.scope.len();
        self.scope.push(looping.iter_var.clone());
        self.scope.extend(looping.iter_var2.clone());
        self.scope.push(looping.accu_var.clone());
        let parts = [
            &mut looping.accu_init,
            &mut looping.loop_cond,
            &mut looping.loop_step,
            &mut looping.result,
        ];
        for part in parts {
            add(&mut nodes, &self.expression(part, depth + 1)?);
        }
        self.scope.truncate(outside);
        let total: u64 = nodes.iter().sum();
        let highest = nodes.iter().rposition(|count| *count > 0).unwrap_or_default();
        if highest >= LOOPS_MAX {
            return Err(format!("it has more than {LOOPS_MAX} loops within or after each other"));
        }
        let mut raised = NodeCounts::default();
        raised[highest + 1] = total;
        Ok(raised)
    }

    fn name(&self, name: &str) -> Result<(), String> {
        let is_known = ["args", "user", "session"].contains(&name)
            || TYPES.contains(&name)
            || self.scope.iter().any(|known| known == name);
        if is_known {
            Ok(())
        } else {
            Err(format!("there is no `{name}`; there are args, user and session"))
        }
    }

    fn call(&mut self, call: &mut CallExpr) -> Result<(), String> {
        if !ALLOWED_FUNCTIONS.contains(&call.func_name.as_str()) {
            return Err(format!("there is no function `{}`", call.func_name));
        }
        if call.target.is_some() || self.is_accumulator_call(call) {
            return Ok(());
        }
        if call.func_name == operators::ADD {
            self.growth += 1;
        }
        if call.args.len() == 2
            && let Some(stand_in) = mixed_arithmetic::replacement_function(&call.func_name)
        {
            stand_in.clone_into(&mut call.func_name);
        }
        Ok(())
    }

    /// Whether the call adds to a loop's own result. Loops are written by the library, and it is
    /// quick only where it finds what it wrote. Such a name can't be written in an expression.
    fn is_accumulator_call(&self, call: &CallExpr) -> bool {
        match call.args.first().map(|first| &first.expr) {
            Some(Expr::Ident(name)) => name.starts_with('@'),
            _ => false,
        }
    }
}

/// Refuses fields that `user` and `session` never have.
fn check_field(of: &IdedExpr, field: &str) -> Result<(), String> {
    let Expr::Ident(variable) = &of.expr else { return Ok(()) };
    let fields: &[&str] = match variable.as_str() {
        "user" => &context::USER_FIELDS,
        "session" => &context::SESSION_FIELDS,
        _ => return Ok(()),
    };
    if fields.contains(&field) {
        return Ok(());
    }
    Err(format!("there is no `{variable}.{field}`; there are {}", fields.join(", ")))
}

fn add(nodes: &mut NodeCounts, others: &NodeCounts) {
    for (count, others) in nodes.iter_mut().zip(others) {
        *count += others;
    }
}
