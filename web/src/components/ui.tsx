/** Basic components that every page uses. */

import type { ComponentChildren, JSX } from "preact";
import { useEffect, useId, useLayoutEffect, useRef, useState } from "preact/hooks";
import type { Problem } from "../api/http";
import type { Risk } from "../api/types";
import { Icon, type IconName } from "./icon";
import { RISK_LABELS } from "./format";

type Tone = "plain" | "primary" | "danger" | "quiet";

/**
 * A button. A busy button ignores clicks; it is not `disabled`, because that would lose the focus.
 */
export function Button({ tone = "plain", icon, children, busy = false, onClick, ...rest }: {
  tone?: Tone; icon?: IconName; busy?: boolean;
} & Omit<JSX.IntrinsicElements["button"], "icon">) {
  return (
    <button type="button" class={`button ${tone}`} aria-disabled={busy || undefined} aria-busy={busy || undefined} {...rest}
      onClick={busy ? (event) => event.preventDefault() : onClick}>
      {busy ? <span class="spinner" aria-hidden="true" /> : icon && <Icon name={icon} size={16} />}
      {children && <span>{children}</span>}
    </button>
  );
}

/** A button with an icon. `label` is its accessible name and tooltip. */
export function IconButton({ icon, label, ...rest }: { icon: IconName; label: string } & Omit<JSX.IntrinsicElements["button"], "icon" | "label">) {
  return (
    <button type="button" class="icon-button" aria-label={label} title={label} {...rest}>
      <Icon name={icon} />
    </button>
  );
}

/** A small label with a colour. */
export function Badge({ tone = "plain", children, title }: {
  tone?: "plain" | "good" | "warn" | "bad" | "info" | "tool"; children: ComponentChildren; title?: string;
}) {
  return <span class={`badge ${tone}`} title={title}>{children}</span>;
}

const RISK_TONE = { read_only: "plain", write_low_risk: "info", write_high_risk: "warn", critical: "bad" } as const;

/** A badge with the risk class of a tool. */
export function RiskBadge({ risk }: { risk: Risk }) {
  return <Badge tone={RISK_TONE[risk] ?? "warn"}>{RISK_LABELS[risk] ?? risk}</Badge>;
}

/** The content of an empty list or page. */
export function EmptyState({ icon, title, children }: { icon: IconName; title: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <span class="empty-icon"><Icon name={icon} size={26} /></span>
      <h2>{title}</h2>
      {children && <div class="empty-text">{children}</div>}
    </div>
  );
}

/** An error of a request, with a retry button. */
export function ErrorNotice({ problem, onRetry }: { problem: Problem; onRetry?: () => void }) {
  const title = problem.isOffline ? "Server unreachable" : "Request failed";
  return (
    <div class="failed" role="alert">
      <Icon name="warn" />
      <div>
        <strong>{title}</strong>
        <p>{problem.isOffline ? "The page loads again when the connection is back." : problem.message}</p>
      </div>
      {onRetry && <Button onClick={onRetry}>Retry</Button>}
    </div>
  );
}

/** A placeholder for content that is being loaded. */
export function Skeleton({ lines = 3 }: { lines?: number }) {
  return (
    <div class="skeleton" aria-hidden="true">
      {Array.from({ length: lines }, (_, index) => <span key={index} />)}
    </div>
  );
}

/** A placeholder that screen readers read as “Loading …”. */
export function Loading({ subject, lines }: { subject: string; lines?: number }) {
  return (
    <div role="status" class="loading">
      <span class="sr-only">Loading {subject}</span>
      <Skeleton lines={lines} />
    </div>
  );
}

/** A group of buttons of which one is pressed. */
export function SegmentedControl<T extends string>({ label, value, options, onChange, small = false }: {
  label: string; value: T; small?: boolean;
  options: { value: T; label: string; title?: string }[]; onChange: (value: T) => void;
}) {
  return (
    <div class={`segmented${small ? " small" : ""}`} role="group" aria-label={label}>
      {options.map((option) => (
        <button key={option.value} type="button" aria-pressed={option.value === value} title={option.title}
          onClick={() => onChange(option.value)}>
          {option.label}
        </button>
      ))}
    </div>
  );
}

