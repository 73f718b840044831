//! How the function makes its future, and whether what comes out of it could be an error at all.

use quote::ToTokens;
use syn::{ReturnType, Type};

use crate::async_trait::Boxed;
use crate::error::{Errors, target};
use crate::item::Function;

/// How the function makes its future.
pub(crate) enum Shape {
    Plain { returned: Type },
    Boxed(Boxed),
}

/// The future that the function makes, and whether its result can carry an error at all; which error types
/// qualify is the compiler's to say.
pub(crate) fn of(function: &Function, errors: &mut Errors) -> Option<Shape> {
    let signature = &function.signature;
    if signature.asyncness.is_none() {
        let Some(boxed) = Boxed::recognise(function) else {
            let future = matches!(&signature.output, ReturnType::Type(_, ty) if looks_like_a_future(ty));
            let message = if future {
                target::returns_a_future()
            } else {
                target::not_async()
            };
            errors.push(signature.fn_token.span, message);
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
    can_fail(function, returned, errors).then(|| Shape::Plain {
        returned: Type::clone(returned),
    })
}

fn can_fail(function: &Function, returned: &Type, errors: &mut Errors) -> bool {
    let what = match returned {
        Type::Tuple(tuple) if tuple.elems.is_empty() => "nothing",
        Type::Never(_) => "never",
        _ => return true,
    };
    let message = target::cannot_fail(&function.name(), what);
    if function.signature.asyncness.is_some() {
        errors.push_over(returned, message);
    } else {
        // Behind `#[async_trait]` a unit type may be written nowhere.
        errors.push(function.signature.ident.span(), message);
    }
    false
}

fn looks_like_a_future(returned: &Type) -> bool {
    let outer = match returned {
        Type::ImplTrait(_) => true,
        Type::Path(path) => path.path.segments.last().is_some_and(|segment| {
            segment.ident == "Pin" || segment.ident == "Box" || segment.ident.to_string().ends_with("Future")
        }),
        _ => false,
    };
    outer && returned.to_token_stream().to_string().contains("Future")
}
