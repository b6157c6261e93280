/** The header of a session pane: title, status, usage and the session menu. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import { Badge, Button, Dialog, IconButton, Menu, Toggle } from "../../components/ui";
import { LEVEL_LABELS, formatMoney, pluralize, shortId, formatUsage } from "../../components/format";
import type { SessionView } from "../../state/session_view";
import { navigate, routeUrl } from "../../state/route";
import { GrantsDialog } from "./grants";
import { SessionSettingsDialog } from "./session_settings";

/** The header of a session pane and its dialogs. `leading` is shown at its start. */
export function PaneHead({ session_id, view, status, leading, onClose, onFork }: {
  session_id: string; view: SessionView; status: string; leading: ComponentChildren; onClose?: () => void; onFork: () => void;
}) {
  const [dialog, setDialog] = useState<"settings" | "grants" | "close" | "purge" | null>(null);
  const level = Number(view.settings?.autonomy_level ?? 1);
  const { usage } = view;
  const closeDialog = () => setDialog(null);
  return (
    <header class="pane-head">
      {leading}
      <div class="pane-title">
        <h2 dir="auto" title={session_id}>{view.title ?? (view.seq ? `Session ${shortId(session_id)}` : "\u00a0")}</h2>
        <p>
          <span class={`status-dot ${status}`} aria-hidden="true" />
          {view.agent && <>{view.agent} · </>}
          <button type="button" class="text-button" onClick={() => setDialog("settings")} title="Autonomy level">L{level} {LEVEL_LABELS[level]?.toLowerCase()}</button>
          {usage.output_tokens > 0 && <> · <span class="numbers" title={formatMoney(usage.cost_usd)}>{formatUsage(usage)}</span></>}
        </p>
      </div>
      {view.grants > 0 && (
        <button type="button" class="badge-button" onClick={() => setDialog("grants")}><Badge tone="info">{pluralize(view.grants, "grant")}</Badge></button>
      )}
      <Menu label="Session menu" items={[
        { label: "Timeline", icon: "clock", onSelect: () => navigate(routeUrl("events", "timeline", { session: session_id })) },
        { label: "Events", icon: "events", onSelect: () => navigate(routeUrl("events", "", { session: session_id })) },
        { label: "Context", icon: "layers", onSelect: () => navigate(routeUrl("context", session_id)) },
        { label: "Fork session", icon: "fork", onSelect: onFork },
        { label: "Grants", icon: "shield", onSelect: () => setDialog("grants") },
        { label: "Settings", icon: "settings", onSelect: () => setDialog("settings") },
        ...(view.closed ? [] : [{ label: "Close session", icon: "close" as const, danger: true, onSelect: () => setDialog("close") }]),
        { label: "Delete permanently", icon: "trash", danger: true, onSelect: () => setDialog("purge") },
      ]} />
      {onClose && <IconButton icon="close" label="Close pane" onClick={onClose} />}
      {dialog === "settings" && <SessionSettingsDialog session_id={session_id} view={view} onClose={closeDialog} />}
      {dialog === "grants" && <GrantsDialog session_id={session_id} onClose={closeDialog} />}
      {dialog === "close" && <CloseSessionDialog session_id={session_id} onClose={closeDialog} />}
      {dialog === "purge" && <PurgeSessionDialog session_id={session_id} title={view.title} onClose={closeDialog} />}
    </header>
  );
}

function CloseSessionDialog({ session_id, onClose }: { session_id: string; onClose: () => void }) {
  const [problem, setProblem] = useState<string | null>(null);
  const close = () => client.closeSession(session_id).then(onClose, (error) => setProblem(toProblem(error).message));
  return (
    <Dialog title="Close this session?" onClose={onClose} actions={
      <><Button onClick={onClose}>Cancel</Button><Button tone="danger" onClick={() => void close()}>Close session</Button></>
    }>
      <p>The current run, if any, is cancelled. The session can still be read and forked, but accepts no more messages.</p>
      {problem && <p class="error-text" role="alert">{problem}</p>}
    </Dialog>
  );
}

function PurgeSessionDialog({ session_id, title, onClose }: { session_id: string; title: string | null; onClose: () => void }) {
  const [isConfirmed, setConfirmed] = useState(false);
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const purge = async () => {
    setBusy(true);
    try {
      await client.purgeSession(session_id);
      onClose();
    } catch (error) {
      setProblem(toProblem(error).message);
      setBusy(false);
    }
  };
  return (
    <Dialog title="Delete this session permanently?" onClose={onClose} actions={
      <><Button onClick={onClose}>Cancel</Button><Button tone="danger" icon="trash" busy={busy} disabled={!isConfirmed} onClick={() => void purge()}>Delete permanently</Button></>
    }>
      <p><strong>{title ?? `Session ${shortId(session_id)}`}</strong>: the current run, if any, is cancelled. The messages, calls and approvals of the session are removed from the log and cannot be restored. Forks are kept, and the session’s cost still counts.</p>
      <Toggle label="I understand that this cannot be undone" checked={isConfirmed} onChange={setConfirmed} />
      {problem && <p class="error-text" role="alert">{problem}</p>}
    </Dialog>
  );
}