/** A checkbox with a label. */
export function Toggle({ label, checked, onChange, title }: {
  label: string; checked: boolean; onChange: (checked: boolean) => void; title?: string;
}) {
  return (
    <label class="toggle" title={title}>
      <input type="checkbox" checked={checked} onChange={(event) => onChange(event.currentTarget.checked)} />
      <span>{label}</span>
    </label>
  );
}

/** A text input that replaces the button that opened it and takes its focus. */
export function AutofocusInput({ label, value, placeholder, onInput }: {
  label: string; value: string; placeholder?: string; onInput: (text: string) => void;
}) {
  const field = useRef<HTMLInputElement>(null);
  useLayoutEffect(() => field.current?.focus(), []);
  return (
    <input ref={field} type="text" aria-label={label} placeholder={placeholder} value={value}
      onInput={(event) => onInput(event.currentTarget.value)} />
  );
}

/** A modal dialog. On close, the focus returns synchronously to the element that had it before. */
export function Dialog({ title, onClose, children, actions, wide = false }: {
  title: string; onClose: () => void; children: ComponentChildren; actions?: ComponentChildren; wide?: boolean;
}) {
  const dialog = useRef<HTMLDialogElement>(null);
  const id = useId();
  useLayoutEffect(() => {
    const element = dialog.current;
    const opener = document.activeElement;
    element?.showModal();
    return () => {
      element?.close();
      if (opener instanceof HTMLElement && opener.isConnected) opener.focus();
    };
  }, []);
  return (
    <dialog ref={dialog} class={wide ? "wide" : ""} aria-labelledby={id}
      onCancel={(event) => { event.preventDefault(); onClose(); }}
      onClick={(event) => event.target === dialog.current && onClose()}>
      <div class="dialog">
        <header>
          <h2 id={id}>{title}</h2>
          <IconButton icon="close" label="Close" onClick={onClose} />
        </header>
        <div class="dialog-body">{children}</div>
        {actions && <footer>{actions}</footer>}
      </div>
    </dialog>
  );
}

/** A button that opens a menu. When the menu closes, the focus returns to the button. */
export function Menu({ label, icon = "more", items }: {
  label: string; icon?: IconName;
  items: { label: string; icon?: IconName; danger?: boolean; onSelect: () => void }[];
}) {
  const [isOpen, setOpen] = useState(false);
  const root = useRef<HTMLDivElement>(null);
  // A layout effect, so that the focus is set before the next key press.
  useLayoutEffect(() => {
    if (isOpen) root.current?.querySelector<HTMLButtonElement>("[role=menuitem]")?.focus();
  }, [isOpen]);
  useEffect(() => {
    if (!isOpen) return;
    const closeIfOutside = (event: Event) => !root.current?.contains(event.target as Node) && setOpen(false);
    document.addEventListener("pointerdown", closeIfOutside);
    document.addEventListener("focusin", closeIfOutside);
    return () => {
      document.removeEventListener("pointerdown", closeIfOutside);
      document.removeEventListener("focusin", closeIfOutside);
    };
  }, [isOpen]);
  const close = () => {
    root.current?.querySelector("button")?.focus();
    setOpen(false);
  };
  const handleKey = (event: KeyboardEvent) => {
    if (event.key === "Escape") return close();
    const offset = event.key === "ArrowDown" ? 1 : event.key === "ArrowUp" ? -1 : 0;
    if (!offset) return;
    event.preventDefault();
    const menuItems = [...(root.current?.querySelectorAll<HTMLButtonElement>("[role=menuitem]") ?? [])];
    const focusedIndex = menuItems.indexOf(document.activeElement as HTMLButtonElement);
    menuItems[(focusedIndex + offset + menuItems.length) % menuItems.length]?.focus();
  };
  return (
    <div class="menu" ref={root} onKeyDown={(event) => isOpen && handleKey(event)}>
      <IconButton icon={icon} label={label} aria-haspopup="menu" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)} />
      {isOpen && (
        <div class="menu-items" role="menu" aria-label={label}>
          {items.map((item) => (
            <button key={item.label} type="button" role="menuitem" class={item.danger ? "danger" : ""}
              onClick={() => { close(); item.onSelect(); }}>
              {item.icon && <Icon name={item.icon} size={16} />}{item.label}
            </button>
          ))}
        </div>
      )}
    </div>
  );
}
