-- Requests of chat clients whose ids are random, so that a repeated request is recognized on any
-- connection. A row is valid for a day after `at`, and is then deleted. `digest` is the digest of the
-- request's content.
CREATE TABLE requests (
    id         INTEGER PRIMARY KEY,
    user_id    TEXT    NOT NULL,
    request_id TEXT    NOT NULL,
    session_id BLOB    NOT NULL,
    digest     BLOB    NOT NULL CHECK (length(digest) = 32),
    at         INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX requests_by_id ON requests (user_id, request_id);
CREATE INDEX requests_by_session ON requests (session_id);
CREATE INDEX requests_by_time ON requests (at);

-- The approvals of each call. Taken from the content of `approvals`, so that it can't say anything
-- else.
CREATE TABLE approval_calls (
    call_id     TEXT NOT NULL,
    approval_id BLOB NOT NULL,
    PRIMARY KEY (call_id, approval_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX approval_calls_by_approval ON approval_calls (approval_id);

CREATE TRIGGER approval_calls_added AFTER INSERT ON approvals BEGIN
    INSERT INTO approval_calls (call_id, approval_id)
    SELECT DISTINCT step.value->>'$.call_id', new.approval_id
    FROM json_each(new.content, '$.approval.steps') AS step
    WHERE step.value->>'$.call_id' IS NOT NULL;
END;
CREATE TRIGGER approval_calls_removed AFTER DELETE ON approvals BEGIN
    DELETE FROM approval_calls WHERE approval_id = old.approval_id;
END;

INSERT INTO approval_calls (call_id, approval_id)
SELECT DISTINCT step.value->>'$.call_id', approval_id
FROM approvals, json_each(approvals.content, '$.approval.steps') AS step
WHERE step.value->>'$.call_id' IS NOT NULL;
