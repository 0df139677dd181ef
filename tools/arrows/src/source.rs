//! The modules of a crate: what each defines, imports and mentions.

use proc_macro2::{TokenStream, TokenTree};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, Item, Meta, UseTree};

/// A path as it is written: `crate`, `self` and `super` included.
pub(crate) type ImportPath = Vec<String>;

/// A path that a module mentions.
#[derive(Debug, Clone)]
pub(crate) struct Mention {
    pub(crate) path: ImportPath,
    pub(crate) line: usize,
}

/// A parameter whose type is a tuple, or a reference to one.
#[derive(Debug, Clone)]
pub(crate) struct TupleParameter {
    pub(crate) function: String,
    pub(crate) line: usize,
}

/// The content of one module.
#[derive(Debug, Default)]
pub(crate) struct Module {
    /// `None` for the root.
    pub(crate) parent: Option<usize>,
    pub(crate) name: String,
    pub(crate) file: PathBuf,
    pub(crate) children: BTreeMap<String, usize>,
    /// Names of what is defined here.
    pub(crate) items: BTreeSet<String>,
    /// The number of fields of each type that is defined here; of an enum, of its largest variant.
    pub(crate) fields: BTreeMap<String, usize>,
    /// Inherent impls: the path of their type, and the number of their functions.
    pub(crate) impls: Vec<(ImportPath, usize)>,
    /// Names that a `use` brings here, and what they stand for.
    pub(crate) imports: BTreeMap<String, ImportPath>,
    /// Modules of which a `use` brings everything here.
    pub(crate) globs: Vec<ImportPath>,
    pub(crate) mentions: Vec<Mention>,
    pub(crate) tuples: Vec<TupleParameter>,
}

impl Module {
    /// Counts the fields of a type, or the functions of an inherent impl.
    fn measure(&mut self, item: &Item) {
        let (name, fields) = match item {
            Item::Struct(item) => (&item.ident, item.fields.len()),
            Item::Union(item) => (&item.ident, item.fields.named.len()),
            Item::Enum(item) => {
                let fields = item.variants.iter().map(|variant| variant.fields.len());
                (&item.ident, fields.max().unwrap_or(0))
            }
            Item::Impl(item) if item.trait_.is_none() => {
                if let syn::Type::Path(of) = item.self_ty.as_ref() {
                    let words = of.path.segments.iter().map(|part| part.ident.to_string());
                    let functions = item.items.iter().filter(|item| is_function(item));
                    self.impls.push((words.collect(), functions.count()));
                }
                return;
            }
            _ => return,
        };
        self.fields.insert(name.to_string(), fields);
    }
}

/// The modules of one library or binary; the root is the first.
#[derive(Debug)]
pub(crate) struct Modules(pub(crate) Vec<Module>);

/// Reads the text of a file.
pub(crate) type Read<'a> = &'a dyn Fn(&Path) -> Result<String, String>;

impl Modules {
    /// Reads a crate from its root file on, without code for tests.
    pub(crate) fn of(root: &Path, read: Read<'_>) -> Result<Self, String> {
        let mut reader = Reader {
            modules: Vec::new(),
            read,
        };
        let folder = root.parent().unwrap_or(Path::new("")).to_owned();
        reader.file(None, "crate", root, &folder)?;
        Ok(Self(reader.modules))
    }

    /// The name of a module below its root: `port::tap`.
    pub(crate) fn path(&self, module: usize) -> String {
        let line = self.line(module);
        let names = line.iter().skip(1).map(|i| self.0[*i].name.as_str());
        let names: Vec<_> = names.collect();
        if names.is_empty() {
            return "crate".into();
        }
        names.join("::")
    }

    /// The modules from the root down to this one.
    pub(crate) fn line(&self, module: usize) -> Vec<usize> {
        let mut line = vec![module];
        while let Some(parent) = self.0[line[line.len() - 1]].parent {
            line.push(parent);
        }
        line.reverse();
        line
    }
}

