-- Which session started another one never changes. Taken from the content, it had to be looked up
-- again in both indexes with every change of that.
DROP INDEX sessions_by_parent;
DROP INDEX sessions_without_parent;
ALTER TABLE sessions DROP COLUMN parent;
ALTER TABLE sessions ADD COLUMN parent TEXT;
UPDATE sessions SET parent = content->>'$.parent.session_id';

CREATE INDEX sessions_by_parent ON sessions (parent, session_id) WHERE parent IS NOT NULL;
CREATE INDEX sessions_without_parent ON sessions (owner, session_id) WHERE parent IS NULL;
