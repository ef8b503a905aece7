//! The names of the modules that may be handed a session next.

use std::any::TypeId;
use std::sync::Arc;

/// The address and type of a module, which identify it while its parent runs.
///
/// A module does not know what its parent calls it. While the parent runs, nothing of it moves, so a child is recognised
/// by where it lies in memory. The type tells a struct from its first field, which has the same address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct ModuleId {
    address: usize,
    type_id: TypeId,
    is_zero_sized: bool,
}

impl ModuleId {
    /// Returns the identity of a value.
    pub(crate) fn new<T: ?Sized + 'static>(value: &T) -> Self {
        ModuleId {
            address: (&raw const *value).cast::<()>() as usize,
            type_id: TypeId::of::<T>(),
            is_zero_sized: size_of_val(value) == 0,
        }
    }
}

/// The modules below the one that a session is in, with their names.
pub(crate) struct Scope {
    /// Every module below the current one, with its path from there.
    names: Vec<(ModuleId, Arc<str>)>,
    /// The name of the next module that is handed the session, whichever it is.
    next: Option<Arc<str>>,
}

impl Scope {
    /// Creates a scope in which each of these modules has a name.
    pub(crate) fn new(names: Vec<(ModuleId, Arc<str>)>) -> Self {
        Scope { names, next: None }
    }

    /// Creates a scope in which the next module that is handed the session has this name.
    pub(crate) fn with_next(name: &str) -> Self {
        Scope { names: Vec::new(), next: Some(name.into()) }
    }

    /// Returns the name of the next module, if that was given beforehand.
    pub(crate) fn next(&self) -> Option<&str> {
        self.next.as_deref()
    }

    /// Returns the name of a module.
    ///
    /// Two values of one zero-sized type may share an address. Which of them is meant cannot be known, so neither name is
    /// returned. A module of any other size that has two names is one that is shared, and the first name is as good.
    pub(crate) fn name(&self, module: ModuleId) -> Option<&str> {
        let mut names = self.names.iter().filter(|(known, _)| *known == module).map(|(_, name)| &**name);
        let first = names.next()?;
        let is_ambiguous = module.is_zero_sized && names.next().is_some();
        (!is_ambiguous).then_some(first)
    }
}
