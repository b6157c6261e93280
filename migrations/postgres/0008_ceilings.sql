-- The ceilings that administrators set at run time, as JSON. `version` counts the changes.
CREATE TABLE ceilings (
    id      BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    version BIGINT NOT NULL,
    content TEXT   NOT NULL
);
INSERT INTO ceilings (id, version, content) VALUES (1, 0, '{}');
