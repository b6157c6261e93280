//! Arithmetic between whole and fractional numbers, which the language itself does not have:
//! `args.quantity * args.price` must not depend on whether a price is written `5` or `5.0`.

use cel::{
    Env, ExecutionError,
    common::{
        ast::operators,
        types::{CelDouble, CelInt, DYN_TYPE},
        value::{CowVal, Val},
    },
};

type CelResult<'b, 'v> = Result<CowVal<'b, 'v>, ExecutionError>;

/// An operator, and the function that stands for it. Its name can't be written in an expression.
const OPERATOR_FUNCTIONS: [(&str, &str); 4] = [
    (operators::ADD, "@number_add"),
    (operators::SUBSTRACT, "@number_subtract"),
    (operators::MULTIPLY, "@number_multiply"),
    (operators::DIVIDE, "@number_divide"),
];

/// The function to call in place of the operator.
pub(super) fn replacement_function(operator: &str) -> Option<&'static str> {
    OPERATOR_FUNCTIONS.iter().find(|(name, _)| *name == operator).map(|(_, stand_in)| *stand_in)
}

/// Declares the functions.
pub(super) fn register_functions(functions: &mut Env) {
    let operations: [cel::common::functions::Function; 4] = [add, subtract, multiply, divide];
    for ((_, name), operation) in OPERATOR_FUNCTIONS.into_iter().zip(operations) {
        functions
            .add_overload(name, name, vec![DYN_TYPE, DYN_TYPE], operation)
            .expect("no function of the language starts with @number");
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
    subtractor.sub(&*right).map(|rest| CowVal::Owned(rest.into_owned()))
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
    let found = arguments.len();
    let [left, right] = <[CowVal<'b, 'v>; 2]>::try_from(arguments)
        .map_err(|_| ExecutionError::function_error(operator, format!("{found} operands")))?;
    Ok((left, right))
}

/// Both as fractional numbers, if exactly one is whole.
#[expect(clippy::cast_precision_loss, reason = "the other is floating point")]
fn to_mixed_floats(left: &dyn Val, right: &dyn Val) -> Option<(f64, f64)> {
    let whole = |value: &dyn Val| value.downcast_ref::<CelInt>().map(|number| *number.inner());
    let fraction =
        |value: &dyn Val| value.downcast_ref::<CelDouble>().map(|number| *number.inner());
    match (whole(left), fraction(right), fraction(left), whole(right)) {
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
