//! `#[tool]` and `#[derive(Module)]`. Use them through the `rath` crate, whose documentation shows how.

mod module;
mod tool;

use proc_macro::TokenStream;

/// Turns an async function into a tool.
///
/// The function's name is the tool's name, its doc comment the description for the model, and its parameters, with their
/// doc comments, the arguments that the model fills in. A parameter that is an `Option` may be left out. A parameter of type
/// `&ToolCx` is the context of the call and not an argument. The function returns any value that can be written as JSON, or
/// a `Result` of one; the model reads a string as it is, and an error as a failure.
///
/// Options stand in the parentheses of the attribute:
///
/// | option | meaning |
/// |---|---|
/// | `read_only` | the tool changes nothing, so a call may run again |
/// | `idempotent` | a second call under the same key (`cx.key()`) changes nothing further, so a call may run again |
/// | `reads(a, b)`, `writes(c)` | the parameters that are paths which the tool reads or changes |
/// | `everything` | the tool may change anything, so no call that touches anything runs at the same time |
/// | `approval` | a person has to approve every call |
/// | `time_limit = 30` | the seconds that a call may take |
/// | `output_limit = 4096` | the bytes of the output that the model is shown |
/// | `name = "grep"` | the name that the model knows the tool by |
/// | `crate = agents` | the path of the `rath` crate, for a dependency under another name; `::rath` by default |
///
/// The macro generates a unit struct of the function's name that implements `Tool`; `name::invoke(..)` is the function.
#[proc_macro_attribute]
pub fn tool(options: TokenStream, function: TokenStream) -> TokenStream {
    tool::expand(options.into(), function.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Implements `Module` for a struct: its fields are its children, and its doc comment is its description.
///
/// A field that is not a module is marked `#[module(skip)]`. On the struct, `#[module(crate = agents)]` gives the path of the
/// `rath` crate, for a dependency under another name; it is `::rath` by default.
///
/// Two fields of one zero-sized type share an address, so a step could not say which of them appended it. The compiler
/// rejects them: give the type a field, such as a name that is marked `#[module(skip)]`.
#[proc_macro_derive(Module, attributes(module))]
pub fn module(input: TokenStream) -> TokenStream {
    module::expand(input.into()).unwrap_or_else(|error| error.to_compile_error()).into()
}
