-- Amounts are exact decimal numbers, in text: SQLite has no type for them. Fifteen significant digits
-- are what a REAL represents; the rest is the noise of sums.
CREATE TABLE decimal_spending (
    user_id TEXT    NOT NULL,
    measure TEXT    NOT NULL,
    day     INTEGER NOT NULL,
    amount  TEXT    NOT NULL,
    PRIMARY KEY (user_id, measure, day)
) STRICT, WITHOUT ROWID;
INSERT INTO decimal_spending (user_id, measure, day, amount)
SELECT user_id, measure, day, printf('%.15g', amount) FROM spending;
DROP TABLE spending;
ALTER TABLE decimal_spending RENAME TO spending;
