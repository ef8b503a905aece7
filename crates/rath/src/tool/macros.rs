//! What the code calls that `#[tool]` writes. No part of what people use.

#![allow(missing_docs, reason = "nobody reads this but the compiler")]

use rath_record::chunk::{Json, ToolSpec};
use serde_json::Value;

use crate::error::ErrorKind;
use crate::session::{Error, Result};

pub use {schemars, serde, serde_json};

/// What the model is told of a function.
pub fn spec<A: schemars::JsonSchema>(name: &str, description: &str) -> ToolSpec {
    ToolSpec::new(name, description, Json::from(super::schema_of::<A>()))
}

/// The arguments of a function. The schema has let them through; what it cannot say is found out here.
pub fn arguments<A: serde::de::DeserializeOwned>(arguments: Value) -> Result<A> {
    serde_json::from_value(arguments).map_err(|error| Error::new(ErrorKind::Arguments, error))
}

/// What a function returned, made into what the model reads. Which of the traits applies is decided by the compiler: the
/// first that fits the type, from the most exact on.
pub mod say {
    use std::any::Any;
    use std::cell::Cell;
    use std::fmt::Display;

    use serde::Serialize;

    use crate::error::ErrorKind;
    use crate::session::{Error, Result};
    use crate::tool::Output;

    pub struct Said<T>(Cell<Option<T>>);

    impl<T> Said<T> {
        pub fn new(value: T) -> Self {
            Said(Cell::new(Some(value)))
        }

        fn take(&self) -> T {
            self.0.take().expect("it is said once")
        }
    }

    fn failed<E: Display + 'static>(error: E) -> Error {
        // A hint is for the person who can act, and not for the model.
        let ours = (&error as &dyn Any).downcast_ref::<Error>();
        let kind = ours.map(Error::kind).filter(|kind| *kind == ErrorKind::Arguments).unwrap_or(ErrorKind::Tool);
        let message = ours.map_or_else(|| error.to_string(), |error| error.message());
        Error::new(kind, message)
    }

    fn done() -> Output {
        Output::from("done")
    }

    pub trait OutputOrError {
        fn output(&self) -> Result<Output>;
    }
    impl<E: Display + 'static> OutputOrError for &&&&&Said<Result<Output, E>> {
        fn output(&self) -> Result<Output> {
            self.take().map_err(failed)
        }
    }

    pub trait NothingOrError {
        fn output(&self) -> Result<Output>;
    }
    impl<E: Display + 'static> NothingOrError for &&&&Said<Result<(), E>> {
        fn output(&self) -> Result<Output> {
            self.take().map_err(failed).map(|()| done())
        }
    }

    pub trait ValueOrError {
        fn output(&self) -> Result<Output>;
    }
    impl<T: Serialize, E: Display + 'static> ValueOrError for &&&Said<Result<T, E>> {
        fn output(&self) -> Result<Output> {
            Output::of(&self.take().map_err(failed)?)
        }
    }

    pub trait PlainOutput {
        fn output(&self) -> Result<Output>;
    }
    impl PlainOutput for &&Said<Output> {
        fn output(&self) -> Result<Output> {
            Ok(self.take())
        }
    }

    pub trait Nothing {
        fn output(&self) -> Result<Output>;
    }
    impl Nothing for &Said<()> {
        fn output(&self) -> Result<Output> {
            Ok(done())
        }
    }

    pub trait Value {
        fn output(&self) -> Result<Output>;
    }
    impl<T: Serialize> Value for Said<T> {
        fn output(&self) -> Result<Output> {
            Output::of(&self.take())
        }
    }
}
