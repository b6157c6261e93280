/** The tools, what each may do at every level and why; and a call tried against the judge. */

import { useMemo, useState } from "preact/hooks";
import { client } from "../../api/client";
import type { Policy, Risk, Tool, ToolServer, Verdict } from "../../api/types";
import { Icon } from "../../components/icon";
import { Badge, EmptyState, ErrorNotice, IconButton, Loading, RiskBadge } from "../../components/ui";
import { EscapedText } from "../../components/escaped_text";
import { LEVEL_LABELS, RISK_LABELS, pluralize } from "../../components/format";
import { useLoad } from "../../components/use_load";
import { me } from "../../state/app_state";
import { useStore } from "../../state/store";
import { TryCall } from "./call_dry_run";

const CELL: Record<string, { said: string; tone: string; why: string }> = {
  allow: { said: "runs", tone: "good", why: "It runs by itself." },
  ask: { said: "asks", tone: "warn", why: "A person is asked." },
  confirm: { said: "asks", tone: "warn", why: "A person is asked; it runs by itself where `require_confirmation` is off." },
  budget: { said: "asks", tone: "warn", why: "A person is asked; it runs by itself where a budget has room for its cost." },
  deny: { said: "denied", tone: "bad", why: "It does not run." },
};

export function ToolsPage() {
  const agents = useStore(me)!.agents;
  const [agent, setAgent] = useState(useStore(me)!.default_agent);
  const { value, problem, reload } = useLoad(async () => {
    const [{ tools, servers }, policy] = await Promise.all([client.tools(), client.policy(agent)]);
    return { tools, servers, policy };
  }, [agent]);
  const [search, setSearch] = useState("");
  const [chosen, setChosen] = useState<string | null>(null);
  const tool = value?.tools.find((one) => one.name === chosen);
  return (
    <div class="page">
      <header class="room-head">
        <h1>Tools and policy</h1>
        {agents.length > 1 && (
          <select aria-label="Agent" value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
            {agents.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
          </select>
        )}
        <label class="search"><Icon name="search" size={16} /><span class="sr-only">Search tools</span>
          <input type="search" placeholder="Search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} /></label>
      </header>
      <div class={`event-panes${tool ? " with-detail" : ""}`}>
        <div class="page-body" tabIndex={0} role="region" aria-label="Tools and policy">
          {problem && <ErrorNotice problem={problem} retry={reload} />}
          {!value && !problem && <Loading what="tools" lines={8} />}
          {value && (
            <>
              <Matrix policy={value.policy} />
              <Servers servers={value.servers} />
              <ToolTable tools={value.tools} policy={value.policy} search={search} chosen={chosen} onChoose={setChosen} />
            </>
          )}
        </div>
        {value && tool && <ToolDetail tool={tool} policy={value.policy} onClose={() => setChosen(null)} />}
      </div>
    </div>
  );
}

function Matrix({ policy }: { policy: Policy }) {
  return (
    <section>
      <p class="matrix-says">What an agent may do by itself: how far it is trusted, against how much can go wrong. Your level is marked.</p>
      <div class="matrix-frame"><table class="matrix">
        <caption class="sr-only">What an agent may do by itself</caption>
        <thead><tr><th scope="col">Level</th>{policy.risks.map((risk) => <th key={risk} scope="col"><RiskBadge risk={risk} /></th>)}</tr></thead>
        <tbody>
          {policy.matrix.map((row, level) => (
            <tr key={level} class={level === policy.autonomy_level ? "own" : ""}>
              <th scope="row">L{level} {LEVEL_LABELS[level]}{level === policy.autonomy_level && <span class="sr-only"> (yours)</span>}</th>
              {row.map((cell, at) => {
                const look = CELL[cell] ?? CELL.ask!;
                return <td key={at}><span class={`cell ${look.tone}`} title={look.why}>{look.said}{(cell === "confirm" || cell === "budget") && <small>{cell === "confirm" ? "unless off" : "or budget"}</small>}</span></td>;
              })}
            </tr>
          ))}
        </tbody>
      </table></div>
    </section>
  );
}

function Servers({ servers }: { servers: ToolServer[] }) {
  return (
    <ul class="servers" aria-label="Tool servers">
      {servers.map((server) => (
        <li key={server.name}>
          <span class={`status-dot ${server.state === "ready" ? "running still" : "waiting"}`} aria-hidden="true" />
          <strong>{server.name}</strong> <span class="hint">{server.state}{server.tools !== undefined && `, ${pluralize(server.tools, "tool")}`}
            {server.circuit !== undefined && server.circuit !== "closed" && `, circuit ${String(server.circuit)}`}{server.reason && `: ${server.reason}`}</span>
        </li>
      ))}
    </ul>
  );
}

const SHORT: Record<string, string> = { allow: "runs", ask: "asks", deny: "denied", invalid: "invalid" };
const ORDER: Risk[] = ["read_only", "write_low_risk", "write_high_risk", "critical"];

function ToolTable({ tools, policy, search, chosen, onChoose }: {
  tools: Tool[]; policy: Policy; search: string; chosen: string | null; onChoose: (name: string) => void;
}) {
  const levels = useMemo(() => new Map(policy.tools.map((tool) => [tool.name, tool.levels])), [policy]);
  const words = search.trim().toLowerCase();
  const found = tools.filter((tool) => levels.has(tool.name) && (!words || `${tool.name} ${tool.description} ${tool.risk} ${tool.server}`.toLowerCase().includes(words)));
  if (!found.length) return <EmptyState icon="tools" title={words ? "Nothing matches" : "There are no tools"}>{!words && "Name MCP servers in the configuration, and their tools appear here."}</EmptyState>;
  return (
    <div class="table-frame">
      <table class="table tools">
        <thead><tr><th>Tool</th><th>Risk</th>{LEVEL_LABELS.map((_, at) => <th key={at} class={at === policy.autonomy_level ? "own" : ""}>L{at}</th>)}<th>Why it has that risk</th></tr></thead>
        <tbody>
          {ORDER.flatMap((risk) => found.filter((tool) => tool.risk === risk)).map((tool) => (
            <tr key={tool.name} class={chosen === tool.name ? "chosen" : ""}>
              <td><button type="button" class="text-button" onClick={() => onChoose(tool.name)}><code><EscapedText text={tool.name} /></code></button>
                {!tool.available && <Badge tone="bad" title={tool.unavailable_because ?? undefined}>unavailable</Badge>}
                <div class="hint clip"><EscapedText text={tool.description} /></div></td>
              <td><RiskBadge risk={tool.risk} /></td>
              {(levels.get(tool.name) ?? []).map((verdict, at) => <td key={at} class={at === policy.autonomy_level ? "own" : ""}><VerdictLabel verdict={verdict} /></td>)}
              <td class="hint">{riskSourceText(tool)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function VerdictLabel({ verdict }: { verdict: Verdict }) {
  return <span class={`verdict ${verdict.verdict}`} title={verdict.why}>{SHORT[verdict.verdict]}</span>;
}

function riskSourceText(tool: Tool): string {
  const { kind, glob, hint, word } = tool.risk_source;
  switch (kind) {
    case "catalog": return "the catalog names it";
    case "catalog_glob": return `the catalog’s ${glob}`;
    case "annotation": return `its trusted server says ${hint}`;
    case "name_word": return `“${word}” in its name`;
    default: return "nothing describes it";
  }
}

function ToolDetail({ tool, policy, onClose }: { tool: Tool; policy: Policy; onClose: () => void }) {
  const levels = policy.tools.find((one) => one.name === tool.name)?.levels ?? [];
  return (
    <section class="event-detail" aria-label="The tool">
      <header><div><h2><code><EscapedText text={tool.name} /></code></h2><p class="hint"><EscapedText text={tool.server} /> · {RISK_LABELS[tool.risk]}: {riskSourceText(tool)}</p></div><IconButton icon="close" label="Close the tool" onClick={onClose} /></header>
      <p><EscapedText text={tool.description} /></p>
      <p class="facts-line">{tool.repeatable ? <Badge tone="good">may be repeated</Badge> : <Badge>not repeated by itself</Badge>} {tool.parallel ? <Badge tone="info">runs beside others</Badge> : <Badge>one at a time</Badge>}</p>
      <h3>At each level</h3>
      <ul class="verdicts">
        {levels.map((verdict, at) => <li key={at} class={at === policy.autonomy_level ? "own" : ""}><b>L{at}</b> <VerdictLabel verdict={verdict} /> <span>{verdict.why}</span></li>)}
      </ul>
      <TryCall key={tool.name} tool={tool} policy={policy} />
    </section>
  );
}
