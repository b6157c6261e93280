import { describe, expect, it } from "vitest";
import { isNumber, isObject, parseJson, parseNumber, stringifyJson } from "../src/api/json";
import { formatField, parseField, schemaFields } from "../src/approvals/schema_fields";
import { escapeUnsafeJson } from "../src/components/escaped_text";
import { formatArguments } from "../src/components/format";

const NUMBERS = [
  "123456789012345678901234567890", "0.1000000000000000055511151231257827", "1e+400", "1e-400", "9007199254740993", "-18446744073709551615",
];

describe("numbers", () => {
  it("m2 keep every digit when they are parsed, shown and written", () => {
    for (const number of NUMBERS) {
      const value = parseJson(`{"n":[${number}]}`);
      expect(stringifyJson(value)).toBe(`{"n":[${number}]}`);
      expect(escapeUnsafeJson(value)).toBe(`{"n":[${number}]}`);
      expect(formatArguments(value)).toBe(`n [${number}]`);
      expect(formatArguments(parseJson(`{"n":${number}}`))).toBe(`n ${number}`);
    }
  });

  it("m2 that JavaScript represents exactly are JavaScript numbers", () => {
    for (const text of ["0", "-1.5", "0.1", "123456789012345", "1e5", "0.30000000000000004"]) {
      expect(parseJson(text)).toBe(Number(text));
      expect(parseJson(`[${text},"019a0c50-6df4-7728-0000-800200844444"]`)).toEqual([Number(text), "019a0c50-6df4-7728-0000-800200844444"]);
    }
  });

  it("m2 are no objects", () => {
    const value = parseJson(NUMBERS[0]!);
    expect([isNumber(value), isObject(value), isObject({}), isObject([]), isObject(null)]).toEqual([true, false, true, false, false]);
  });

  it("m2 keep every digit in an edit", () => {
    for (const number of NUMBERS) {
      const value = parseJson(`{"n":${number}}`) as { n: number };
      expect(schemaFields({}, value)[0]!.kind).toBe("number");
      const text = formatField("number", value.n);
      expect(text).toBe(number);
      const parsed = parseField("number", text, []) as { value: number };
      expect(stringifyJson(parsed.value)).toBe(number);
    }
    expect(stringifyJson((parseField("integer", NUMBERS[0]!, []) as { value: number }).value)).toBe(NUMBERS[0]);
    expect(parseField("integer", NUMBERS[1]!, [])).toEqual({ error: "Enter an integer." });
    expect(stringifyJson((parseField("json", `[${NUMBERS[1]}]`, []) as { value: number[] }).value)).toBe(`[${NUMBERS[1]}]`);
  });

  it("m2 of other notations are accepted only if they are exact", () => {
    expect([" 5 ", ".5", "+5", "1e2"].map(parseNumber)).toEqual([5, 0.5, 5, 100]);
    expect(["", "x", "Infinity", "+123456789012345678901234567890"].map(parseNumber)).toEqual([null, null, null, null]);
  });
});
