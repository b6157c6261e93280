/** The actors page: state, mailbox and current message of every live actor. */

import { useMemo, useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import type { Actor } from "../../api/types";
import { Icon } from "../../components/icon";
import { Sparkline } from "../../components/sparkline";
import { RelativeTime, ElapsedTime } from "../../components/time";
import { Badge, Button, Dialog, EmptyState, IconButton, Loading, SegmentedControl } from "../../components/ui";
import { formatNumber, pluralize } from "../../components/format";
import { routeUrl } from "../../state/route";
import { type ActorPathNode, hasProblem, filterTree, buildTree } from "./actor_tree";
import { useActors } from "./use_actors";

type ActorFilter = "all" | "waiting" | "troubled";

/** The page with the tree of live actors. */
export function ActorsPage() {
  const { actors, depths, state } = useActors();
  const [filter, setFilter] = useState<ActorFilter>("all");
  const [search, setSearch] = useState("");
  const [selectedPath, setSelectedPath] = useState<string | null>(null);
  const tree = useMemo(() => {
    const searchText = search.trim().toLowerCase();
    return filterTree(buildTree(actors), (actor) =>
      (filter === "all" || (filter === "waiting" ? actor.waiting !== null : hasProblem(actor)))
      && (!searchText || `${actor.path} ${actor.kind} ${actor.state} ${actor.waiting?.for_whom ?? ""}`.toLowerCase().includes(searchText)));
  }, [actors, filter, search]);
  const waiting = actors.filter((actor) => actor.waiting).length;
  const actor = actors.find((candidate) => candidate.path === selectedPath);
  return (
    <div class="page">
      <header class="page-head">
        <h1>Actors</h1>
        <SegmentedControl label="Filter" value={filter} onChange={setFilter} options={[
          { value: "all", label: `All ${actors.length || ""}` }, { value: "waiting", label: `Waiting ${waiting || ""}` }, { value: "troubled", label: "Problems" },
        ]} />
        <label class="search"><Icon name="search" size={16} /><span class="sr-only">Search actors</span>
          <input type="search" placeholder="Search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} /></label>
      </header>
      <div class={`event-panes${actor ? " with-detail" : ""}`}>
        <div class="page-body" tabIndex={0} role="region" aria-label="Actors">
          {state === "lost" && <p class="hint" role="status">Connection lost. Showing the last known state.</p>}
          {state === "loading" && <Loading subject="actors" lines={8} />}
          {state === "live" && !tree.length && <EmptyState icon="actors" title={filter === "troubled" ? "No problems" : "No actors"} />}
          {tree.length > 0 && (
            <div class="table-frame">
              <table class="table actors">
                <thead><tr><th>Actor</th><th>State</th><th>Waiting for</th><th>Mailbox</th><th class="right">Handled</th><th class="right">Restarts</th></tr></thead>
                <tbody>{tree.map((node) => <ActorRows key={node.path} node={node} indent={0} depths={depths} selectedPath={selectedPath} onSelect={setSelectedPath} expandAll={filter !== "all" || search !== ""} />)}</tbody>
              </table>
            </div>
          )}
        </div>
        {actor && <ActorDetail actor={actor} depths={depths.get(actor.path) ?? []} onClose={() => setSelectedPath(null)} />}
      </div>
    </div>
  );
}

function ActorRows({ node, indent, depths, selectedPath, onSelect, expandAll }: {
  node: ActorPathNode; indent: number; depths: Map<string, number[]>; selectedPath: string | null; onSelect: (path: string) => void; expandAll: boolean;
}) {
  // Large subtrees start collapsed; the filters find the active actors.
  const [isUnfolded, setUnfolded] = useState(indent === 0 && node.count <= 60);
  const isOpen = isUnfolded || expandAll;
  const { actor } = node;
  return (
    <>
      <tr class={selectedPath === node.path ? "selected" : ""}>
        <td ref={(cell) => { if (cell) cell.style.paddingInlineStart = `${8 + indent * 20}px`; }}>
          <span class="actor-name">
            {node.children.length
              ? <button type="button" class={`expand-button${isOpen ? " open" : ""}`} aria-expanded={isOpen} aria-label={`${node.path}: ${node.count} actors`} onClick={() => setUnfolded(!isUnfolded)}><Icon name="chevron" size={14} /></button>
              : <span class="expand-button" />}
            {actor ? <button type="button" class="text-button" onClick={() => onSelect(node.path)}><code title={node.path}>{nodeLabel(node)}</code></button> : <code title={node.path}>{nodeLabel(node)}</code>}
            {actor && <small>{actor.kind}</small>}
            {!isOpen && node.children.length > 0 && <small>{pluralize(node.count - (actor ? 1 : 0), "actor")}{node.waiting ? `, ${node.waiting} waiting` : ""}</small>}
          </span>
        </td>
        <td>{actor && <ActorStateBadge actor={actor} />}</td>
        <td>{actor?.waiting && <span class="waiting-for"><span title={actor.waiting.for_whom}>{actor.waiting.for_whom.replace(UUID, "…$1")}</span> <ElapsedTime timestamp={actor.waiting.since} /></span>}</td>
        <td>{actor && <Sparkline values={depths.get(actor.path) ?? []} label={`Mailbox ${actor.mailbox_depth}, maximum ${actor.mailbox_depth_max}`} minimumMax={Math.max(4, actor.mailbox_depth_max)} />}</td>
        <td class="right numbers">{actor && formatNumber(actor.handled)}</td>
        <td class="right numbers">{actor ? (actor.restarts ? <Badge tone="warn">{actor.restarts}</Badge> : 0) : ""}</td>
      </tr>
      {isOpen && node.children.map((child) => <ActorRows key={child.path} node={child} indent={indent + 1} depths={depths} selectedPath={selectedPath} onSelect={onSelect} expandAll={expandAll} />)}
    </>
  );
}

const UUID = /[0-9a-f]{8}-[0-9a-f-]{21}([0-9a-f]{6})/g;

/** Shortens a long id to its last characters, which distinguish it. */
const nodeLabel = (node: ActorPathNode) => (node.name.length > 24 ? `…${node.name.slice(-8)}` : node.name);

function ActorStateBadge({ actor }: { actor: Actor }) {
  const tone = actor.state === "parked" || actor.last_error ? "bad" : actor.waiting ? "warn" : ["running", "streaming", "tailing", "ready", "open"].includes(actor.state) ? "good" : "plain";
  return <Badge tone={tone}>{actor.state}</Badge>;
}

function ActorDetail({ actor, depths, onClose }: { actor: Actor; depths: number[]; onClose: () => void }) {
  const [pendingAction, setPendingAction] = useState<"stop" | "restart" | null>(null);
  const sessionId = /^\/sessions\/([^/]+)/.exec(actor.path)?.[1];
  return (
    <section class="event-detail" aria-label="Actor details">
      <header><div><h2>{actor.kind}</h2><p class="hint"><code>{actor.path}</code></p></div><IconButton icon="close" label="Close details" onClick={onClose} /></header>
      <dl class="detail-list">
        <div><dt>State</dt><dd><ActorStateBadge actor={actor} /></dd></div>
        {actor.waiting && <div><dt>Waiting for</dt><dd>{actor.waiting.for_whom}, for <ElapsedTime timestamp={actor.waiting.since} /></dd></div>}
        <div><dt>Message</dt><dd>{actor.current_message ? <>{actor.current_message}{actor.current_message_since && <> for <ElapsedTime timestamp={actor.current_message_since} /></>}</> : "none"}</dd></div>
        <div><dt>Mailbox</dt><dd>{actor.mailbox_depth}, maximum {actor.mailbox_depth_max} <Sparkline values={depths} label="Mailbox over time" minimumMax={Math.max(4, actor.mailbox_depth_max)} /></dd></div>
        <div><dt>Handled</dt><dd class="numbers">{formatNumber(actor.handled)}{actor.failed > 0 && `, ${formatNumber(actor.failed)} failed`}</dd></div>
        <div><dt>Restarts</dt><dd class="numbers">{actor.restarts}</dd></div>
        <div><dt>Started</dt><dd><RelativeTime timestamp={actor.started_at} /></dd></div>
        {actor.last_error && <div><dt>Last error</dt><dd class="error-text">{actor.last_error}</dd></div>}
      </dl>
      <div class="button-row">
        {sessionId && <a class="button" href={routeUrl("chat", sessionId)}>Open session</a>}
        {actor.takes?.includes("restart") && <Button icon="retry" onClick={() => setPendingAction("restart")}>Restart</Button>}
        {actor.takes?.includes("stop") && <Button tone="danger" icon="stop" onClick={() => setPendingAction("stop")}>Stop</Button>}
      </div>
      {pendingAction && <ConfirmActionDialog actor={actor} action={pendingAction} onClose={() => setPendingAction(null)} />}
    </section>
  );
}

/** The effect of each action, by kind of actor. */
const ACTION_EFFECTS: Record<string, Partial<Record<"stop" | "restart", string>>> = {
  Session: { stop: "The current run is cancelled. Without a run, the actor is unloaded and starts again with the next message.", restart: "The actor is rebuilt from its log. Running tool calls are interrupted as in a crash. A parked actor is retried." },
  LlmStream: { stop: "The run fails.", restart: "The step is retried, as after a lost connection." },
  ToolExecutor: { stop: "The attempt counts as a crash of the tool. A call that is safe to repeat is retried; any other call needs a decision on its unknown outcome." },
  ToolConnection: { stop: "The server stays disconnected until it is restarted; its tools are unavailable.", restart: "The server is connected again." },
  Subscriber: { stop: "The client is disconnected and can resume at its cursor." },
  FirehoseSubscriber: { stop: "The client is disconnected and can connect again." },
  Socket: { stop: "The client is disconnected and can resume at its cursor." },
};

function ConfirmActionDialog({ actor, action, onClose }: { actor: Actor; action: "stop" | "restart"; onClose: () => void }) {
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const confirm = async () => {
    setBusy(true);
    try {
      await client.controlActor(actor.path, action);
      onClose();
    } catch (error) {
      setProblem(toProblem(error).message);
      setBusy(false);
    }
  };
  return (
    <Dialog title={`${action === "stop" ? "Stop" : "Restart"} this ${actor.kind}?`} onClose={onClose} actions={
      <><Button onClick={onClose}>Cancel</Button><Button tone={action === "stop" ? "danger" : "primary"} busy={busy} onClick={() => void confirm()}>{action === "stop" ? "Stop actor" : "Restart actor"}</Button></>
    }>
      <p><code>{actor.path}</code></p>
      <p>{ACTION_EFFECTS[actor.kind]?.[action]} The action is recorded in the audit log.</p>
      {problem && <p class="error-text" role="alert">{problem}</p>}
    </Dialog>
  );
}
