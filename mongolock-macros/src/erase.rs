//! Replaces `impl Trait` by `_` in a return type, because the expansion repeats the type in the body, where `impl Trait`
//! is not allowed.

use syn::punctuated::Punctuated;
use syn::{GenericArgument, Path, PathArguments, Token, Type, TypeInfer, TypeParamBound};

/// The type with `_` for every `impl Trait`, at the same source position.
pub(crate) fn erase_opaque_types(ty: &Type) -> Type {
    let mut erased = ty.clone();
    erase_in_type(&mut erased);
    erased
}

fn erase_in_type(ty: &mut Type) {
    match ty {
        Type::ImplTrait(opaque) => {
            let underscore_token = Token![_](opaque.impl_token.span);
            *ty = Type::Infer(TypeInfer {
                attrs: Vec::new(),
                underscore_token,
            });
        }
        Type::Array(array) => erase_in_type(&mut array.elem),
        Type::Group(group) => erase_in_type(&mut group.elem),
        Type::Paren(paren) => erase_in_type(&mut paren.elem),
        Type::Path(path) => erase_in_path(&mut path.path),
        Type::Ptr(pointer) => erase_in_type(&mut pointer.elem),
        Type::Reference(reference) => erase_in_type(&mut reference.elem),
        Type::Slice(slice) => erase_in_type(&mut slice.elem),
        Type::TraitObject(object) => erase_in_bounds(&mut object.bounds),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(erase_in_type),
        _ => {}
    }
}

fn erase_in_path(path: &mut Path) {
    for segment in &mut path.segments {
        if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
            for argument in &mut arguments.args {
                match argument {
                    GenericArgument::Type(ty) => erase_in_type(ty),
                    GenericArgument::AssocType(assoc) => erase_in_type(&mut assoc.ty),
                    _ => {}
                }
            }
        }
    }
}

fn erase_in_bounds(bounds: &mut Punctuated<TypeParamBound, Token![+]>) {
    for bound in bounds {
        if let TypeParamBound::Trait(bound) = bound {
            erase_in_path(&mut bound.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use quote::ToTokens;

    use super::*;

    #[test]
    fn erases_opaque_types_at_any_depth() {
        for (before, after) in [
            ("impl A", "_"),
            ("Result<impl A + 'a, E>", "Result<_, E>"),
            ("Result<(impl A, [impl B; 2]), E>", "Result<(_, [_; 2]), E>"),
            ("r::R<Vec<&'a mut impl A>, E>", "r::R<Vec<&'a mut _>, E>"),
            ("Box<dyn I<Item = impl A> + 'a>", "Box<dyn I<Item = _> + 'a>"),
            ("Result<Box<[impl A]>, (E)>", "Result<Box<[_]>, (E)>"),
            ("<T as X>::Y", "<T as X>::Y"),
        ] {
            let erased = erase_opaque_types(&syn::parse_str(before).unwrap());
            let erased = erased.to_token_stream().to_string();
            assert_eq!(erased.replace(' ', ""), after.replace(' ', ""));
        }
    }
}
