/**
 * The tools page: the policy matrix, the ceilings, the tool servers, and the verdict of each tool at every level.
 */

import { useMemo, useState } from "preact/hooks";
import { client } from "../../api/client";
import type { Policy, Risk, Tool, ToolServer, Verdict } from "../../api/types";
import { Icon } from "../../components/icon";
import { Badge, EmptyState, ErrorNotice, IconButton, Loading, RiskBadge } from "../../components/ui";
import { EscapedText } from "../../components/escaped_text";
import { LEVEL_LABELS, RISK_LABELS, pluralize } from "../../components/format";
import { useLoad } from "../../components/use_load";
import { currentUser } from "../../state/app_state";
import { useStore } from "../../state/store";
import { CallDryRun } from "./call_dry_run";
import { CeilingList } from "./ceilings";

const CELL_STYLES: Record<string, { label: string; tone: string; explanation: string }> = {
  allow: { label: "allow", tone: "good", explanation: "Runs without approval." },
  ask: { label: "ask", tone: "warn", explanation: "Requires approval." },
  confirm: { label: "ask", tone: "warn", explanation: "Requires approval, unless `require_confirmation` is off." },
  budget: { label: "ask", tone: "warn", explanation: "Requires approval, unless a budget covers the cost." },
  deny: { label: "deny", tone: "bad", explanation: "Does not run." },
};

/** The page with the policy and the tools. */
export function ToolsPage() {
  const agents = useStore(currentUser)!.agents;
  const [agent, setAgent] = useState(useStore(currentUser)!.default_agent);
  const { value, problem, reload } = useLoad(async () => {
    const [{ tools, servers }, policy] = await Promise.all([client.listTools(), client.getPolicy(agent)]);
    return { tools, servers, policy };
  }, [agent]);
  const [search, setSearch] = useState("");
  const [selectedName, setSelectedName] = useState<string | null>(null);
  const tool = value?.tools.find((candidate) => candidate.name === selectedName);
  return (
    <div class="page">
      <header class="page-head">
        <h1>Tools and policy</h1>
        {agents.length > 1 && (
          <select aria-label="Agent" value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
            {agents.map((candidate) => <option key={candidate.name} value={candidate.name}>{candidate.name}</option>)}
          </select>
        )}
        <label class="search"><Icon name="search" size={16} /><span class="sr-only">Search tools</span>
          <input type="search" placeholder="Search" value={search} onInput={(event) => setSearch(event.currentTarget.value)} /></label>
      </header>
      <div class={`event-panes${tool ? " with-detail" : ""}`}>
        <div class="page-body" tabIndex={0} role="region" aria-label="Tools and policy">
          {problem && <ErrorNotice problem={problem} onRetry={reload} />}
          {!value && !problem && <Loading subject="tools" lines={8} />}
          {value && (
            <>
              <PolicyMatrix policy={value.policy} />
              <CeilingList limits={value.policy.ceilings} onChange={reload} />
              <ServerList servers={value.servers} />
              <ToolTable tools={value.tools} policy={value.policy} search={search} selectedName={selectedName} onSelect={setSelectedName} />
            </>
          )}
        </div>
        {value && tool && <ToolDetail tool={tool} policy={value.policy} onClose={() => setSelectedName(null)} />}
      </div>
    </div>
  );
}

function PolicyMatrix({ policy }: { policy: Policy }) {
  return (
    <section>
      <p class="matrix-intro">Policy verdict by autonomy level and risk. Your level is marked.</p>
      <div class="matrix-frame"><table class="matrix">
        <caption class="sr-only">Policy verdict by autonomy level and risk</caption>
        <thead><tr><th scope="col">Level</th>{policy.risks.map((risk) => <th key={risk} scope="col"><RiskBadge risk={risk} /></th>)}</tr></thead>
        <tbody>
          {policy.matrix.map((row, level) => (
            <tr key={level} class={level === policy.autonomy_level ? "current-level" : ""}>
              <th scope="row">L{level} {LEVEL_LABELS[level]}{level === policy.autonomy_level && <span class="sr-only"> (your level)</span>}</th>
              {row.map((cell, index) => {
                const style = CELL_STYLES[cell] ?? CELL_STYLES.ask!;
                return <td key={index}><span class={`cell ${style.tone}`} title={style.explanation}>{style.label}{(cell === "confirm" || cell === "budget") && <small>{cell === "confirm" ? "unless off" : "or budget"}</small>}</span></td>;
              })}
            </tr>
          ))}
        </tbody>
      </table></div>
    </section>
  );
}

