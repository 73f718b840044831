//! The modules and the paths that a source names outside of tests.

use proc_macro2::{TokenStream, TokenTree};
use syn::parse::discouraged::Speculative;
use syn::parse::{ParseStream, Parser};
use syn::visit::{self, Visit};
use syn::{Attribute, ExprPath, Ident, ImplItemFn, ItemFn, ItemImpl, ItemMod, ItemUse, Path};
use syn::{UseGlob, UseName, UsePath, UseRename, Variant, Visibility};

/// A path as written, after `use` or in code.
pub(crate) struct WrittenPath {
    pub(crate) segments: Vec<String>,
    /// The name that a `use` gives to the target of the path; `None` for `*` and for a path in code.
    pub(crate) name: Option<String>,
}

/// What the items of a module name: the modules directly below it, and the paths that could lead to other modules.
#[derive(Default)]
pub(crate) struct Names {
    pub(crate) modules: Vec<ItemMod>,
    pub(crate) paths: Vec<WrittenPath>,
    /// The segments before the part of a `use` that is being read.
    prefix: Vec<String>,
}

impl Names {
    fn import(&mut self, target: &Ident, name: &Ident) {
        let segments = [self.prefix.as_slice(), &[target.to_string()]].concat();
        let name = if name == "self" {
            self.prefix.last().cloned()
        } else {
            Some(name.to_string())
        };
        self.paths.push(WrittenPath { segments, name });
    }

    /// Reads the imports and paths in the tokens of a macro, which need not be an expression.
    fn paths_in_macro(&mut self, input: ParseStream<'_>) -> syn::Result<()> {
        while !input.is_empty() {
            let (import, path) = (input.fork(), input.fork());
            if let Ok(found) = import.parse::<ItemUse>() {
                input.advance_to(&import);
                self.visit_item_use(&found);
            } else if let Ok(found) = path.parse::<ExprPath>() {
                input.advance_to(&path);
                self.visit_expr_path(&found);
            } else if let TokenTree::Group(group) = input.parse()? {
                self.visit_token_stream(&group.stream());
            }
        }
        Ok(())
    }
}

/// Passes over these nodes if only tests compile them. Others are visited, so that too much is reported, not too little.
macro_rules! outside_tests {
    ($($visit:ident: $Node:ty),*) => {$(
        fn $visit(&mut self, node: &'a $Node) {
            if !is_for_tests(&node.attrs) {
                visit::$visit(self, node);
            }
        }
    )*};
}

impl<'a> Visit<'a> for Names {
    outside_tests! { visit_item_fn: ItemFn, visit_item_impl: ItemImpl, visit_impl_item_fn: ImplItemFn, visit_variant: Variant }

    fn visit_item_mod(&mut self, module: &'a ItemMod) {
        if !is_for_tests(&module.attrs) {
            self.modules.push(module.clone());
        }
    }

    /// A path that begins with `::` leads to another crate.
    fn visit_item_use(&mut self, import: &'a ItemUse) {
        if import.leading_colon.is_none() && !is_for_tests(&import.attrs) {
            self.visit_use_tree(&import.tree);
        }
    }

    fn visit_use_path(&mut self, path: &'a UsePath) {
        self.prefix.push(path.ident.to_string());
        self.visit_use_tree(&path.tree);
        self.prefix.pop();
    }

    fn visit_use_name(&mut self, import: &'a UseName) {
        self.import(&import.ident, &import.ident);
    }

    fn visit_use_rename(&mut self, import: &'a UseRename) {
        self.import(&import.ident, &import.rename);
    }

    fn visit_use_glob(&mut self, _: &'a UseGlob) {
        let segments = self.prefix.clone();
        self.paths.push(WrittenPath { segments, name: None });
    }

    fn visit_path(&mut self, path: &'a Path) {
        if path.leading_colon.is_none() && path.segments.len() > 1 {
            let segments = path.segments.iter().map(|segment| segment.ident.to_string());
            let segments = segments.collect();
            self.paths.push(WrittenPath { segments, name: None });
        }
        visit::visit_path(self, path);
    }

    fn visit_token_stream(&mut self, tokens: &'a TokenStream) {
        let read = |input: ParseStream<'_>| self.paths_in_macro(input);
        read.parse2(tokens.clone()).expect("every token is read");
    }

    /// `pub(in crate::a)` limits who may import, and imports nothing.
    fn visit_visibility(&mut self, _: &'a Visibility) {}
}

/// Whether an attribute is `#[cfg(test)]` or `#[cfg(all(…, test))]`; with `not` or `any`, its item is compiled elsewhere too.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    let conditions = attributes
        .iter()
        .filter(|attribute| attribute.path().is_ident("cfg"));
    conditions
        .filter_map(|cfg| cfg.meta.require_list().ok())
        .any(|cfg| {
            let text = cfg.tokens.to_string();
            let mut words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            let is_elsewhere = words.clone().any(|word| ["not", "any"].contains(&word));
            !is_elsewhere && words.any(|word| word == "test")
        })
}
