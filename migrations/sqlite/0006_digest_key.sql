-- The key of the digests that leave the process, the same for all nodes. Written once, in the
-- transaction of this migration; SQLite seeds its generator from the operating system.
CREATE TABLE digest_key (
    id  INTEGER NOT NULL PRIMARY KEY CHECK (id = 1),
    key BLOB    NOT NULL CHECK (length(key) = 32)
) STRICT;
INSERT INTO digest_key (id, key) VALUES (1, randomblob(32));
