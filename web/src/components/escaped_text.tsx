/**
 * Escapes text of models and tools for display: characters that are invisible, reorder text or control
 * a terminal are written as escapes, so that an approver sees what is approved. The command line
 * escapes the same characters in the same way (`src/cli/terminal.rs`).
 */

import { stringifyJson } from "../api/json";

/** The variation selector after a symbol. It selects the emoji form and hides nothing: `⚠️`. */
const EMOJI_SELECTOR = "(?<=(?!\\u2800)[\\u2190-\\u2bff\\u{1f000}-\\u{1faff}])\\ufe0f";
/** Characters to escape. Line breaks and tabs are excluded; lone surrogates are included. */
const UNSAFE_CHARS = new RegExp(
  `(?!\\n|\\t|\\r\\n|${EMOJI_SELECTOR})[\\p{Cc}\\p{Cf}\\p{Cs}\\p{Zl}\\p{Zp}\\p{Default_Ignorable_Code_Point}\\u2800]`, "gu");

const escapeChar = (character: string) => (character === "\r" ? "\\r" : `\\u{${character.codePointAt(0)!.toString(16)}}`);

/** Replaces each unsafe character by an escape such as `\u{202e}`. */
export function escapeUnsafe(text: string): string {
  return text.replace(UNSAFE_CHARS, escapeChar);
}

/** Returns true if the text has a character that `escapeUnsafe` replaces. */
export function hasUnsafeChars(text: string): boolean {
  return escapeUnsafe(text) !== text;
}

/**
 * Formats a value as JSON with JSON escapes for unsafe characters. The JSON parses to the same
 * value.
 */
export function escapeUnsafeJson(value: unknown, indent?: number): string {
  return stringifyJson(value, indent).replace(UNSAFE_CHARS, (character) =>
    character.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));
}

/** Shows a text with escapes that are highlighted, to distinguish them from literal text. */
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
