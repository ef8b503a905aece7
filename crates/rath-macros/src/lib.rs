//! `#[tool]` and `#[derive(Module)]`. Use them through the `rath` crate, whose documentation shows how.

mod module;
mod tool;

use proc_macro::TokenStream;

/// Makes a tool of an async function.
///
/// The function's name is the tool's name, its doc comment what the model is told about it, and its parameters, with their
/// doc comments, what the model fills in. A parameter that is an `Option` may be left out. A parameter of type `&ToolCx` is
/// not filled in by the model: it is what the tool knows of the call. The function returns anything that can be written as
/// JSON, or a `Result` of it; the model reads a text as it is, and an error as a failure.
///
/// What stands in the parentheses says more about it:
///
/// | option | meaning |
/// |---|---|
/// | `read_only` | it changes nothing, so it may run again |
/// | `idempotent` | under the same key (`cx.key()`) it changes nothing further, so it may run again |
/// | `reads(a, b)`, `writes(c)` | the parameters that are paths which it reads or changes |
/// | `everything` | it may change anything, so nothing that touches anything runs beside it |
/// | `approval` | a person has to agree to every call |
/// | `time_limit = 30` | how many seconds a call may take |
/// | `output_limit = 4096` | how many bytes of its output the model is shown |
/// | `name = "grep"` | the name that the model knows it by |
///
/// What comes of it is a unit struct of the function's name that implements `Tool`; `name::invoke(..)` is the function.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, function: TokenStream) -> TokenStream {
    tool::expand(options.into(), function.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a module of a struct: its fields are its children, and its doc comment its description.
///
/// A field that is not a module is marked `#[module(skip)]`. Printed, the module shows its tree.
#[proc_macro_derive(Module, attributes(module))]
pub fn module(input: TokenStream) -> TokenStream {
    module::expand(input.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}
