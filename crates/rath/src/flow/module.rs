//! Modules: their children, their names, and the tree that they form.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use rath_record::chunk::Instructions;

use super::Run;
use crate::provider::Provider;
use crate::sandbox::Sandbox;
use crate::session::{ModuleId, Result, Scope, Session};

/// A part of a program, which may have children.
///
/// `#[derive(Module)]` implements it for a struct: every field is a child under its name, and the doc comment is the
/// description. A field that is not a module is marked `#[module(skip)]`.
///
/// ```
/// use rath::prelude::*;
///
/// /// Writes, then corrects.
/// #[derive(Module)]
/// struct Office {
///     writer: Agent,
///     critic: Agent,
/// }
///
/// # fn main() -> rath::Result<()> {
/// # let provider = Provider::from(Script::of([r#"{"text": "Done."}"#])?);
/// let office = Office { writer: Agent::new("You write.", &provider), critic: Agent::new("You correct.", &provider) };
/// let paths: Vec<_> = office.named_modules().map(|(path, _)| path).collect();
/// assert_eq!(paths, ["", "writer", "critic"]);
/// # Ok(())
/// # }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a module",
    label = "this is not a module",
    note = "add `#[derive(Module)]` to the type; a field that is no part of the tree is marked `#[module(skip)]`"
)]
pub trait Module: Send + Sync + 'static {
    /// Returns the name of the module's type.
    fn kind(&self) -> &str;

    /// Returns the name that the module has where no parent gives it one.
    fn name(&self) -> Option<&str> {
        None
    }

    /// Returns a description for the model of a selector or an agent.
    fn description(&self) -> &str {
        ""
    }

    /// Returns further details on one line, for the tree.
    fn detail(&self) -> String {
        String::new()
    }

    /// Returns the children with their names, in order.
    fn children(&self) -> Vec<(String, &dyn Module)> {
        Vec::new()
    }

    /// Binds this module and everything below it to a provider or a place.
    fn bind(&mut self, binding: &Binding) {
        let _ = binding;
    }

    /// Binds this module and everything below it to a provider that all agents ask, or to a place where their tools run.
    fn to(mut self, binding: impl Into<Binding>) -> Self
    where
        Self: Sized,
    {
        self.bind(&binding.into());
        self
    }

    /// Draws this module and everything below it, one line each.
    ///
    /// ```
    /// use rath::prelude::*;
    ///
    /// #[derive(Module)]
    /// struct Readme {
    ///     agent: Agent,
    /// }
    ///
    /// # fn example() -> Result<()> {
    /// let readme = Readme { agent: Agent::new("You count words.", &Script::of([r#"{"text": "Five."}"#])?.into()) };
    /// assert_eq!(readme.tree(), "Readme(\n  (agent): Agent(script:script)\n)");
    /// # Ok(())
    /// # }
    /// # example().unwrap();
    /// ```
    fn tree(&self) -> String {
        let mut out = String::new();
        draw_tree(&mut out, None, self, 0);
        out
    }

    /// Returns every module of the tree with its path. This module comes first and has an empty path.
    fn named_modules(&self) -> Modules<'_>
    where
        Self: Sized,
    {
        let mut all = vec![(String::new(), self as &dyn Module)];
        collect_descendants("", self, &mut all);
        Modules(all.into_iter())
    }

    /// Returns the instructions that the module would give its model now, if it has one.
    #[doc(hidden)]
    fn current_instructions(&self, session: &Session) -> Option<Instructions> {
        let _ = session;
        None
    }

    /// Returns true if the module is an agent, whose runs are traced as such.
    #[doc(hidden)]
    fn is_agent(&self) -> bool {
        false
    }

    /// Returns true if every error of this module carries the session as far as it came.
    #[doc(hidden)]
    fn errors_carry_the_session(&self) -> bool {
        false
    }

    /// Returns the identity by which a scope finds the module's name.
    #[doc(hidden)]
    fn identity(&self) -> ModuleId {
        ModuleId::new(self)
    }
}

/// A provider or a place that a module can be bound to.
///
/// Passed to [`Module::to`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Binding {
    /// The provider that agents ask.
    Provider(Provider),
    /// The sandbox that tools run in.
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
///
/// Returned by [`Module::named_modules`].
pub struct Modules<'a>(std::vec::IntoIter<(String, &'a dyn Module)>);

impl<'a> Iterator for Modules<'a> {
    type Item = (String, &'a dyn Module);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next()
    }
}

