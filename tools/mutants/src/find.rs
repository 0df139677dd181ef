//! The mutants of a source file: small mistakes that a test should notice.
//!
//! Only code in the bodies of functions has mutants. Macros, patterns, constants and code for tests
//! have none: a mutant is selected while the program runs, and theirs would have to be compiled.
//! Capacities of collections have none, either: they change no result.

use proc_macro2::Span;
use std::ops::Range;
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Lit, ReturnType, Stmt, Type, UnOp};

/// The way in which a mutant takes the place of code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// Another expression.
    Expression,
    /// Nothing, in place of a statement.
    Statement,
    /// A statement at the begin of a function's body.
    Entry,
}

/// A small mistake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mutant {
    /// Its line, from 1.
    pub(crate) line: usize,
    /// The function that has it.
    pub(crate) function: String,
    /// The bytes of the code that it takes the place of.
    pub(crate) range: Range<usize>,
    /// The code in its place.
    pub(crate) text: String,
    pub(crate) form: Form,
    /// The code before and after in a few words.
    pub(crate) change: String,
}

/// Returns the mutants of a file, and the names of its modules that are code for tests.
pub(crate) fn find(text: &str) -> Result<(Vec<Mutant>, Vec<String>), syn::Error> {
    let file = syn::parse_file(text)?;
    let mut finder = Finder {
        text,
        function: Vec::new(),
        mutants: Vec::new(),
        tests: Vec::new(),
    };
    finder.visit_file(&file);
    Ok((finder.mutants, finder.tests))
}

struct Finder<'t> {
    text: &'t str,
    /// The names of the functions and types around.
    function: Vec<String>,
    mutants: Vec<Mutant>,
    tests: Vec<String>,
}

/// Longest text of a change that is shown.
const SHOWN: usize = 100;

/// Returns code on one line, cut after some characters.
fn short(code: &str) -> String {
    let words: Vec<_> = code.split_whitespace().collect();
    let line = words.join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let path = attribute.path();
        path.is_ident("test")
            || path.is_ident("cfg")
                && attribute
                    .meta
                    .require_list()
                    .is_ok_and(|list| list.tokens.to_string().contains("test"))
    })
}

/// Checks whether a condition has a pattern in it (`if let`).
fn has_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        Expr::Paren(inner) => has_let(&inner.expr),
        _ => false,
    }
}

/// Returns operators that a mistake would write in place of one.
fn others(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Add(_) | BinOp::Rem(_) => &["-"],
        BinOp::Sub(_) | BinOp::Mul(_) => &["+"],
        BinOp::Div(_) => &["*"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::BitAnd(_) => &["|"],
        BinOp::BitOr(_) => &["&"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::AddAssign(_) => &["-=", "="],
        BinOp::SubAssign(_) | BinOp::MulAssign(_) | BinOp::DivAssign(_) => &["+="],
        _ => &[],
    }
}

/// Checks whether a function takes nothing but a capacity.
fn takes_capacity(name: &syn::Ident) -> bool {
    name == "with_capacity" || name == "reserve" || name == "shrink_to"
}

/// Returns the method that a mistake would call in place of one.
fn other_method(method: &str) -> Option<&'static str> {
    Some(match method {
        "min" => "max",
        "max" => "min",
        "saturating_add" => "saturating_sub",
        "saturating_sub" => "saturating_add",
        "wrapping_add" => "wrapping_sub",
        "wrapping_sub" => "wrapping_add",
        "is_some" => "is_none",
        "is_none" => "is_some",
        "all" => "any",
        "any" => "all",
        "first" => "last",
        "last" => "first",
        "is_some_and" => "is_none_or",
        "is_none_or" => "is_some_and",
        _ => return None,
    })
}

