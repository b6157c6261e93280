-- One row for all events of one decision, in commit order. `events` is their stored form, `codec`
-- says which (1: a JSON array, as text, so that every number and every escape stays as it is).
CREATE TABLE commits (
    id         BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    session_id UUID   NOT NULL,
    first_seq  BIGINT NOT NULL CHECK (first_seq >= 1),
    last_seq   BIGINT NOT NULL CHECK (last_seq >= first_seq),
    at         BIGINT NOT NULL,
    codec      BIGINT NOT NULL,
    events     TEXT   NOT NULL
);

-- Finds a session's events, and refuses a second commit after the same event.
CREATE UNIQUE INDEX commits_by_session ON commits (session_id, first_seq);

-- What lists show of a session: `content` is the row as JSON, the columns are what queries need.
-- The ids are UUIDs of version 7, so their order is the order of creation.
CREATE TABLE sessions (
    session_id UUID NOT NULL PRIMARY KEY,
    owner      TEXT NOT NULL,
    status     TEXT NOT NULL CHECK (status IN ('idle', 'running', 'waiting', 'closed')),
    content    TEXT NOT NULL
);

CREATE INDEX sessions_by_owner ON sessions (owner, session_id);
CREATE INDEX sessions_open ON sessions (owner, status) WHERE status <> 'closed';
CREATE INDEX sessions_running ON sessions (session_id) WHERE status = 'running';

-- Questions to people. `content` is the row as JSON.
CREATE TABLE approvals (
    approval_id UUID NOT NULL PRIMARY KEY,
    session_id  UUID NOT NULL,
    owner       TEXT NOT NULL,
    state       TEXT NOT NULL CHECK (state IN ('pending', 'decided', 'expired', 'cancelled')),
    deadline    BIGINT,
    content     TEXT NOT NULL
);

CREATE INDEX approvals_by_session ON approvals (session_id, approval_id);
CREATE INDEX approvals_by_owner ON approvals (owner, approval_id);
CREATE INDEX approvals_pending ON approvals (approval_id, session_id, deadline, owner)
    WHERE state = 'pending';

CREATE TABLE user_settings (
    user_id TEXT NOT NULL PRIMARY KEY,
    content TEXT NOT NULL
);

-- Written by the readiness check, to know that writing works.
CREATE TABLE heartbeat (
    id   BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    beat BIGINT NOT NULL
);
