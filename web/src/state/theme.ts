/**
 * The colour theme. It follows the system until the user selects one, which is stored in the
 * browser.
 */

import { Store } from "./store";

/** A colour theme. */
export type Theme = "light" | "dark";
const STORAGE_KEY = "greenroom.theme";

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const loadSelectedTheme = (): Theme | null => {
  const stored = localStorage.getItem(STORAGE_KEY);
  return stored === "light" || stored === "dark" ? stored : null;
};

/** The current theme. */
export const theme = new Store<Theme>(loadSelectedTheme() ?? (prefersDark.matches ? "dark" : "light"));

const applyTheme = () => {
  document.documentElement.dataset.theme = theme.get();
};
applyTheme();
theme.listen(applyTheme);
prefersDark.addEventListener("change", () => {
  if (!loadSelectedTheme()) theme.set(prefersDark.matches ? "dark" : "light");
});

/** Switches between light and dark, and stores the selection. */
export function toggleTheme(): void {
  const next = theme.get() === "dark" ? "light" : "dark";
  localStorage.setItem(STORAGE_KEY, next);
  theme.set(next);
}
