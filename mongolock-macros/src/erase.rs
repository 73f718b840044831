//! `impl Trait` in a return type, written `_` where the type is repeated in the body.

use syn::punctuated::Punctuated;
use syn::{GenericArgument, Path, PathArguments, Token, Type, TypeInfer, TypeParamBound};

/// The type with every `impl Trait` left to inference, at the same place.
pub(crate) fn erase(ty: &Type) -> Type {
    let mut erased = ty.clone();
    in_type(&mut erased);
    erased
}

fn in_type(ty: &mut Type) {
    match ty {
        Type::ImplTrait(opaque) => {
            let underscore_token = Token![_](opaque.impl_token.span);
            *ty = Type::Infer(TypeInfer {
                attrs: Vec::new(),
                underscore_token,
            });
        }
        Type::Array(array) => in_type(&mut array.elem),
        Type::Group(group) => in_type(&mut group.elem),
        Type::Paren(paren) => in_type(&mut paren.elem),
        Type::Path(path) => in_path(&mut path.path),
        Type::Ptr(pointer) => in_type(&mut pointer.elem),
        Type::Reference(reference) => in_type(&mut reference.elem),
        Type::Slice(slice) => in_type(&mut slice.elem),
        Type::TraitObject(object) => in_bounds(&mut object.bounds),
        Type::Tuple(tuple) => tuple.elems.iter_mut().for_each(in_type),
        _ => {}
    }
}

fn in_path(path: &mut Path) {
    for segment in &mut path.segments {
        if let PathArguments::AngleBracketed(arguments) = &mut segment.arguments {
            for argument in &mut arguments.args {
                match argument {
                    GenericArgument::Type(ty) => in_type(ty),
                    GenericArgument::AssocType(assoc) => in_type(&mut assoc.ty),
                    _ => {}
                }
            }
        }
    }
}

fn in_bounds(bounds: &mut Punctuated<TypeParamBound, Token![+]>) {
    for bound in bounds {
        if let TypeParamBound::Trait(bound) = bound {
            in_path(&mut bound.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens, quote};

    use super::*;

    fn erased(ty: proc_macro2::TokenStream) -> String {
        erase(&syn::parse2(ty).unwrap()).to_token_stream().to_string()
    }

    #[test]
    fn reaches_every_place_where_an_opaque_type_may_stand() {
        for (before, after) in [
            (quote!(impl A), quote!(_)),
            (quote!(Result<impl A + 'a, E>), quote!(Result<_, E>)),
            (
                quote!(Result<(impl A, [impl B; 2]), E>),
                quote!(Result<(_, [_; 2]), E>),
            ),
            (
                quote!(r::Result<Vec<&'a mut impl A>, E>),
                quote!(r::Result<Vec<&'a mut _>, E>),
            ),
            (
                quote!(Box<dyn I<Item = impl A> + 'a>),
                quote!(Box<dyn I<Item = _> + 'a>),
            ),
            (quote!(Result<Box<[impl A]>, (E)>), quote!(Result<Box<[_]>, (E)>)),
            (quote!(<T as X>::Y), quote!(<T as X>::Y)),
        ] {
            assert_eq!(erased(before), after.to_string());
        }
    }
}