struct Reader<'a> {
    modules: Vec<Module>,
    read: Read<'a>,
}

impl Reader<'_> {
    /// Reads the module of a file, whose children have their files in `folder`.
    fn file(
        &mut self,
        parent: Option<usize>,
        name: &str,
        file: &Path,
        folder: &Path,
    ) -> Result<usize, String> {
        let text = (self.read)(file)?;
        let parsed = syn::parse_file(&text).map_err(|error| {
            let start = error.span().start();
            format!(
                "{}:{}:{}: {error}",
                file.display(),
                start.line,
                start.column + 1
            )
        })?;
        self.module(parent, name, file, folder, &parsed.items)
    }

    fn module(
        &mut self,
        parent: Option<usize>,
        name: &str,
        file: &Path,
        folder: &Path,
        items: &[Item],
    ) -> Result<usize, String> {
        let index = self.modules.len();
        self.modules.push(Module {
            parent,
            name: name.to_owned(),
            file: file.to_owned(),
            ..Module::default()
        });
        for item in items.iter().filter(|item| !is_for_tests(attributes(item))) {
            if let Item::Mod(module) = item {
                let child = self.child(index, folder, module)?;
                let name = self.modules[child].name.clone();
                self.modules[index].children.insert(name, child);
                continue;
            }
            self.modules[index].items.extend(defined(item));
            self.modules[index].measure(item);
            Mentions(&mut self.modules[index]).visit_item(item);
        }
        Ok(index)
    }

    fn child(
        &mut self,
        parent: usize,
        folder: &Path,
        module: &syn::ItemMod,
    ) -> Result<usize, String> {
        let name = module.ident.to_string();
        let below = folder.join(&name);
        if let Some((_, items)) = &module.content {
            let file = self.modules[parent].file.clone();
            return self.module(Some(parent), &name, &file, &below, items);
        }
        if let Some(path) = path_attribute(&module.attrs) {
            let beside = self.modules[parent].file.parent();
            let file = beside.unwrap_or(folder).join(path);
            let folder = file.parent().unwrap_or(folder).to_owned();
            return self.file(Some(parent), &name, &file, &folder);
        }
        let flat = folder.join(format!("{name}.rs"));
        let file = if (self.read)(&flat).is_ok() {
            flat
        } else {
            below.join("mod.rs")
        };
        self.file(Some(parent), &name, &file, &below)
    }
}

/// Collects the paths below a syntax node.
struct Mentions<'a>(&'a mut Module);

impl Mentions<'_> {
    fn add(&mut self, path: ImportPath, line: usize) {
        self.0.mentions.push(Mention { path, line });
    }

    fn import(&mut self, tree: &UseTree, prefix: &ImportPath) {
        let line = tree.span().start().line;
        let with = |name: &syn::Ident| {
            let mut path = prefix.clone();
            // `use a::{self}` is `use a`.
            if name != "self" || path.is_empty() {
                path.push(name.to_string());
            }
            path
        };
        match tree {
            UseTree::Path(tree) => self.import(&tree.tree, &with(&tree.ident)),
            UseTree::Group(group) => group
                .items
                .iter()
                .for_each(|tree| self.import(tree, prefix)),
            UseTree::Glob(_) => {
                self.0.globs.push(prefix.clone());
                self.add(prefix.clone(), line);
            }
            UseTree::Name(leaf) => {
                let path = with(&leaf.ident);
                let name = path[path.len() - 1].clone();
                self.0.imports.insert(name, path.clone());
                self.add(path, line);
            }
            UseTree::Rename(leaf) => {
                let path = with(&leaf.ident);
                self.0.imports.insert(leaf.rename.to_string(), path.clone());
                self.add(path, line);
            }
        }
    }

    /// Finds paths among the tokens of a macro or an attribute.
    fn tokens(&mut self, tokens: TokenStream) {
        let mut path: ImportPath = Vec::new();
        let (mut colons, mut line) = (0, 0);
        for token in tokens {
            match token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(name) if colons == 2 && !path.is_empty() => {
                    path.push(name.to_string());
                }
                TokenTree::Ident(name) => {
                    self.flush(&mut path, line);
                    line = name.span().start().line;
                    // A path that begins with `::` is another crate's.
                    if colons != 2 {
                        path.push(name.to_string());
                    }
                }
                TokenTree::Group(group) => {
                    self.flush(&mut path, line);
                    self.tokens(group.stream());
                }
                TokenTree::Literal(_) | TokenTree::Punct(_) => self.flush(&mut path, line),
            }
            colons = 0;
        }
        self.flush(&mut path, line);
    }

    fn flush(&mut self, path: &mut ImportPath, line: usize) {
        if !path.is_empty() {
            self.add(std::mem::take(path), line);
        }
    }
}

