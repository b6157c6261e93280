/**
 * Text of models and tools as a person must see it before they decide by it: characters that hide,
 * reorder or control what stands beside them are written out. The command line writes out the same
 * ones in the same way (`src/cli/terminal.rs`).
 */

/** By it the sign before becomes a coloured picture, and nothing is hidden: `⚠️`. */
const EMOJI_SELECTOR = "(?<=(?!\\u2800)[\\u2190-\\u2bff\\u{1f000}-\\u{1faff}])\\ufe0f";
/** New lines and tabs are what they look like. Halves of characters stand for nothing. */
const UNSAFE_CHARS = new RegExp(
  `(?!\\n|\\t|\\r\\n|${EMOJI_SELECTOR})[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}\\u2800]`, "gu");

const escapeChar = (character: string) => (character === "\r" ? "\\r" : `\\u{${character.codePointAt(0)!.toString(16)}}`);

/** With all of it written out. */
export function escapeUnsafe(text: string): string {
  return text.replace(UNSAFE_CHARS, escapeChar);
}

export function hasUnsafeChars(text: string): boolean {
  return escapeUnsafe(text) !== text;
}

/** The same in JSON, which is still the same JSON. */
export function escapeUnsafeJson(value: unknown, indent?: number): string {
  return JSON.stringify(value, null, indent).replace(UNSAFE_CHARS, (character) =>
    character.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));
}

/** The same on a page, where what is written out stands out from text that only looks so. */
export function EscapedText({ text }: { text: string }) {
  if (!hasUnsafeChars(text)) return <>{text}</>;
  const parts: preact.ComponentChild[] = [];
  let position = 0;
  for (const match of text.matchAll(UNSAFE_CHARS)) {
    const [character] = match;
    parts.push(text.slice(position, match.index), <span class="escaped-char" title="Invisible character, or one that changes how the text is displayed">{escapeChar(character)}</span>);
    position = match.index + character.length;
  }
  return <>{parts}{text.slice(position)}</>;
}
