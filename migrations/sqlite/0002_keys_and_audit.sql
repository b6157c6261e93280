-- API keys. A key itself is never stored, only its SHA-256.
CREATE TABLE api_keys (
    key_id     BLOB    NOT NULL PRIMARY KEY,
    hash       BLOB    NOT NULL UNIQUE,
    user_id    TEXT    NOT NULL,
    role       TEXT    NOT NULL CHECK (role IN ('user', 'approver', 'admin')),
    name       TEXT,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT, WITHOUT ROWID;

-- The audit log: `content` is canonical JSON, `hash` is the SHA-256 of the row before's hash and
-- the content. What queries need is taken from the content, so that it can't say anything else.
CREATE TABLE audit (
    n          INTEGER NOT NULL PRIMARY KEY CHECK (n >= 1),
    hash       BLOB    NOT NULL,
    content    TEXT    NOT NULL,
    session_id TEXT GENERATED ALWAYS AS (content->>'session_id') VIRTUAL,
    user_id    TEXT GENERATED ALWAYS AS (content->>'user') VIRTUAL,
    action     TEXT GENERATED ALWAYS AS (content->>'action') VIRTUAL
) STRICT;

CREATE INDEX audit_by_session ON audit (session_id, n) WHERE session_id IS NOT NULL;
CREATE INDEX audit_by_user ON audit (user_id, n) WHERE user_id IS NOT NULL;
CREATE INDEX audit_by_action ON audit (action, n);

-- Against accidents; whoever can write the file can drop them, and is found out by the hashes.
CREATE TRIGGER audit_stays BEFORE UPDATE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;
CREATE TRIGGER audit_remains BEFORE DELETE ON audit
BEGIN SELECT RAISE(ABORT, 'the audit log is append-only'); END;

-- The audit log's last row.
CREATE TABLE audit_head (
    id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    n    INTEGER NOT NULL,
    hash BLOB    NOT NULL
) STRICT;
INSERT INTO audit_head (id, n, hash) VALUES (1, 0, zeroblob(32));