fn draw_tree<M: Module + ?Sized>(out: &mut String, name: Option<&str>, module: &M, depth: usize) {
    let (kind, detail) = (module.kind(), module.detail());
    let name = name.map(|name| format!("({name}): ")).unwrap_or_default();
    let children = module.children();
    let _ = write!(out, "{:1$}{name}{kind}(", "", depth * 2);
    out.push_str(&detail);
    for (name, child) in &children {
        out.push('\n');
        draw_tree(out, Some(name), *child, depth + 1);
    }
    if !children.is_empty() {
        let _ = write!(out, "\n{:1$}", "", depth * 2);
    }
    out.push(')');
}

/// Appends everything below a module, with paths that begin at the module.
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

/// A guard under which a module appends to a session. Dropped, it restores the author of steps.
pub(super) struct AuthorGuard<'a> {
    session: &'a mut Session,
    /// The author before.
    by: Option<Arc<str>>,
}

impl<'a> AuthorGuard<'a> {
    pub(super) fn new(session: &'a mut Session, module: &dyn Module) -> Self {
        let by = session.set_by(Some(module_path(session, module)));
        AuthorGuard { session, by }
    }

    /// Restores the author, also in the session of an error. Outside any other module it waits until all steps are durable.
    pub(super) async fn finish<T>(self, result: Result<T>) -> Result<T> {
        let by = self.by.clone();
        let durable = if by.is_none() { self.session.durable().await } else { Ok(()) };
        result.and_then(|value| durable.map(|()| value)).map_err(|error| {
            error.map_session(|mut session| {
                session.set_by(by);
                session
            })
        })
    }
}

impl Deref for AuthorGuard<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for AuthorGuard<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
    }
}

impl Drop for AuthorGuard<'_> {
    fn drop(&mut self) {
        self.session.set_by(self.by.take());
    }
}

/// Turns `ReviewLoop` into `review_loop` and `HTTPFetcher` into `http_fetcher`.
fn to_snake_case(kind: &str) -> String {
    let mut name = String::with_capacity(kind.len() + 4);
    let mut previous = None::<char>;
    let mut chars = kind.chars().peekable();
    while let Some(c) = chars.next() {
        let starts_word = previous.is_some_and(|previous| {
            let ends_word = previous.is_lowercase() || previous.is_ascii_digit();
            ends_word || chars.peek().is_some_and(|next| next.is_lowercase())
        });
        if c.is_uppercase() && starts_word {
            name.push('_');
        }
        name.extend(c.to_lowercase());
        previous = Some(c);
    }
    name
}

/// An optional module: `None` has no children.
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
        self.as_ref().map_or_else(|| ModuleId::new(self), Module::identity)
    }
}

/// Modules that are named by their position.
impl<M: Module> Module for Vec<M> {
    fn kind(&self) -> &str {
        "Vec"
    }

    fn children(&self) -> Vec<(String, &dyn Module)> {
        children_by_position(self)
    }

    fn bind(&mut self, binding: &Binding) {
        self.iter_mut().for_each(|module| module.bind(binding));
    }
}

/// Modules that are named by their position.
impl<M: Module, const N: usize> Module for [M; N] {
    fn kind(&self) -> &str {
        "Array"
    }

    fn children(&self) -> Vec<(String, &dyn Module)> {
        children_by_position(self)
    }

    fn bind(&mut self, binding: &Binding) {
        self.iter_mut().for_each(|module| module.bind(binding));
    }
}

fn children_by_position<M: Module>(modules: &[M]) -> Vec<(String, &dyn Module)> {
    modules.iter().enumerate().map(|(nth, module)| (nth.to_string(), module as &dyn Module)).collect()
}

/// Modules that are named by their key.
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

/// Forwards the methods of a pointer to the module behind it.
macro_rules! forward_to_pointee {
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

        fn current_instructions(&self, session: &Session) -> Option<Instructions> {
            (**self).current_instructions(session)
        }

        fn is_agent(&self) -> bool {
            (**self).is_agent()
        }

        fn errors_carry_the_session(&self) -> bool {
            (**self).errors_carry_the_session()
        }

        fn identity(&self) -> ModuleId {
            (**self).identity()
        }
    };
}

/// A workflow of any type.
impl Module for Box<dyn Run> {
    forward_to_pointee!();

    fn bind(&mut self, binding: &Binding) {
        (**self).bind(binding);
    }
}

/// A shared module. Binding it makes a copy, so that other owners keep theirs as it is.
impl<M: Module + Clone> Module for Arc<M> {
    forward_to_pointee!();

    fn bind(&mut self, binding: &Binding) {
        Arc::make_mut(self).bind(binding);
    }
}
