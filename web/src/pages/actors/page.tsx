/** Every live actor: what it does, for whom it waits, how full its mailbox is. */

import { useMemo, useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import type { Actor } from "../../api/types";
import { Icon } from "../../components/icon";
import { Sparkline } from "../../components/sparkline";
import { RelativeTime, ElapsedTime } from "../../components/time";
import { Badge, Button, Dialog, EmptyState, IconButton, Loading, SegmentedControl } from "../../components/ui";
import { formatNumber } from "../../components/format";
import { routeUrl } from "../../state/route";
import { type ActorNode, hasProblem, filterTree, buildTree } from "./actor_tree";
import { useActors } from "./use_actors";

type ActorFilter = "all" | "waiting" | "troubled";

export function ActorsPage() {
  const { actors, depths, state } = useActors();
  const [wanted, setWanted] = useState<ActorFilter>("all");
  const [search, setSearch] = useState("");
  const [chosen, setChosen] = useState<string | null>(null);
  const tree = useMemo(() => {
    const words = search.trim().toLowerCase();
    return filterTree(buildTree(actors), (actor) =>
      (wanted === "all" || (wanted === "waiting" ? actor.waiting !== null : hasProblem(actor)))
      && (!words || `${actor.path} ${actor.kind} ${actor.state} ${actor.waiting?.for_whom ?? ""}`.toLowerCase().includes(words)));
  }, [actors, wanted, search]);
  const waiting = actors.filter((actor) => actor.waiting).length;
  const actor = actors.find((one) => one.path === chosen);
  return (
    <div class="page">
      <header class="room-head">
        <h1>Actors</h1>
        <SegmentedControl label="Which" value={wanted} onChange={setWanted} options={[
          { value: "all", label: `All ${actors.length || ""}` }, { value: "waiting", label: `Waiting ${waiting || ""}` }, { value: "troubled", label: "In trouble" },
        ]} />
        <label class="search"><Icon name="search" size={16} /><span class="sr-only">Search actors</span>
          <input type="search" placeholder="Search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} /></label>
      </header>
      <div class={`event-panes${actor ? " with-detail" : ""}`}>
        <div class="page-body" tabIndex={0} role="region" aria-label="Actors">
          {state === "lost" && <p class="hint" role="status">The server is away; this is what was last heard of its actors.</p>}
          {state === "loading" && <Loading what="actors" lines={8} />}
          {state === "live" && !tree.length && <EmptyState icon="actors" title={wanted === "troubled" ? "All is well" : "None is here"} />}
          {tree.length > 0 && (
            <div class="table-frame">
              <table class="table actors">
                <thead><tr><th>Actor</th><th>State</th><th>Waits for</th><th>Mailbox</th><th class="right">Handled</th><th class="right">Restarts</th></tr></thead>
                <tbody>{tree.map((branch) => <ActorRows key={branch.path} branch={branch} depth={0} depths={depths} chosen={chosen} onChoose={setChosen} open={wanted !== "all" || search !== ""} />)}</tbody>
              </table>
            </div>
          )}
        </div>
        {actor && <ActorDetail actor={actor} depths={depths.get(actor.path) ?? []} onClose={() => setChosen(null)} />}
      </div>
    </div>
  );
}

function ActorRows({ branch, depth, depths, chosen, onChoose, open }: {
  branch: ActorNode; depth: number; depths: Map<string, number[]>; chosen: string | null; onChoose: (path: string) => void; open: boolean;
}) {
  // Few are shown at once; of many sessions those that do something come by the filters.
  const [unfolded, setUnfolded] = useState(depth === 0 && branch.count <= 60);
  const isOpen = unfolded || open;
  const { actor } = branch;
  return (
    <>
      <tr class={chosen === branch.path ? "chosen" : ""}>
        <td ref={(cell) => { if (cell) cell.style.paddingInlineStart = `${8 + depth * 20}px`; }}>
          <span class="actor-name">
            {branch.children.length
              ? <button type="button" class={`fold${isOpen ? " open" : ""}`} aria-expanded={isOpen} aria-label={`${branch.path}: ${branch.count} actors`} onClick={() => setUnfolded(!unfolded)}><Icon name="chevron" size={14} /></button>
              : <span class="fold" />}
            {actor ? <button type="button" class="text-button" onClick={() => onChoose(branch.path)}><code title={branch.path}>{branchLabel(branch)}</code></button> : <code title={branch.path}>{branchLabel(branch)}</code>}
            {actor && <small>{actor.kind}</small>}
            {!isOpen && branch.children.length > 0 && <small>{branch.count - (actor ? 1 : 0)} inside{branch.waiting ? `, ${branch.waiting} waiting` : ""}</small>}
          </span>
        </td>
        <td>{actor && <ActorStateBadge actor={actor} />}</td>
        <td>{actor?.waiting && <span class="waits"><span title={actor.waiting.for_whom}>{actor.waiting.for_whom.replace(UUID, "…$1")}</span> <ElapsedTime at={actor.waiting.since} /></span>}</td>
        <td>{actor && <Sparkline values={depths.get(actor.path) ?? []} label={`Mailbox ${actor.mailbox_depth}, at most ${actor.mailbox_depth_max}`} max={Math.max(4, actor.mailbox_depth_max)} />}</td>
        <td class="right numbers">{actor && formatNumber(actor.handled)}</td>
        <td class="right numbers">{actor ? (actor.restarts ? <Badge tone="warn">{actor.restarts}</Badge> : 0) : ""}</td>
      </tr>
      {isOpen && branch.children.map((child) => <ActorRows key={child.path} branch={child} depth={depth + 1} depths={depths} chosen={chosen} onChoose={onChoose} open={open} />)}
    </>
  );
}

const UUID = /[0-9a-f]{8}-[0-9a-f-]{21}([0-9a-f]{6})/g;

/** Long ids are told apart by their ends. */
const branchLabel = (branch: ActorNode) => (branch.name.length > 24 ? `…${branch.name.slice(-8)}` : branch.name);

function ActorStateBadge({ actor }: { actor: Actor }) {
  const tone = actor.state === "parked" || actor.last_error ? "bad" : actor.waiting ? "warn" : ["running", "streaming", "tailing", "ready", "open"].includes(actor.state) ? "good" : "plain";
  return <Badge tone={tone}>{actor.state}</Badge>;
}

function ActorDetail({ actor, depths, onClose }: { actor: Actor; depths: number[]; onClose: () => void }) {
  const [asked, setAsked] = useState<"stop" | "restart" | null>(null);
  const session = /^\/sessions\/([^/]+)/.exec(actor.path)?.[1];
  return (
    <section class="event-detail" aria-label="The actor">
      <header><div><h2>{actor.kind}</h2><p class="hint"><code>{actor.path}</code></p></div><IconButton icon="close" label="Close the actor" onClick={onClose} /></header>
      <dl class="sheet">
        <div><dt>State</dt><dd><ActorStateBadge actor={actor} /></dd></div>
        {actor.waiting && <div><dt>Waits for</dt><dd>{actor.waiting.for_whom}, for <ElapsedTime at={actor.waiting.since} /></dd></div>}
        <div><dt>Now</dt><dd>{actor.current_message ? <>{actor.current_message}{actor.current_message_since && <> for <ElapsedTime at={actor.current_message_since} /></>}</> : "nothing"}</dd></div>
        <div><dt>Mailbox</dt><dd>{actor.mailbox_depth}, at most {actor.mailbox_depth_max} <Sparkline values={depths} label="Mailbox over time" max={Math.max(4, actor.mailbox_depth_max)} /></dd></div>
        <div><dt>Handled</dt><dd class="numbers">{formatNumber(actor.handled)}{actor.failed > 0 && `, ${formatNumber(actor.failed)} failed`}</dd></div>
        <div><dt>Restarts</dt><dd class="numbers">{actor.restarts}</dd></div>
        <div><dt>Started</dt><dd><RelativeTime at={actor.started_at} /></dd></div>
        {actor.last_error && <div><dt>Last error</dt><dd class="wrong">{actor.last_error}</dd></div>}
      </dl>
      <div class="answers">
        {session && <a class="button" href={routeUrl("chat", session)}>Conversation</a>}
        {actor.takes?.includes("restart") && <Button icon="retry" onClick={() => setAsked("restart")}>Restart</Button>}
        {actor.takes?.includes("stop") && <Button tone="danger" icon="stop" onClick={() => setAsked("stop")}>Stop</Button>}
      </div>
      {asked && <ConfirmOrder actor={actor} what={asked} onClose={() => setAsked(null)} />}
    </section>
  );
}

/** What an order means, by the kind of actor. */
const ORDER_EFFECTS: Record<string, Partial<Record<"stop" | "restart", string>>> = {
  Session: { stop: "Its run is cancelled; without one, it leaves memory. It comes back with its next message.", restart: "It is rebuilt from its log. Tools that run are cut off as in a crash. One that is parked is tried again." },
  LlmStream: { stop: "The run fails, saying so.", restart: "The step is tried again, as after a cut connection." },
  ToolExecutor: { stop: "The attempt counts as a crash of its tool. Calls that may safely repeat do; of others, a person is asked what became of them." },
  ToolConnection: { stop: "It stays away until it is restarted, and its tools are unavailable.", restart: "It connects anew." },
  Subscriber: { stop: "The client is cut off, and may come again where it was." },
  FirehoseSubscriber: { stop: "The client is cut off, and may come again." },
  Socket: { stop: "The client is cut off, and may come again where it was." },
};

function ConfirmOrder({ actor, what, onClose }: { actor: Actor; what: "stop" | "restart"; onClose: () => void }) {
  const [problem, setProblem] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const act = async () => {
    setBusy(true);
    try {
      await client.actOn(actor.path, what);
      onClose();
    } catch (error) {
      setProblem(toProblem(error).message);
      setBusy(false);
    }
  };
  return (
    <Dialog title={`${what === "stop" ? "Stop" : "Restart"} this ${actor.kind}?`} onClose={onClose} actions={
      <><Button onClick={onClose}>Leave it</Button><Button tone={what === "stop" ? "danger" : "primary"} busy={busy} onClick={() => void act()}>{what === "stop" ? "Stop it" : "Restart it"}</Button></>
    }>
      <p><code>{actor.path}</code></p>
      <p>{ORDER_EFFECTS[actor.kind]?.[what]} The order goes into the audit log.</p>
      {problem && <p class="wrong" role="alert">{problem}</p>}
    </Dialog>
  );
}
