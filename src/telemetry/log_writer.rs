//! Redacts log lines before they are written to standard error (E7).
//!
//! Covers every line of the process, because dependencies log too and do not know the secrets.

use crate::redaction::Redactor;
use std::{
    borrow::Cow,
    io::{self, Write},
    sync::{Arc, PoisonError, RwLock},
};

/// The redactor of log lines; not set until the configuration has been loaded.
static REDACTOR: RwLock<Option<Arc<Redactor>>> = RwLock::new(None);

/// Sets the redactor for all further log lines of this process.
pub fn set_log_redactor(redactor: Arc<Redactor>) {
    *REDACTOR.write().unwrap_or_else(PoisonError::into_inner) = Some(redactor);
}

/// Writes to standard error. Each `write` receives one complete line from the subscriber.
pub(super) struct RedactingWriter;

impl Write for RedactingWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let redactor = REDACTOR.read().unwrap_or_else(PoisonError::into_inner).clone();
        let redacted =
            redactor.as_ref().map_or(Cow::Borrowed(line), |redactor| redact_line(line, redactor));
        io::stderr().write_all(&redacted)?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

fn redact_line<'a>(line: &'a [u8], redactor: &Redactor) -> Cow<'a, [u8]> {
    let Ok(text) = std::str::from_utf8(line) else { return Cow::Borrowed(line) };
    match redactor.redact_text(text) {
        Cow::Borrowed(_) => Cow::Borrowed(line),
        Cow::Owned(clean) => Cow::Owned(clean.into_bytes()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use tracing_subscriber::{fmt, prelude::*};

    /// Collects the output of a subscriber, redacted by write.
    #[derive(Clone)]
    struct CapturedLines(Arc<Redactor>, Arc<Mutex<Vec<u8>>>);

    impl Write for CapturedLines {
        fn write(&mut self, line: &[u8]) -> io::Result<usize> {
            self.1.lock().unwrap().extend(&*redact_line(line, &self.0));
            Ok(line.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn e7_log_lines_of_dependencies_are_redacted() {
        let redactor = Arc::new(Redactor::new(["k3y\"k3y-k3y".to_owned()]));
        let captured = CapturedLines(redactor, Arc::default());
        let (text, json) = (captured.clone(), captured.clone());
        let subscriber = tracing_subscriber::registry()
            .with(fmt::layer().with_writer(move || text.clone()))
            .with(fmt::layer().json().with_writer(move || json.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let message = "at http://h/?key=k3y\"k3y-k3y";
            tracing::error!(target: "rmcp::transport", ?message, %message, "failed {message:?}");
        });
        let output = String::from_utf8(captured.1.lock().unwrap().clone()).unwrap();
        assert_eq!(output.lines().count(), 2, "{output}");
        assert!(output.contains("key=[redacted]") && !output.contains("k3y-k3y"), "{output}");
    }
}
