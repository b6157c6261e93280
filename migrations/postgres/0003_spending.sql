-- What users have spent, by measure and calendar day (UTC, counted from 1970-01-01): tokens, usd,
-- or a unit of tool costs. Reservations are in it; one that is released is taken off its own day.
CREATE TABLE spending (
    user_id TEXT             NOT NULL,
    measure TEXT             NOT NULL,
    day     BIGINT           NOT NULL,
    amount  DOUBLE PRECISION NOT NULL,
    PRIMARY KEY (user_id, measure, day)
);
