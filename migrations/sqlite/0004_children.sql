-- Sessions that another one started, and which run people watch when they ask something. Taken from
-- the content, so that it can't say anything else.
ALTER TABLE sessions ADD COLUMN parent TEXT
    GENERATED ALWAYS AS (content->>'$.parent.session_id') VIRTUAL;
ALTER TABLE approvals ADD COLUMN root TEXT
    GENERATED ALWAYS AS (content->>'$.root.session_id') VIRTUAL;

CREATE INDEX sessions_by_parent ON sessions (parent, session_id) WHERE parent IS NOT NULL;
CREATE INDEX sessions_without_parent ON sessions (owner, session_id) WHERE parent IS NULL;
CREATE INDEX approvals_by_root ON approvals (root, approval_id) WHERE root IS NOT NULL;
