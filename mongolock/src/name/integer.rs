//! The derive macro's check that a type is the primitive integer with this name: the values of these types are known,
//! and the proof that two templates are disjoint depends on them.

macro_rules! integers {
    ($(#[$doc:meta])* $kind:ident: $($ty:ident)+) => {
        $(#[$doc])*
        #[diagnostic::on_unimplemented(
            message = "`{Self}` is not the primitive integer that its name says",
            label = "this name stands for another type here",
            note = "`#[derive(LockName)]` takes it for the primitive type: rename the other type, or write its path"
        )]
        pub trait $kind {
            /// Does nothing: the check is that the call compiles.
            fn is_primitive() {}
        }

        $(impl $kind for ::core::primitive::$ty {})+
    };
}

integers! {
    /// A primitive unsigned integer.
    UnsignedInteger: u8 u16 u32 u64 u128 usize
}

integers! {
    /// A primitive signed integer.
    SignedInteger: i8 i16 i32 i64 i128 isize
}
