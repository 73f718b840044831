//! How the function makes its future, and whether its return type can carry an error.

use quote::ToTokens;
use syn::{ReturnType, Type};

use crate::async_trait::{self, BoxedFuture};
use crate::error::{Errors, target};
use crate::function::Function;
use crate::written::bare;

/// How the function makes its future.
pub(crate) enum Shape {
    /// An `async fn` with its return type.
    Async { returned: Type },
    /// A function that returns a boxed `async move` block.
    Boxed(BoxedFuture),
}

/// Determines the shape of a function. A return type that cannot carry an error is reported; whether an error type
/// implements `From<LockError>` is checked by the compiler.
pub(crate) fn of(function: &Function, errors: &mut Errors) -> Option<Shape> {
    let signature = &function.signature;
    if signature.asyncness.is_none() {
        let is_future = |ty: &Type| ty.to_token_stream().to_string().contains("Future");
        let Some(boxed) = BoxedFuture::recognise(function) else {
            match &signature.output {
                ReturnType::Type(_, ty) if is_future(ty) || async_trait::ends_in_a_box(&function.body) => {
                    errors.push_spanned(ty, target::returns_a_future());
                }
                _ => errors.push(signature.fn_token.span, target::not_async()),
            }
            return None;
        };
        return can_fail(function, &boxed.output, errors).then_some(Shape::Boxed(boxed));
    }
    let ReturnType::Type(_, returned) = &signature.output else {
        errors.push(
            signature.ident.span(),
            target::cannot_fail(&function.name(), "nothing"),
        );
        return None;
    };
    can_fail(function, returned, errors).then(|| Shape::Async {
        returned: Type::clone(returned),
    })
}

/// Whether the return type can carry an error; `()` and `!`, which cannot, are reported.
fn can_fail(function: &Function, returned: &Type, errors: &mut Errors) -> bool {
    let what = match bare(returned) {
        Type::Tuple(tuple) if tuple.elems.is_empty() => "nothing",
        Type::Never(_) => "`!`",
        _ => return true,
    };
    let message = target::cannot_fail(&function.name(), what);
    if function.signature.asyncness.is_some() {
        errors.push_spanned(returned, message);
    } else {
        // With `#[async_trait]` the unit type may be missing in the source, so there may be nothing to underline.
        errors.push(function.signature.ident.span(), message);
    }
    false
}
