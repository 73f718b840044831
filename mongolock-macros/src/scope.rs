//! The variables that an expression takes from outside, as opposed to those that it declares itself.

use proc_macro2::Ident;
use syn::ext::IdentExt;
use syn::visit::{self, Visit};
use syn::{
    Arm, Block, Expr, ExprCall, ExprClosure, ExprForLoop, ExprIf, ExprLet, ExprPath, ExprWhile, Item, Local,
    Pat,
};

use crate::function::bindings;

/// The first position at which the expression uses the variable `name` of its surroundings. The arguments of a macro
/// are not read, because they may be patterns or anything else.
pub(crate) fn first_use<'a>(expr: &'a Expr, name: &Ident) -> Option<&'a Ident> {
    let mut search = Search {
        name: name.unraw(),
        is_hidden: false,
        found: None,
    };
    search.visit_expr(expr);
    search.found
}

/// The search for a use of an argument in an expression.
struct Search<'a> {
    name: Ident,
    /// Whether a variable that the expression declares itself has the name here.
    is_hidden: bool,
    found: Option<&'a Ident>,
}

impl Search<'_> {
    /// From here to the end of the scope, the name is what the pattern binds, if it binds it.
    fn declare(&mut self, pattern: &Pat) {
        let mut found = Vec::new();
        bindings(pattern, &mut found);
        self.is_hidden |= found.iter().any(|binding| binding.unraw() == self.name);
    }

    /// Reads a part of the expression whose variables exist only in it.
    fn scope(&mut self, read: impl FnOnce(&mut Self)) {
        let is_hidden = self.is_hidden;
        read(self);
        self.is_hidden = is_hidden;
    }
}

impl<'a> Visit<'a> for Search<'a> {
    fn visit_expr_path(&mut self, path: &'a ExprPath) {
        let ident = path.path.get_ident().filter(|ident| ident.unraw() == self.name);
        self.found = self.found.or(ident.filter(|_| !self.is_hidden));
    }

    fn visit_expr_call(&mut self, call: &'a ExprCall) {
        // A function of the same name is another thing: the lock cannot be called.
        if !matches!(&*call.func, Expr::Path(_)) {
            self.visit_expr(&call.func);
        }
        call.args.iter().for_each(|argument| self.visit_expr(argument));
    }

    fn visit_block(&mut self, block: &'a Block) {
        self.scope(|search| visit::visit_block(search, block));
    }

    fn visit_local(&mut self, local: &'a Local) {
        visit::visit_local(self, local);
        self.declare(&local.pat);
    }

    fn visit_expr_closure(&mut self, closure: &'a ExprClosure) {
        self.scope(|search| {
            closure.inputs.iter().for_each(|input| search.declare(input));
            search.visit_expr(&closure.body);
        });
    }

    fn visit_arm(&mut self, arm: &'a Arm) {
        self.scope(|search| {
            search.declare(&arm.pat);
            visit::visit_arm(search, arm);
        });
    }

    fn visit_expr_let(&mut self, condition: &'a ExprLet) {
        visit::visit_expr_let(self, condition);
        self.declare(&condition.pat);
    }

    fn visit_expr_if(&mut self, branches: &'a ExprIf) {
        self.scope(|search| {
            search.visit_expr(&branches.cond);
            search.visit_block(&branches.then_branch);
        });
        if let Some((_, otherwise)) = &branches.else_branch {
            self.visit_expr(otherwise);
        }
    }

    fn visit_expr_while(&mut self, repeated: &'a ExprWhile) {
        self.scope(|search| visit::visit_expr_while(search, repeated));
    }

    fn visit_expr_for_loop(&mut self, repeated: &'a ExprForLoop) {
        self.visit_expr(&repeated.expr);
        self.scope(|search| {
            search.declare(&repeated.pat);
            search.visit_block(&repeated.body);
        });
    }

    /// An item inside an expression cannot use its variables.
    fn visit_item(&mut self, _: &'a Item) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uses(code: &str) -> bool {
        let expr: Expr = syn::parse_str(code).unwrap();
        first_use(&expr, &quote::format_ident!("lock")).is_some()
    }

    #[test]
    fn a_variable_of_the_surroundings_is_found() {
        for expr in [
            "lock",
            "r#lock",
            "provider_of(&lock)",
            "lock.provider()",
            "Job { lock }",
            "Job { token: lock.token() }",
            "{ let lock = lock.provider(); lock }",
            "{ { let lock = 1; } lock }",
            "{ let Some(lock) = a else { return lock }; lock }",
            "if let Some(lock) = a { lock } else { lock }",
            "match lock { lock => lock }",
            "f(|other| lock.get(other))",
            "f(|lock| 1, lock)",
            "{ for lock in lock {} }",
            "{ while let Some(lock) = a {} lock }",
            "(lock.f)()",
        ] {
            assert!(uses(expr), "{expr}");
        }
    }

    #[test]
    fn a_variable_of_the_expression_is_another_one() {
        for expr in [
            "{ let lock = provider(); lock }",
            "{ let (lock, _) = provider(); async { lock.clone() } }",
            "{ let Some(lock) = a else { return }; lock }",
            "locks.find(|lock| lock.is_free())",
            "match a { Some(lock) if lock.is_free() => lock, lock => lock }",
            "if let Some(lock) = a && lock.is_free() { lock } else { other }",
            "{ while let Some(lock) = a { lock; } for lock in locks { lock; } }",
            "lock(&provider)",
            "self.lock",
            "self.lock()",
            "lock::provider()",
            "Job { lock: other }",
            "{ fn f(lock: u8) -> u8 { lock } provider }",
            "matches!(a, Some(lock))",
        ] {
            assert!(!uses(expr), "{expr}");
        }
    }
}
