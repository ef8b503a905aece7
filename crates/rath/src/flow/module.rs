//! What modules are made of, and what they are called.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rath_record::chunk::Instructions;

use super::Run;
use crate::provider::Provider;
use crate::sandbox::Sandbox;
use crate::session::{ModuleId, Result, Scope, Session};

/// A part of a program, with parts of its own.
///
/// `#[derive(Module)]` writes it: every field is a child under its name, and the doc comment is the description. A field
/// that is not a module is marked `#[module(skip)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    label = "this is not a module",
    note = "add `#[derive(Module)]` to the type; a field that is no part of the tree is marked `#[module(skip)]`"
)]
pub trait Module: Send + Sync + 'static {
    /// What kind of module it is: the name of its type.
    fn kind(&self) -> &str;

    /// The name that it gave itself, for where no parent gives it one.
    fn name(&self) -> Option<&str> {
        None
    }

    /// What it is for, in words that a selector reads.
    fn description(&self) -> &str {
        ""
    }

    /// What else is worth knowing, on one line: shown in the tree.
    fn detail(&self) -> String {
        String::new()
    }

    /// Its children with their names, in order.
    fn children(&self) -> Vec<(String, &dyn Module)> {
        Vec::new()
    }

    /// Binds it, and everything below it, to a provider or a place.
    fn bind(&mut self, binding: &Binding) {
        let _ = binding;
    }

    /// Binds the whole of it to a provider that all its agents ask from now on, or to a place where their tools run.
    fn to(mut self, binding: impl Into<Binding>) -> Self
    where
        Self: Sized,
    {
        self.bind(&binding.into());
        self
    }

    /// Every module in it with its path, itself first with an empty one.
    fn named_modules(&self) -> Modules<'_>
    where
        Self: Sized,
    {
        let mut all = Vec::new();
        collect_descendants("", self, &mut all);
        all.insert(0, (String::new(), self as &dyn Module));
        Modules(all.into_iter())
    }

    /// What it would tell its model now, if it has one.
    #[doc(hidden)]
    fn told(&self, session: &Session) -> Option<Instructions> {
        let _ = session;
        None
    }

    /// Whether every error of it carries the session as far as it came.
    #[doc(hidden)]
    fn errors_carry_the_session(&self) -> bool {
        false
    }

    /// What tells this module from every other that is there at the same time.
    #[doc(hidden)]
    fn identity(&self) -> ModuleId {
        ModuleId::new(self)
    }
}

/// What a module can be bound to.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Binding {
    /// Models are asked here.
    Provider(Provider),
    /// Tools run here.
    Sandbox(Sandbox),
}

impl From<Provider> for Binding {
    fn from(provider: Provider) -> Self {
        Binding::Provider(provider)
    }
}

impl From<&Provider> for Binding {
    fn from(provider: &Provider) -> Self {
        Binding::Provider(provider.clone())
    }
}

impl From<Sandbox> for Binding {
    fn from(sandbox: Sandbox) -> Self {
        Binding::Sandbox(sandbox)
    }
}

/// The modules of a tree with their paths, parents first.
pub struct Modules<'a>(std::vec::IntoIter<(String, &'a dyn Module)>);

impl<'a> Iterator for Modules<'a> {
    type Item = (String, &'a dyn Module);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

/// Draws a module and everything below it, one line each.
pub fn tree(module: &dyn Module) -> String {
    let mut drawn = String::new();
    draw(&mut drawn, None, module, 0);
    drawn
}

fn draw(out: &mut String, name: Option<&str>, module: &dyn Module, depth: usize) {
    let (kind, detail) = (module.kind(), module.detail());
    let name = name.map(|name| format!("({name}): ")).unwrap_or_default();
    let children = module.children();
    let _ = write!(out, "{:1$}{name}{kind}(", "", depth * 2);
    out.push_str(&detail);
    for (name, child) in &children {
        out.push('\n');
        draw(out, Some(name), *child, depth + 1);
    }
    if !children.is_empty() {
        let _ = write!(out, "\n{:1$}", "", depth * 2);
    }
    out.push(')');
}

/// Everything below a module, with the paths from it on.
fn collect_descendants<'a>(path: &str, module: &'a dyn Module, all: &mut Vec<(String, &'a dyn Module)>) {
    for (name, child) in module.children() {
        let path = if path.is_empty() { name } else { format!("{path}.{name}") };
        all.push((path.clone(), child));
        collect_descendants(&path, child, all);
    }
}

/// Hands a session to a module: steps are appended under the path of the module, and its children have their names.
pub(crate) fn enter_scope(session: Session, module: &dyn Module) -> Session {
    let path = module_path(&session, module);
    let mut descendants = Vec::new();
    collect_descendants("", module, &mut descendants);
    let names = descendants.into_iter().map(|(path, module)| (module.identity(), path.into())).collect();
    session.within_scope(Some(path), Some(Arc::new(Scope::new(names))))
}

/// Gives a name to the next module that the session is handed to.
pub(crate) fn name_next_module(session: Session, name: &str) -> Session {
    let by = session.module().map(Into::into);
    session.within_scope(by, Some(Arc::new(Scope::with_next(name))))
}

/// Returns the path of a module below the module that the session is in.
fn module_path(session: &Session, module: &dyn Module) -> Arc<str> {
    let name = match session.scope().and_then(|scope| scope.next()) {
        Some(name) => name.to_owned(),
        None => module_name(session, module),
    };
    match session.module() {
        Some(outer) => format!("{outer}.{name}").into(),
        None => name.into(),
    }
}

/// Returns the name of a module where the session is: the one that a parent gave it, or its own.
pub(crate) fn module_name(session: &Session, module: &dyn Module) -> String {
    match session.scope().and_then(|scope| scope.name(module.identity())) {
        Some(name) => name.to_owned(),
        None => module.name().map_or_else(|| to_snake_case(module.kind()), str::to_owned),
    }
}

/// A session in the hands of a module that appends to it and gives it back.
pub(super) struct Acting<'a> {
    session: &'a mut Session,
    by: Option<Arc<str>>,
}

impl<'a> Acting<'a> {
    pub(super) fn new(session: &'a mut Session, module: &dyn Module) -> Self {
        let by = session.set_by(Some(module_path(session, module)));
        Acting { session, by }
    }

