-- The key of the digests that leave the process, the same for all nodes. Written once, in the
-- transaction of this migration; it is derived from 244 random bits.
CREATE TABLE digest_key (
    id  BIGINT NOT NULL PRIMARY KEY CHECK (id = 1),
    key BYTEA  NOT NULL CHECK (length(key) = 32)
);
INSERT INTO digest_key (id, key)
VALUES (1, sha256(convert_to(gen_random_uuid()::text || gen_random_uuid()::text, 'UTF8')));
