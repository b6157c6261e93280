import { describe, expect, it } from "vitest";
import { hasUnsafeChars, escapeUnsafe, escapeUnsafeJson } from "../src/components/escaped_text";
import { formatArguments } from "../src/components/format";
import { schemaFields, parseField, formatField } from "../src/approvals/schema_fields";

/** Contains “cilla the”, but is displayed as “allic the”. */
const SPOOF = "\u202Ecilla\u202C \u200Bthe";

describe("escaped text", () => {
  it("x5 escapes invisible, reordering and control characters", () => {
    expect(escapeUnsafe(SPOOF)).toBe("\\u{202e}cilla\\u{202c} \\u{200b}the");
    const unsafeChars = "\u0000 \u001b \u007f \u009b \u00ad \u034f \u061c \u115f \u180e \u200b \u200c \u200d \u200e \u200f \u2028 \u2029 \u202a \u2060 \u2066 \u2069 \u2800 \u3164 \ufe0f \ufeff \ufff9 \u{e0041} \u{e0100} \ud83d";
    for (const character of unsafeChars.split(" ")) expect(escapeUnsafe(`a${character}b`), character).toBe(`a\\u{${character.codePointAt(0)!.toString(16)}}b`);
    expect(escapeUnsafe("ok\u001b[2J\rApproved")).toBe("ok\\u{1b}[2J\\rApproved");
  });

  it("x5 does not change visible text", () => {
    for (const safeText of ["Größe 東京 – fine", "שלום, عربي", "one\n\ttwo\r\nthree", "⚠\ufe0f done 👍🏽", "a\u00a0b"]) {
      expect(hasUnsafeChars(safeText), safeText).toBe(false);
      expect(escapeUnsafe(safeText)).toBe(safeText);
    }
  });

  it("x5 formats JSON that parses to the same value", () => {
    const value = { [`a${SPOOF}`]: [SPOOF, "\u{e0041}", "⚠\ufe0f", "one\ntwo\u0000", "\ud83d"] };
    const text = escapeUnsafeJson(value, 2);
    expect(hasUnsafeChars(text)).toBe(false);
    expect(text).toContain("\\u202ecilla");
    expect(JSON.parse(text)).toEqual(value);
    expect(formatArguments({ to: SPOOF })).toBe("to \\u{202e}cilla\\u{202c} \\u{200b}the");
  });

  it("g8 can be edited with escapes", () => {
    const schema = { properties: { to: { type: "string" }, by: { type: "string", format: "email" }, side: { enum: ["buy", "sell"] } } };
    const value = { to: SPOOF, by: "ann@example.org", side: "bu\u200by" };
    const kinds = schemaFields(schema, value).map(({ kind }) => kind);
    expect(kinds).toEqual(["escaped", "email", "escaped"]);
    const text = formatField("escaped", SPOOF);
    expect(text).toBe('"\\u202ecilla\\u202c \\u200bthe"');
    expect(parseField("escaped", text, [])).toEqual({ value: SPOOF });
    expect(parseField("escaped", text.replace("\\u200b", ""), [])).toEqual({ value: "\u202ecilla\u202c the" });
    for (const invalidText of ["cilla", "1", '"']) expect(parseField("escaped", invalidText, [])).toHaveProperty("error");
  });
});
