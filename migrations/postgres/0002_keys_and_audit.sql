-- API keys. A key itself is never stored, only its SHA-256.
CREATE TABLE api_keys (
    key_id     UUID   NOT NULL PRIMARY KEY,
    hash       BYTEA  NOT NULL UNIQUE,
    user_id    TEXT   NOT NULL,
    role       TEXT   NOT NULL CHECK (role IN ('user', 'approver', 'admin')),
    name       TEXT,
    created_at BIGINT NOT NULL,
    revoked_at BIGINT
);

-- The audit log: `content` is canonical JSON, `hash` is the SHA-256 of the row before's hash and
-- the content. What queries need is taken from the content, so that it can't say anything else.
CREATE TABLE audit (
    n          BIGINT NOT NULL PRIMARY KEY CHECK (n >= 1),
    hash       BYTEA  NOT NULL,
    content    TEXT   NOT NULL,
    session_id TEXT   GENERATED ALWAYS AS (content::json->>'session_id') STORED,
    user_id    TEXT   GENERATED ALWAYS AS (content::json->>'user') STORED,
    action     TEXT   GENERATED ALWAYS AS (content::json->>'action') STORED
);

CREATE INDEX audit_by_session ON audit (session_id, n) WHERE session_id IS NOT NULL;
CREATE INDEX audit_by_user ON audit (user_id, n) WHERE user_id IS NOT NULL;
CREATE INDEX audit_by_action ON audit (action, n);

-- Against accidents; whoever owns the table can drop them, and is found out by the hashes.
CREATE FUNCTION audit_is_append_only() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN RAISE EXCEPTION 'the audit log is append-only'; END $$;
CREATE TRIGGER audit_stays BEFORE UPDATE OR DELETE ON audit
    FOR EACH ROW EXECUTE FUNCTION audit_is_append_only();
CREATE TRIGGER audit_remains BEFORE TRUNCATE ON audit
    FOR EACH STATEMENT EXECUTE FUNCTION audit_is_append_only();

-- The audit log's last row.
CREATE TABLE audit_head (
    id   BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    n    BIGINT NOT NULL,
    hash BYTEA  NOT NULL
);
INSERT INTO audit_head (id, n, hash) VALUES (1, 0, decode(repeat('00', 32), 'hex'));
