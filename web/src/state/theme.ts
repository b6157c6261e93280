/** Light or dark: what the system says, until somebody says otherwise. */

import { Store } from "./store";

export type Theme = "light" | "dark";
const KEY = "greenroom.theme";

const system = matchMedia("(prefers-color-scheme: dark)");
const chosen = (): Theme | null => {
  const said = localStorage.getItem(KEY);
  return said === "light" || said === "dark" ? said : null;
};

export const theme = new Store<Theme>(chosen() ?? (system.matches ? "dark" : "light"));

const apply = () => {
  document.documentElement.dataset.theme = theme.get();
};
apply();
theme.listen(apply);
system.addEventListener("change", () => {
  if (!chosen()) theme.set(system.matches ? "dark" : "light");
});

export function toggleTheme(): void {
  const next = theme.get() === "dark" ? "light" : "dark";
  localStorage.setItem(KEY, next);
  theme.set(next);
}
