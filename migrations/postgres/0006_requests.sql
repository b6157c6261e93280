-- Requests of chat clients whose ids are random, so that a repeated request is recognized on any
-- connection. A row is valid for a day after `at`, and is then deleted. `digest` is the digest of the
-- request's content.
CREATE TABLE requests (
    id         BIGINT NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    user_id    TEXT   NOT NULL,
    request_id TEXT   NOT NULL,
    session_id UUID   NOT NULL,
    digest     BYTEA  NOT NULL CHECK (length(digest) = 32),
    at         BIGINT NOT NULL
);

CREATE UNIQUE INDEX requests_by_id ON requests (user_id, request_id);
CREATE INDEX requests_by_session ON requests (session_id);
CREATE INDEX requests_by_time ON requests (at);

-- The approvals of each call. Taken from the content of `approvals`, so that it can't say anything
-- else.
CREATE TABLE approval_calls (
    call_id     TEXT NOT NULL,
    approval_id UUID NOT NULL REFERENCES approvals ON DELETE CASCADE,
    PRIMARY KEY (call_id, approval_id)
);

CREATE INDEX approval_calls_by_approval ON approval_calls (approval_id);

CREATE FUNCTION add_approval_calls() RETURNS trigger LANGUAGE plpgsql
AS $$ BEGIN
    INSERT INTO approval_calls (call_id, approval_id)
    SELECT DISTINCT step->>'call_id', NEW.approval_id
    FROM json_array_elements(NEW.content::json->'approval'->'steps') AS step
    WHERE step->>'call_id' IS NOT NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER approval_calls_added AFTER INSERT ON approvals
    FOR EACH ROW EXECUTE FUNCTION add_approval_calls();

INSERT INTO approval_calls (call_id, approval_id)
SELECT DISTINCT step->>'call_id', approval_id
FROM approvals, json_array_elements(approvals.content::json->'approval'->'steps') AS step
WHERE step->>'call_id' IS NOT NULL;
