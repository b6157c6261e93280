//! The record file, an append-only file with one JSON line per effect, and the state computed from it.
//!
//! Every access locks the file and first reads the lines that others have appended. Several servers may
//! therefore share one file (for example a server that is shutting down and its successor), and an
//! idempotency key is valid across all of them. Independent of the protocol. Called by `server` and
//! `scan`, synchronously: a call holds the lock for one small write.

use std::{
    collections::HashMap,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    errors::ToolError,
    market::Market,
    state::{Effect, State},
};

/// Maximum number of records. A full file rejects writes, so that a start stays fast.
const RECORDS_MAX: usize = 100_000;
/// Maximum bytes of an idempotency key.
const KEY_BYTES_MAX: usize = 256;

/// The reason why the record file can't be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LedgerError {
    #[error("can't read or write {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("line {line} of {path} is not a record")]
    NotARecord { path: PathBuf, line: usize, source: serde_json::Error },
}

/// A line of the record file.
#[derive(Debug, Serialize, Deserialize)]
struct Record {
    at: String,
    #[serde(flatten)]
    effect: Effect,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    idempotency_key: Option<String>,
    result: Value,
}

/// The result of a recorded call.
#[derive(Debug, PartialEq)]
pub(crate) struct RecordOutcome {
    pub(crate) result: Value,
    /// True if the key was recorded before and nothing was done.
    pub(crate) replayed: bool,
}

/// The record file and its state.
pub(crate) struct Ledger {
    market: Arc<Market>,
    path: PathBuf,
    inner: Mutex<Inner>,
}

struct Inner {
    file: File,
    /// Number of bytes read; always directly after a newline.
    offset: u64,
    records: usize,
    state: State,
    keys: HashMap<(&'static str, String), (Effect, Value)>,
}

impl Ledger {
    /// Opens or creates the file and replays its records.
    pub(crate) fn open(path: PathBuf, market: Arc<Market>) -> Result<Self, LedgerError> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(&path);
        let file = file.map_err(|source| LedgerError::Io { path: path.clone(), source })?;
        let inner =
            Inner { file, offset: 0, records: 0, state: State::default(), keys: HashMap::new() };
        let ledger = Self { market, path, inner: Mutex::new(inner) };
        ledger.with_locked_state(|_| ())?;
        Ok(ledger)
    }

    /// Reads the state, up to date with the file.
    pub(crate) fn read<T>(&self, query: impl FnOnce(&State) -> T) -> Result<T, ToolError> {
        self.with_locked_state(|inner| query(&inner.state)).map_err(to_tool_error)
    }

    /// Records `effect`, unless `key` was recorded for the same tool before.
    pub(crate) fn record(
        &self,
        effect: Effect,
        key: Option<String>,
    ) -> Result<RecordOutcome, ToolError> {
        if key.as_ref().is_some_and(|key| key.len() > KEY_BYTES_MAX) {
            return Err(ToolError::KeyTooLong(KEY_BYTES_MAX));
        }
        self.with_locked_state(|inner| inner.record(&self.market, effect, key))
            .map_err(to_tool_error)?
    }

    /// Runs `operation` with the file locked and the state up to date.
    fn with_locked_state<T>(
        &self,
        operation: impl FnOnce(&mut Inner) -> T,
    ) -> Result<T, LedgerError> {
        let io = |source| LedgerError::Io { path: self.path.clone(), source };
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.file.lock().map_err(io)?;
        let outcome = match inner.catch_up() {
            Ok(()) => Ok(operation(&mut inner)),
            Err(CatchUpError::Io(source)) => Err(io(source)),
            Err(CatchUpError::NotARecord(line, source)) => {
                Err(LedgerError::NotARecord { path: self.path.clone(), line, source })
            }
        };
        inner.file.unlock().map_err(io)?;
        outcome
    }
}

enum CatchUpError {
    Io(io::Error),
    NotARecord(usize, serde_json::Error),
}

impl From<io::Error> for CatchUpError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Inner {
    /// Reads the records after `offset`.
    fn catch_up(&mut self) -> Result<(), CatchUpError> {
        let length = self.file.metadata()?.len();
        if length < self.offset {
            // The file was truncated by another program: start again from its content.
            (self.offset, self.records) = (0, 0);
            self.state = State::default();
            self.keys.clear();
        }
        if length == self.offset {
            return Ok(());
        }
        let mut bytes = Vec::new();
        self.file.seek(SeekFrom::Start(self.offset))?;
        self.file.read_to_end(&mut bytes)?;
        let complete = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        for line in bytes[..complete].split_inclusive(|&byte| byte == b'\n') {
            // Numbers in `effect`, which serde buffers, must come from a value.
            let record: Record = serde_json::from_slice::<Value>(line)
                .and_then(serde_json::from_value)
                .map_err(|error| CatchUpError::NotARecord(self.records + 1, error))?;
            self.offset += line.len() as u64;
            self.apply_record(record);
        }
        if complete < bytes.len() {
            // Writers append complete lines under the lock. An incomplete line was cut off by a
            // crash, and its call was never answered.
            let line = self.records + 1;
            eprintln!("market: ignoring an incomplete record in line {line}");
            self.file.set_len(self.offset)?;
        }
        Ok(())
    }

    fn apply_record(&mut self, record: Record) {
        self.records += 1;
        self.state.apply(&record.effect, &record.result);
        if let Some(key) = record.idempotency_key {
            self.keys.insert((record.effect.tool(), key), (record.effect, record.result));
        }
    }

    fn record(
        &mut self,
        market: &Market,
        effect: Effect,
        key: Option<String>,
    ) -> Result<RecordOutcome, ToolError> {
        if let Some(key) = &key
            && let Some((recorded, result)) = self.keys.get(&(effect.tool(), key.clone()))
        {
            return if *recorded == effect {
                Ok(RecordOutcome { result: result.clone(), replayed: true })
            } else {
                Err(ToolError::KeyReused(key.clone()))
            };
        }
        if self.records >= RECORDS_MAX {
            return Err(ToolError::RecordFull(RECORDS_MAX));
        }
        let result = self.state.compute_result(market, &effect)?;
        let record = Record { at: now(), effect, idempotency_key: key, result: result.clone() };
        self.append(&record).map_err(|error| ToolError::Record(error.to_string()))?;
        self.apply_record(record);
        Ok(RecordOutcome { result, replayed: false })
    }

    /// Appends a record in one write.
    fn append(&mut self, record: &Record) -> io::Result<()> {
        let mut line = serde_json::to_vec(record)?;
        line.push(b'\n');
        if let Err(error) = self.file.write_all(&line).and_then(|()| self.file.flush()) {
            // Remove a partial line: the call is about to report a failure.
            self.file.set_len(self.offset)?;
            return Err(error);
        }
        self.offset += line.len() as u64;
        Ok(())
    }
}

fn to_tool_error(error: LedgerError) -> ToolError {
    // The operator gets the cause; the model gets only the error.
    eprintln!(
        "market: {error}: {}",
        std::error::Error::source(&error).map_or_else(String::new, ToString::to_string)
    );
    ToolError::Record(error.to_string())
}

/// Returns the current time in RFC 3339, UTC, with milliseconds.
fn now() -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let millis = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    DateTime::<Utc>::from_timestamp_millis(millis)
        .unwrap_or_default()
        .to_rfc3339_opts(SecondsFormat::Millis, true)
}