function ServerList({ servers }: { servers: ToolServer[] }) {
  return (
    <ul class="servers" aria-label="Tool servers">
      {servers.map((server) => (
        <li key={server.name}>
          <span class={`status-dot ${server.state === "ready" ? "running static" : "waiting"}`} aria-hidden="true" />
          <strong>{server.name}</strong> <span class="hint">{server.state}{server.tools !== undefined && `, ${pluralize(server.tools, "tool")}`}
            {server.circuit !== undefined && server.circuit !== "closed" && `, circuit ${String(server.circuit)}`}{server.reason && `: ${server.reason}`}</span>
        </li>
      ))}
    </ul>
  );
}

const VERDICT_LABELS: Record<string, string> = { allow: "allow", ask: "ask", deny: "deny", invalid: "invalid" };
const RISK_ORDER: Risk[] = ["read_only", "write_low_risk", "write_high_risk", "critical"];

function ToolTable({ tools, policy, search, selectedName, onSelect }: {
  tools: Tool[]; policy: Policy; search: string; selectedName: string | null; onSelect: (name: string) => void;
}) {
  const levels = useMemo(() => new Map(policy.tools.map((tool) => [tool.name, tool.levels])), [policy]);
  const searchText = search.trim().toLowerCase();
  const matchingTools = tools.filter((tool) => levels.has(tool.name) && (!searchText || `${tool.name} ${tool.description} ${tool.risk} ${tool.server}`.toLowerCase().includes(searchText)));
  if (!matchingTools.length) return <EmptyState icon="tools" title={searchText ? "No matches" : "No tools"}>{!searchText && "The tools of the MCP servers in the configuration appear here."}</EmptyState>;
  return (
    <div class="table-frame">
      <table class="table tools">
        <thead><tr><th>Tool</th><th>Risk</th>{LEVEL_LABELS.map((_, index) => <th key={index} class={index === policy.autonomy_level ? "current-level" : ""}>L{index}</th>)}<th>Risk source</th></tr></thead>
        <tbody>
          {RISK_ORDER.flatMap((risk) => matchingTools.filter((tool) => tool.risk === risk)).map((tool) => (
            <tr key={tool.name} class={selectedName === tool.name ? "selected" : ""}>
              <td><button type="button" class="text-button" onClick={() => onSelect(tool.name)}><code><EscapedText text={tool.name} /></code></button>
                {!tool.available && <Badge tone="bad" title={tool.unavailable_because ?? undefined}>unavailable</Badge>}
                <div class="hint ellipsis"><EscapedText text={tool.description} /></div></td>
              <td><RiskBadge risk={tool.risk} /></td>
              {(levels.get(tool.name) ?? []).map((verdict, index) => <td key={index} class={index === policy.autonomy_level ? "current-level" : ""}><VerdictLabel verdict={verdict} /></td>)}
              <td class="hint">{riskSourceText(tool)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function VerdictLabel({ verdict }: { verdict: Verdict }) {
  return <span class={`verdict ${verdict.verdict}`} title={verdict.why}>{VERDICT_LABELS[verdict.verdict]}</span>;
}

function riskSourceText(tool: Tool): string {
  const { kind, glob, hint, word } = tool.risk_source;
  switch (kind) {
    case "catalog": return "catalog entry";
    case "catalog_glob": return `catalog pattern ${glob}`;
    case "annotation": return `annotation ${hint} of a trusted server`;
    case "name_word": return `“${word}” in the name`;
    default: return "default";
  }
}

function ToolDetail({ tool, policy, onClose }: { tool: Tool; policy: Policy; onClose: () => void }) {
  const levels = policy.tools.find((candidate) => candidate.name === tool.name)?.levels ?? [];
  return (
    <section class="event-detail" aria-label="Tool details">
      <header><div><h2><code><EscapedText text={tool.name} /></code></h2><p class="hint"><EscapedText text={tool.server} /> · {RISK_LABELS[tool.risk]}: {riskSourceText(tool)}</p></div><IconButton icon="close" label="Close details" onClick={onClose} /></header>
      <p><EscapedText text={tool.description} /></p>
      <p class="fact-badges">{tool.repeatable ? <Badge tone="good">safe to repeat</Badge> : <Badge>not repeated automatically</Badge>} {tool.parallel ? <Badge tone="info">parallel</Badge> : <Badge>one at a time</Badge>}</p>
      <h3>Verdict by level</h3>
      <ul class="verdicts">
        {levels.map((verdict, index) => <li key={index} class={index === policy.autonomy_level ? "current-level" : ""}><b>L{index}</b> <VerdictLabel verdict={verdict} /> <span>{verdict.why}</span></li>)}
      </ul>
      <CallDryRun key={tool.name} tool={tool} policy={policy} />
    </section>
  );
}
