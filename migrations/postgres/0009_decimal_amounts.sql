-- Amounts are exact decimal numbers. The cast keeps the fifteen significant digits that a DOUBLE
-- PRECISION represents; the rest is the noise of sums.
ALTER TABLE spending ALTER COLUMN amount TYPE NUMERIC USING round(amount::numeric, 12);
