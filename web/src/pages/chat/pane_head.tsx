/** What a conversation is, and what can be done with it. */

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import { Badge, Button, Dialog, IconButton, Menu, Toggle } from "../../components/ui";
import { LEVEL_LABELS, formatMoney, shortId, formatTokens } from "../../components/format";
import type { SessionView } from "../../state/session_view";
import { navigate, routeUrl } from "../../state/route";
import { Grants } from "./grants";
import { SessionSettings } from "./session_settings";

export function PaneHead({ session_id, conversation, status, back, onClose, onFork }: {
  session_id: string; conversation: SessionView; status: string; back: ComponentChildren; onClose?: () => void; onFork: () => void;
}) {
  const [shown, setShown] = useState<"settings" | "grants" | "close" | "purge" | null>(null);
  const level = Number(conversation.settings?.autonomy_level ?? 1);
  const { usage } = conversation;
  const hide = () => setShown(null);
  return (
    <header class="pane-head">
      {back}
      <div class="pane-title">
        <h2 dir="auto" title={session_id}>{conversation.title ?? (conversation.seq ? `Session ${shortId(session_id)}` : "\u00a0")}</h2>
        <p>
          <span class={`status-dot ${status}`} aria-hidden="true" />
          {conversation.agent && <>{conversation.agent} · </>}
          <button type="button" class="text-button" onClick={() => setShown("settings")} title="What the agent may do by itself">L{level} {LEVEL_LABELS[level]?.toLowerCase()}</button>
          {usage.output_tokens > 0 && <> · <span class="numbers" title={formatMoney(usage.cost_usd)}>{formatTokens(usage)}{usage.cost_usd ? ` · ${formatMoney(usage.cost_usd)}` : ""}</span></>}
        </p>
      </div>
      {conversation.grants > 0 && (
        <button type="button" class="badge-button" onClick={() => setShown("grants")}><Badge tone="info">{conversation.grants} for this session</Badge></button>
      )}
      <Menu label="More about this conversation" items={[
        { label: "Timeline", icon: "clock", onSelect: () => navigate(routeUrl("events", "timeline", { session: session_id })) },
        { label: "Events", icon: "events", onSelect: () => navigate(routeUrl("events", "", { session: session_id })) },
        { label: "Context of each step", icon: "layers", onSelect: () => navigate(routeUrl("context", session_id)) },
        { label: "Fork from here", icon: "fork", onSelect: onFork },
        { label: "Approved for the session", icon: "shield", onSelect: () => setShown("grants") },
        { label: "Settings", icon: "settings", onSelect: () => setShown("settings") },
        ...(conversation.closed ? [] : [{ label: "Close the session", icon: "close" as const, danger: true, onSelect: () => setShown("close") }]),
        { label: "Delete for good", icon: "trash", danger: true, onSelect: () => setShown("purge") },
      ]} />
      {onClose && <IconButton icon="close" label="Close this pane" onClick={onClose} />}
      {shown === "settings" && <SessionSettings session_id={session_id} conversation={conversation} onClose={hide} />}
      {shown === "grants" && <Grants session_id={session_id} onClose={hide} />}
      {shown === "close" && <CloseSession session_id={session_id} onClose={hide} />}
      {shown === "purge" && <PurgeSession session_id={session_id} title={conversation.title} onClose={hide} />}
    </header>
  );
}

function CloseSession({ session_id, onClose }: { session_id: string; onClose: () => void }) {
  const [problem, setProblem] = useState<string | null>(null);
  const close = () => client.closeSession(session_id).then(onClose, (error) => setProblem(toProblem(error).message));
  return (
    <Dialog title="Close this session?" onClose={onClose} actions={
      <><Button onClick={onClose}>Keep it open</Button><Button tone="danger" onClick={() => void close()}>Close it</Button></>
    }>
      <p>What runs is cancelled. The conversation can still be read and forked, but nothing can be said in it any more.</p>
      {problem && <p class="wrong" role="alert">{problem}</p>}
    </Dialog>
  );
}

function PurgeSession({ session_id, title, onClose }: { session_id: string; title: string | null; onClose: () => void }) {
  const [sure, setSure] = useState(false);
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
    <Dialog title="Delete this conversation for good?" onClose={onClose} actions={
      <><Button onClick={onClose}>Keep it</Button><Button tone="danger" icon="trash" busy={busy} disabled={!sure} onClick={() => void purge()}>Delete for good</Button></>
    }>
      <p><strong>{title ?? `Session ${shortId(session_id)}`}</strong>: what runs is cancelled, and its messages, its calls and its questions are removed from the log. Nobody can bring them back. Forks of it live on, and what it spent stays spent.</p>
      <Toggle label="I know that it can’t be undone" checked={sure} onChange={setSure} />
      {problem && <p class="wrong" role="alert">{problem}</p>}
    </Dialog>
  );
}
