-- One row for all events of one decision, in commit order. `events` is their stored form, `codec`
-- says which (1: a JSON array, as text). Large values stay out of the key's tree.
CREATE TABLE commits (
    id         INTEGER PRIMARY KEY,
    session_id BLOB    NOT NULL,
    first_seq  INTEGER NOT NULL CHECK (first_seq >= 1),
    last_seq   INTEGER NOT NULL CHECK (last_seq >= first_seq),
    at         INTEGER NOT NULL,
    codec      INTEGER NOT NULL,
    events     ANY     NOT NULL
) STRICT;

-- Finds a session's events, and refuses a second commit after the same event.
CREATE UNIQUE INDEX commits_by_session ON commits (session_id, first_seq);

-- What lists show of a session: `content` is the row as JSON, the columns are what queries need.
-- The ids are UUIDs of version 7, so their order is the order of creation.
CREATE TABLE sessions (
    session_id BLOB NOT NULL PRIMARY KEY,
    owner      TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('idle', 'running', 'waiting', 'closed')),
    content    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX sessions_by_owner ON sessions (owner, session_id);
CREATE INDEX sessions_open ON sessions (owner, status) WHERE status <> 'closed';
CREATE INDEX sessions_running ON sessions (session_id) WHERE status = 'running';

-- Questions to people. `content` is the row as JSON.
CREATE TABLE approvals (
    id          INTEGER PRIMARY KEY,
    approval_id BLOB NOT NULL,
    session_id  BLOB NOT NULL,
    owner       TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('pending', 'decided', 'expired', 'cancelled')),
    deadline    INTEGER,
    content     TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX approvals_by_id ON approvals (approval_id);
CREATE INDEX approvals_by_session ON approvals (session_id, approval_id);
CREATE INDEX approvals_by_owner ON approvals (owner, approval_id);
CREATE INDEX approvals_pending ON approvals (approval_id, session_id, deadline, owner)
    WHERE state = 'pending';

CREATE TABLE user_settings (
    user_id TEXT NOT NULL PRIMARY KEY,
    content TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Written by the readiness check, to know that writing works.
CREATE TABLE heartbeat (
    id   INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    beat INTEGER NOT NULL
) STRICT;
