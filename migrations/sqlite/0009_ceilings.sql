-- The ceilings that administrators set at run time, as JSON. `version` counts the changes.
CREATE TABLE ceilings (
    id      INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    version INTEGER NOT NULL,
    content TEXT    NOT NULL
) STRICT;
INSERT INTO ceilings (id, version, content) VALUES (1, 0, '{}');
