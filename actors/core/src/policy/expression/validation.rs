//! The validation of expressions: the permitted syntax, and the bound of the work.
//!
//! The language has no loops other than `all`, `exists`, `map` and similar macros over a list, so
//! the source and the size of the arguments bound the work; see [`WorkBound`].

use super::{ExpressionContext, context, mixed_arithmetic};
use crate::limits;
use cel::{
    IdedExpr,
    common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, operators},
};

const LOOPS_MAX: usize = limits::EXPRESSION_LOOPS_MAX;

/// The permitted functions, including all operators, and the names of type conversions.
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

/// Limits the recursion of the parser. Each operator sign can make the tree one level deeper. Signs
/// in string literals count too, since only the parser knows where literals end.
pub(super) fn validate_operator_count(source: &str) -> Result<(), String> {
    let deepens = |byte: &u8| b"([{?!-+*/%<>=&|.".contains(byte);
    let words = source.split(|c: char| !c.is_alphanumeric()).filter(|word| *word == "in").count();
    let signs = source.bytes().filter(|byte| deepens(byte)).count() + words;
    let signs_max = limits::EXPRESSION_OPERATORS_MAX;
    if signs > signs_max {
        return Err(format!("more than {signs_max} operators and brackets"));
    }
    Ok(())
}

/// Checks the tree, and replaces arithmetic operators with functions that accept mixed numbers.
pub(super) fn check_and_rewrite(tree: &mut IdedExpr) -> Result<WorkBound, String> {
    let mut checker = ExpressionChecker { scope: Vec::new(), growth: 1 };
    let nodes = checker.expression(tree, 1)?;
    Ok(WorkBound { nodes, growth: checker.growth })
}

/// The number of nodes of an expression, indexed by the number of loops around or before them.
type NodeCounts = [u64; LOOPS_MAX + 1];

/// An upper bound of the work of an expression, as a function of the size of its variables.
#[derive(Clone, Copy, Debug)]
pub(super) struct WorkBound {
    nodes: NodeCounts,
    /// The factor by which a value can exceed the variables in size: additions, and elements of
    /// list and map literals.
    growth: u64,
}

impl WorkBound {
    /// Returns the bound for these variables. A node is evaluated once, and in a loop once per
    /// value; one evaluation may read all values.
    pub(super) fn for_context(&self, context: &ExpressionContext) -> u64 {
        let literals: u64 = self.nodes.iter().sum();
        let values = context.values.saturating_add(literals);
        let size = values.saturating_add(context.bytes / 16).saturating_mul(self.growth);
        let mut iterations = 1_u64;
        let mut work = 0_u64;
        for nodes in self.nodes {
            work = work.saturating_add(nodes.saturating_mul(iterations).saturating_mul(size));
            iterations = iterations.saturating_mul(values);
        }
        work
    }
}

struct ExpressionChecker {
    /// The variables of the enclosing loops.
    scope: Vec<String>,
    growth: u64,
}

impl ExpressionChecker {
    fn expression(&mut self, part: &mut IdedExpr, depth: usize) -> Result<NodeCounts, String> {
        if depth > limits::EXPRESSION_DEPTH_MAX {
            return Err(format!("nested deeper than {} levels", limits::EXPRESSION_DEPTH_MAX));
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
                        EntryExpr::StructField(_) => {
                            return Err("message construction is not supported".to_owned());
                        }
                    }
                }
                self.growth += inner.len() as u64;
            }
            Expr::Comprehension(comprehension) => {
                return self.check_comprehension(comprehension, depth);
            }
            Expr::Struct(_) => return Err("message construction is not supported".to_owned()),
            Expr::Unspecified => return Err("incomplete expression".to_owned()),
        }
        for part in inner {
            add(&mut nodes, &self.expression(part, depth + 1)?);
        }
        Ok(nodes)
    }

    /// Checks a loop. Every part of the loop counts one level higher, including its list, since the
    /// list may be the result of another loop and larger than the variables.
    fn check_comprehension(
        &mut self,
        comprehension: &mut ComprehensionExpr,
        depth: usize,
    ) -> Result<NodeCounts, String> {
        let mut nodes = self.expression(&mut comprehension.iter_range, depth + 1)?;
        let outer_scope = self.scope.len();
        self.scope.push(comprehension.iter_var.clone());
        self.scope.extend(comprehension.iter_var2.clone());
        self.scope.push(comprehension.accu_var.clone());
        let parts = [
            &mut comprehension.accu_init,
            &mut comprehension.loop_cond,
            &mut comprehension.loop_step,
            &mut comprehension.result,
        ];
        for part in parts {
            add(&mut nodes, &self.expression(part, depth + 1)?);
        }
        self.scope.truncate(outer_scope);
        let total: u64 = nodes.iter().sum();
        let highest = nodes.iter().rposition(|count| *count > 0).unwrap_or_default();
        if highest >= LOOPS_MAX {
            return Err(format!("more than {LOOPS_MAX} nested or chained loops"));
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
            && let Some(replacement) = mixed_arithmetic::replacement_function(&call.func_name)
        {
            replacement.clone_into(&mut call.func_name);
        }
        Ok(())
    }

    /// Returns true if the call appends to the accumulator of a loop. The CEL library generates the
    /// loops and optimizes only the operators that it generated. The name of an accumulator can't
    /// be written in an expression.
    fn is_accumulator_call(&self, call: &CallExpr) -> bool {
        match call.args.first().map(|first| &first.expr) {
            Some(Expr::Ident(name)) => name.starts_with('@'),
            _ => false,
        }
    }
}

/// Rejects fields that `user` and `session` never have.
fn check_field(operand: &IdedExpr, field: &str) -> Result<(), String> {
    let Expr::Ident(variable) = &operand.expr else { return Ok(()) };
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
