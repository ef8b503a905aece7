//! Functions and traits for the code that `#[tool]` generates. They are not part of the public API.

#![allow(missing_docs, reason = "only generated code uses this")]

use rath_record::chunk::{Json, ToolSpec};
use serde_json::Value;

use crate::error::ErrorKind;
use crate::session::{Error, Result};

pub use {schemars, serde, serde_json};

/// Returns the specification of a tool that is a function.
pub fn spec<A: schemars::JsonSchema>(name: &str, description: &str) -> ToolSpec {
    ToolSpec::new(name, description, Json::from(super::schema_of::<A>()))
}

/// Reads the arguments of a function. They fit the schema, but a type may accept less than its schema says.
pub fn arguments<A: serde::de::DeserializeOwned>(arguments: Value) -> Result<A> {
    serde_json::from_value(arguments).map_err(|error| Error::new(ErrorKind::Arguments, error))
}

/// Conversion of the value that a function returned into the output of its tool.
///
/// Method resolution picks the trait: each has an `output` method on a value behind a different number of references, so the
/// compiler takes the first that fits the type, from the most specific on.
pub mod returned {
    use std::any::Any;
    use std::cell::Cell;
    use std::fmt::Display;

    use serde::Serialize;

    use crate::error::ErrorKind;
    use crate::session::{Error, Result};
    use crate::tool::Output;

    pub struct ReturnValue<T>(Cell<Option<T>>);

    impl<T> ReturnValue<T> {
        pub fn new(value: T) -> Self {
            ReturnValue(Cell::new(Some(value)))
        }

        fn take(&self) -> T {
            self.0.take().expect("the value is taken once")
        }
    }

    fn to_error<E: Display + 'static>(error: E) -> Error {
        // A hint is for the person who can act, and not for the model.
        let ours = (&error as &dyn Any).downcast_ref::<Error>();
        let kind = ours.map(Error::kind).filter(|kind| *kind == ErrorKind::Arguments).unwrap_or(ErrorKind::Tool);
        let message = ours.map_or_else(|| error.to_string(), |error| error.message());
        Error::new(kind, message)
    }

    /// The output of a function that returns nothing.
    fn done() -> Output {
        Output::from("done")
    }

    pub trait OutputOrError {
        fn output(&self) -> Result<Output>;
    }
    impl<E: Display + 'static> OutputOrError for &&&&&ReturnValue<Result<Output, E>> {
        fn output(&self) -> Result<Output> {
            self.take().map_err(to_error)
        }
    }

    pub trait NoValueOrError {
        fn output(&self) -> Result<Output>;
    }
    impl<E: Display + 'static> NoValueOrError for &&&&ReturnValue<Result<(), E>> {
        fn output(&self) -> Result<Output> {
            self.take().map_err(to_error).map(|()| done())
        }
    }

    pub trait ValueOrError {
        fn output(&self) -> Result<Output>;
    }
    impl<T: Serialize, E: Display + 'static> ValueOrError for &&&ReturnValue<Result<T, E>> {
        fn output(&self) -> Result<Output> {
            Output::from_value(&self.take().map_err(to_error)?)
        }
    }

    pub trait PlainOutput {
        fn output(&self) -> Result<Output>;
    }
    impl PlainOutput for &&ReturnValue<Output> {
        fn output(&self) -> Result<Output> {
            Ok(self.take())
        }
    }

    pub trait NoValue {
        fn output(&self) -> Result<Output>;
    }
    impl NoValue for &ReturnValue<()> {
        fn output(&self) -> Result<Output> {
            Ok(done())
        }
    }

    pub trait PlainValue {
        fn output(&self) -> Result<Output>;
    }
    impl<T: Serialize> PlainValue for ReturnValue<T> {
        fn output(&self) -> Result<Output> {
            Output::from_value(&self.take())
        }
    }
}