impl Finder<'_> {
    fn code(&self, span: Span) -> &str {
        &self.text[span.byte_range()]
    }

    fn add(&mut self, span: Span, form: Form, text: String, change: String) {
        if let Some(function) = self.function.last() {
            self.mutants.push(Mutant {
                line: span.start().line,
                function: function.clone(),
                range: span.byte_range(),
                text,
                form,
                change,
            });
        }
    }

    /// Adds a mutant of an expression.
    fn replace(&mut self, span: Span, text: String) {
        let change = format!("{} -> {}", short(self.code(span)), short(&text));
        self.add(span, Form::Expression, text, change);
    }

    fn binary(&mut self, node: &syn::ExprBinary) {
        if has_let(&node.left) || has_let(&node.right) {
            return;
        }
        let (left, right) = (self.code(node.left.span()), self.code(node.right.span()));
        let texts: Vec<_> = others(&node.op)
            .iter()
            .map(|operator| format!("{left} {operator} {right}"))
            .collect();
        for text in texts {
            self.replace(node.span(), text);
        }
    }

    fn literal(&mut self, node: &syn::ExprLit) {
        let Lit::Int(number) = &node.lit else { return };
        if let Ok(value) = number.base10_parse::<u128>() {
            let suffix = number.suffix();
            let text = format!("{}{suffix}", value.saturating_add(1));
            let span = node.span();
            let line = self
                .text
                .lines()
                .nth(span.start().line - 1)
                .unwrap_or_default();
            let change = format!("{} -> {text} in {}", self.code(span), short(line));
            self.add(span, Form::Expression, text, change);
        }
    }

    fn method(&mut self, node: &syn::ExprMethodCall) {
        if let Some(other) = other_method(&node.method.to_string()) {
            let (whole, name) = (node.span().byte_range(), node.method.span().byte_range());
            let (before, after) = (whole.start..name.start, name.end..whole.end);
            let text = format!("{}{other}{}", &self.text[before], &self.text[after]);
            self.replace(node.span(), text);
        }
    }

    fn condition(&mut self, condition: &Expr) {
        let is_negated = matches!(condition, Expr::Unary(it) if matches!(it.op, UnOp::Not(_)));
        // Those of comparisons are mutants already.
        if !is_negated && !has_let(condition) && !matches!(condition, Expr::Binary(_)) {
            let text = format!("!({})", self.code(condition.span()));
            self.replace(condition.span(), text);
        }
    }

    /// Adds mutants of a function that returns before it does anything.
    fn entry(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if block.stmts.is_empty() {
            return;
        }
        let values: &[&str] = match &signature.output {
            ReturnType::Default => &[""],
            ReturnType::Type(_, of) => match of.as_ref() {
                Type::Path(path) if path.path.is_ident("bool") => &["true", "false"],
                Type::Path(path)
                    if path
                        .path
                        .segments
                        .last()
                        .is_some_and(|it| it.ident == "Result") =>
                {
                    &[]
                }
                Type::Path(_) | Type::Tuple(_) => &["Default::default()"],
                _ => &[],
            },
        };
        for value in values {
            let text = format!("return {value};");
            let change = format!("begins with {}", text.replace(" ;", ";"));
            self.add(block.brace_token.span.open(), Form::Entry, text, change);
        }
    }

    fn function(
        &mut self,
        signature: &syn::Signature,
        block: &syn::Block,
        attributes: &[syn::Attribute],
    ) {
        let name = signature.ident.to_string();
        // A text for people is no mechanism.
        if is_for_tests(attributes) || name == "fmt" {
            return;
        }
        self.function.push(name);
        self.entry(signature, block);
        self.visit_block(block);
        self.function.pop();
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, node: &'ast syn::ItemFn) {
        self.function(&node.sig, &node.block, &node.attrs);
    }

    fn visit_impl_item_fn(&mut self, node: &'ast syn::ImplItemFn) {
        self.function(&node.sig, &node.block, &node.attrs);
    }

    fn visit_trait_item_fn(&mut self, node: &'ast syn::TraitItemFn) {
        if let Some(block) = &node.default {
            self.function(&node.sig, block, &node.attrs);
        }
    }

    fn visit_item_mod(&mut self, node: &'ast syn::ItemMod) {
        if !is_for_tests(&node.attrs) {
            visit::visit_item_mod(self, node);
        } else if node.content.is_none() {
            self.tests.push(node.ident.to_string());
        }
    }

    fn visit_item_impl(&mut self, node: &'ast syn::ItemImpl) {
        if !is_for_tests(&node.attrs) {
            visit::visit_item_impl(self, node);
        }
    }

    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_type(&mut self, _: &'ast Type) {}
    fn visit_variant(&mut self, _: &'ast syn::Variant) {}
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_angle_bracketed_generic_arguments(
        &mut self,
        _: &'ast syn::AngleBracketedGenericArguments,
    ) {
    }

    fn visit_expr_repeat(&mut self, node: &'ast syn::ExprRepeat) {
        self.visit_expr(&node.expr);
    }

    fn visit_stmt(&mut self, node: &'ast Stmt) {
        if let Stmt::Expr(expression, Some(_)) = node
            && matches!(
                expression,
                Expr::MethodCall(_) | Expr::Call(_) | Expr::Assign(_) | Expr::Binary(_)
            )
        {
            let change = format!("without {}", short(self.code(node.span())));
            self.add(node.span(), Form::Statement, String::new(), change);
        }
        visit::visit_stmt(self, node);
    }

    fn visit_expr(&mut self, node: &'ast Expr) {
        match node {
            Expr::Call(call)
                if matches!(&*call.func, Expr::Path(it)
                if it.path.segments.last().is_some_and(|it| takes_capacity(&it.ident))) =>
            {
                return;
            }
            Expr::MethodCall(call) if takes_capacity(&call.method) => {
                return self.visit_expr(&call.receiver);
            }
            Expr::Binary(binary) => self.binary(binary),
            Expr::Lit(literal) => self.literal(literal),
            Expr::MethodCall(call) => self.method(call),
            Expr::If(branch) => self.condition(&branch.cond),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let text = self.code(unary.expr.span()).to_owned();
                self.replace(unary.span(), text);
            }
            _ => {}
        }
        visit::visit_expr(self, node);
    }
}

#[cfg(test)]
mod tests;
