//! Log lines on their way to standard error (E7).
//!
//! Dependencies log as well, and know nothing of our secrets: every line passes here, whoever wrote
//! it.

use crate::redaction::Redactor;
use std::{
    borrow::Cow,
    io::{self, Write},
    sync::{Arc, PoisonError, RwLock},
};

/// What blacks out lines; nothing does until the configuration has been read.
static REDACTOR: RwLock<Option<Arc<Redactor>>> = RwLock::new(None);

/// From now on the lines of this process are blacked out by `redactor`.
pub fn set_log_redactor(redactor: Arc<Redactor>) {
    *REDACTOR.write().unwrap_or_else(PoisonError::into_inner) = Some(redactor);
}

/// Takes one line, which the subscriber writes at once.
pub(super) struct RedactingWriter;

impl Write for RedactingWriter {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let redactor = REDACTOR.read().unwrap_or_else(PoisonError::into_inner).clone();
        let shown = redactor.as_ref().map_or(Cow::Borrowed(line), |own| redact_line(line, own));
        io::stderr().write_all(&shown)?;
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

    /// Collects what a subscriber writes, blacked out piece by piece as it comes.
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
        let pieces = CapturedLines(redactor, Arc::default());
        let (text, json) = (pieces.clone(), pieces.clone());
        let subscriber = tracing_subscriber::registry()
            .with(fmt::layer().with_writer(move || text.clone()))
            .with(fmt::layer().json().with_writer(move || json.clone()));
        tracing::subscriber::with_default(subscriber, || {
            let words = "at http://h/?key=k3y\"k3y-k3y";
            tracing::error!(target: "rmcp::transport", ?words, %words, "failed {words:?}");
        });
        let told = String::from_utf8(pieces.1.lock().unwrap().clone()).unwrap();
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(told.contains("key=[redacted]") && !told.contains("k3y-k3y"), "{told}");
    }
}
