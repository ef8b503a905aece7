//! Traces, in a program that was built without the feature `otel`.

pub(crate) enum Telemetry {}

impl Telemetry {
    pub(crate) fn start() -> Option<Self> {
        None
    }

    pub(crate) fn finish(self) {
        match self {}
    }
}
