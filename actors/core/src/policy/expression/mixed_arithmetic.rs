//! Arithmetic on mixed integers and floats, which CEL does not support. The result of
//! `args.quantity * args.price` must not depend on the notation of a price, `5` or `5.0`.

use cel::{
    Env, ExecutionError,
    common::{
        ast::operators,
        types::{CelDouble, CelInt, DYN_TYPE},
        value::{CowVal, Val},
    },
};

type CelResult<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// The operators and their replacement functions. The names can't be written in an expression.
const OPERATOR_FUNCTIONS: [(&str, &str); 4] = [
    (operators::ADD, "@number_add"),
    (operators::SUBSTRACT, "@number_subtract"),
    (operators::MULTIPLY, "@number_multiply"),
    (operators::DIVIDE, "@number_divide"),
];

/// Returns the function that replaces an operator.
pub(super) fn replacement_function(operator: &str) -> Option<&'static str> {
    OPERATOR_FUNCTIONS.iter().find(|(name, _)| *name == operator).map(|(_, function)| *function)
}

/// Registers the replacement functions.
pub(super) fn register_functions(functions: &mut Env) {
    let operations: [cel::common::functions::Function; 4] = [add, subtract, multiply, divide];
    for ((_, name), operation) in OPERATOR_FUNCTIONS.into_iter().zip(operations) {
        functions
            .add_overload(name, name, vec![DYN_TYPE, DYN_TYPE], operation)
            .expect("no built-in function starts with @number");
    }
}

fn add<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> CelResult<'b, 'v> {
    let (left, right) = operands("+", arguments)?;
    if let Some((left, right)) = to_mixed_floats(&*left, &*right) {
        return double(left + right);
    }
    let adder = left.as_adder().ok_or_else(|| no_overload(operators::ADD, &*left, &*right))?;
    adder.add(&*right).map(|sum| CowVal::Owned(sum.into_owned()))
}

fn subtract<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> CelResult<'b, 'v> {
    let (left, right) = operands("-", arguments)?;
    if let Some((left, right)) = to_mixed_floats(&*left, &*right) {
        return double(left - right);
    }
    let subtractor =
        left.as_subtractor().ok_or_else(|| no_overload(operators::SUBSTRACT, &*left, &*right))?;
    subtractor.sub(&*right).map(|difference| CowVal::Owned(difference.into_owned()))
}

fn multiply<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> CelResult<'b, 'v> {
    let (left, right) = operands("*", arguments)?;
    if let Some((left, right)) = to_mixed_floats(&*left, &*right) {
        return double(left * right);
    }
    let multiplier =
        left.as_multiplier().ok_or_else(|| no_overload(operators::MULTIPLY, &*left, &*right))?;
    multiplier.mul(&*right).map(|product| CowVal::Owned(product.into_owned()))
}

fn divide<'b, 'v>(arguments: Vec<CowVal<'b, 'v>>) -> CelResult<'b, 'v> {
    let (left, right) = operands("/", arguments)?;
    if let Some((left, right)) = to_mixed_floats(&*left, &*right) {
        return double(left / right);
    }
    let divider =
        left.as_divider().ok_or_else(|| no_overload(operators::DIVIDE, &*left, &*right))?;
    divider.div(&*right).map(|quotient| CowVal::Owned(quotient.into_owned()))
}

fn operands<'b, 'v>(
    operator: &str,
    arguments: Vec<CowVal<'b, 'v>>,
) -> Result<(CowVal<'b, 'v>, CowVal<'b, 'v>), ExecutionError> {
    let count = arguments.len();
    let [left, right] = <[CowVal<'b, 'v>; 2]>::try_from(arguments)
        .map_err(|_| ExecutionError::function_error(operator, format!("{count} operands")))?;
    Ok((left, right))
}

/// Returns both operands as floats if exactly one of them is an integer and the other is a float.
#[expect(clippy::cast_precision_loss, reason = "the other is floating point")]
fn to_mixed_floats(left: &dyn Val, right: &dyn Val) -> Option<(f64, f64)> {
    let as_integer = |value: &dyn Val| value.downcast_ref::<CelInt>().map(|number| *number.inner());
    let as_float =
        |value: &dyn Val| value.downcast_ref::<CelDouble>().map(|number| *number.inner());
    match (as_integer(left), as_float(right), as_float(left), as_integer(right)) {
        (Some(left), Some(right), _, _) => Some((left as f64, right)),
        (_, _, Some(left), Some(right)) => Some((left, right as f64)),
        _ => None,
    }
}

fn double<'b, 'v>(number: f64) -> CelResult<'b, 'v> {
    Ok(CowVal::owned(CelDouble::from(number)))
}

fn no_overload(operator: &str, left: &dyn Val, right: &dyn Val) -> ExecutionError {
    let types = [left, right].map(|value| value.get_type().name().to_owned());
    ExecutionError::no_such_overload(operator, types.to_vec())
}
