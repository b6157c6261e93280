-- The server that owns each short tool name: the one that had it first. No other server gets the name
-- while the owner is configured.
CREATE TABLE tool_names (
    name   TEXT NOT NULL PRIMARY KEY,
    server TEXT NOT NULL
) STRICT, WITHOUT ROWID;