impl<'ast> Visit<'ast> for Mentions<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        if !is_for_tests(attributes(item)) {
            visit::visit_item(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        for parameter in &signature.inputs {
            if let syn::FnArg::Typed(parameter) = parameter
                && is_tuple(&parameter.ty)
            {
                self.0.tuples.push(TupleParameter {
                    function: signature.ident.to_string(),
                    line: signature.ident.span().start().line,
                });
            }
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_none() {
            self.import(&item.tree, &Vec::new());
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|part| part.ident.to_string());
            self.add(names.collect(), path.span().start().line);
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        match &attribute.meta {
            Meta::List(list) => {
                self.tokens(list.tokens.clone());
                strings(list.tokens.clone(), &mut |text, line| {
                    // `#[serde(with = "super::nanos")]`
                    if text.starts_with("crate::") || text.starts_with("super::") {
                        self.add(text.split("::").map(str::to_owned).collect(), line);
                    }
                });
            }
            Meta::Path(_) | Meta::NameValue(_) => {}
        }
    }
}

/// Calls `found` with each string among the tokens.
fn strings(tokens: TokenStream, found: &mut dyn FnMut(&str, usize)) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => strings(group.stream(), found),
            TokenTree::Literal(literal) => {
                let text = literal.to_string();
                found(text.trim_matches('"'), literal.span().start().line);
            }
            TokenTree::Ident(_) | TokenTree::Punct(_) => {}
        }
    }
}

/// Checks for a tuple of two or more, or a reference to one.
fn is_tuple(of: &syn::Type) -> bool {
    match of {
        syn::Type::Tuple(tuple) => tuple.elems.len() > 1,
        syn::Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

/// Checks that an item of an impl is a function outside of tests.
fn is_function(item: &syn::ImplItem) -> bool {
    matches!(item, syn::ImplItem::Fn(function) if !is_for_tests(&function.attrs))
}

/// Returns true for an item that exists only in tests.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let Meta::List(list) = &attribute.meta else {
            return attribute.path().is_ident("test");
        };
        let mut words = list.tokens.clone().into_iter();
        let test = |token: TokenTree| match token {
            TokenTree::Ident(name) => name == "test",
            TokenTree::Group(group) => {
                let mut inside = group.stream().into_iter();
                inside.any(|token| matches!(token, TokenTree::Ident(name) if name == "test"))
            }
            TokenTree::Punct(_) | TokenTree::Literal(_) => false,
        };
        let negative = list.tokens.to_string().starts_with("not");
        list.path.is_ident("cfg") && !negative && words.any(test)
    })
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else {
            return None;
        };
        let syn::Expr::Lit(syn::ExprLit { lit, .. }) = &pair.value else {
            return None;
        };
        match lit {
            syn::Lit::Str(path) if pair.path.is_ident("path") => Some(path.value()),
            _ => None,
        }
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::ExternCrate(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::ForeignMod(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::TraitAlias(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// The name that an item defines in its module.
fn defined(item: &Item) -> Option<String> {
    let name = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Macro(item) => item.ident.as_ref()?,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::TraitAlias(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(name.to_string())
}