    /// Gives it back, and that of an error too. Where no other module waits for it, what was appended is durable then.
    pub(super) async fn done<T>(self, result: Result<T>) -> Result<T> {
        let by = self.by.clone();
        let kept = if by.is_none() { self.session.durable().await } else { Ok(()) };
        result.and_then(|done| kept.map(|()| done)).map_err(|error| {
            error.map_session(|mut session| {
                session.set_by(by);
                session
            })
        })
    }
}

impl Deref for Acting<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for Acting<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}

impl Drop for Acting<'_> {
    fn drop(&mut self) {
        self.session.set_by(self.by.take());
    }
}

/// `ReviewLoop` as `review_loop`, `HTTPFetcher` as `http_fetcher`.
fn to_snake_case(kind: &str) -> String {
    let mut name = String::with_capacity(kind.len() + 4);
    let mut before = None::<char>;
    let mut chars = kind.chars().peekable();
    while let Some(c) = chars.next() {
        let begins = before.is_some_and(|before| {
            before.is_lowercase() || before.is_ascii_digit() || chars.peek().is_some_and(|next| next.is_lowercase())
        });
        if c.is_uppercase() && begins {
            name.push('_');
        }
        name.extend(c.to_lowercase());
        before = Some(c);
    }
    name
}

/// The module, where there is one.
impl<M: Module> Module for Option<M> {
    fn kind(&self) -> &str {
        self.as_ref().map_or("None", Module::kind)
    }

    fn name(&self) -> Option<&str> {
        self.as_ref().and_then(Module::name)
    }

    fn description(&self) -> &str {
        self.as_ref().map_or("", Module::description)
    }

    fn detail(&self) -> String {
        self.as_ref().map(Module::detail).unwrap_or_default()
    }

    fn children(&self) -> Vec<(String, &dyn Module)> {
        self.as_ref().map(Module::children).unwrap_or_default()
    }

    fn bind(&mut self, binding: &Binding) {
        self.iter_mut().for_each(|module| module.bind(binding));
    }

    fn identity(&self) -> ModuleId {
        let place = ModuleId::new(self);
        self.as_ref().map_or(place, Module::identity)
    }
}

/// Modules by number.
impl<M: Module> Module for Vec<M> {
    fn kind(&self) -> &str {
        "Vec"
    }

    fn children(&self) -> Vec<(String, &dyn Module)> {
        numbered(self)
    }

    fn bind(&mut self, binding: &Binding) {
        self.iter_mut().for_each(|module| module.bind(binding));
    }
}

/// Modules by number.
impl<M: Module, const N: usize> Module for [M; N] {
    fn kind(&self) -> &str {
        "Array"
    }

    fn children(&self) -> Vec<(String, &dyn Module)> {
        numbered(self)
    }

    fn bind(&mut self, binding: &Binding) {
        self.iter_mut().for_each(|module| module.bind(binding));
    }
}

fn numbered<M: Module>(modules: &[M]) -> Vec<(String, &dyn Module)> {
    modules.iter().enumerate().map(|(nth, module)| (nth.to_string(), module as &dyn Module)).collect()
}

/// Modules by name.
impl<M: Module> Module for BTreeMap<String, M> {
    fn kind(&self) -> &str {
        "BTreeMap"
    }

    fn children(&self) -> Vec<(String, &dyn Module)> {
        self.iter().map(|(name, module)| (name.clone(), module as &dyn Module)).collect()
    }

    fn bind(&mut self, binding: &Binding) {
        self.values_mut().for_each(|module| module.bind(binding));
    }
}

/// What is behind a pointer is the module, and not the pointer.
macro_rules! behind_a_pointer {
    () => {
        fn kind(&self) -> &str {
            (**self).kind()
        }

        fn name(&self) -> Option<&str> {
            (**self).name()
        }

        fn description(&self) -> &str {
            (**self).description()
        }

        fn detail(&self) -> String {
            (**self).detail()
        }

        fn children(&self) -> Vec<(String, &dyn Module)> {
            (**self).children()
        }

        fn errors_carry_the_session(&self) -> bool {
            (**self).errors_carry_the_session()
        }

        fn identity(&self) -> ModuleId {
            (**self).identity()
        }
    };
}

/// Any workflow.
impl Module for Box<dyn Run> {
    behind_a_pointer!();

    fn bind(&mut self, binding: &Binding) {
        (**self).bind(binding);
    }
}

/// A module that is shared. Bound, it is one's own.
impl<M: Module + Clone> Module for Arc<M> {
    behind_a_pointer!();

    fn bind(&mut self, binding: &Binding) {
        Arc::make_mut(self).bind(binding);
    }
}
