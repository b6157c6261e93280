/** The pane of a new session. The session is created with its first message. */

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { client, type WorkflowRequest } from "../../api/client";
import { type Problem, toProblem } from "../../api/http";
import type { Session } from "../../api/types";
import { Icon } from "../../components/icon";
import { LEVEL_LABELS } from "../../components/format";
import { loadSessions, currentUser, sendMessage, sessions } from "../../state/app_state";
import { useStore } from "../../state/store";
import { Composer } from "./composer";
import { useAutonomyCeiling } from "./use_autonomy_ceiling";

/** Example prompts for the market agent of `examples/greenroom.toml`. */
const EXAMPLE_PROMPTS = [
  ["What is the current sell price of Tritanium in Jita?", "one tool call"],
  ["Which ships were destroyed most in Jita last week?", "parallel tool calls"],
  ["Buy 1000 Tritanium at market price", "needs approval"],
  ["Stock up", "several calls in one plan"],
  ["Get production cost for Stabber", "retries a failing tool"],
  ["Transfer 100M ISK to character XYZ", "denied at this level"],
] as const;

/** The pane that creates a session. `leading` is shown at the start of its header. */
export function NewSessionPane({ onCreated, leading }: { onCreated: (session_id: string) => void; leading: ComponentChildren }) {
  const user = useStore(currentUser)!;
  const [agent, setAgent] = useState(user.default_agent);
  const [level, setLevel] = useState("");
  const ceiling = useAutonomyCeiling();
  const [preflight, setPreflight] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const selectedAgent = user.agents.find((candidate) => candidate.name === agent);
  const isMarketAgent = useStore(sessions, () => selectedAgent?.description.includes("market") ?? false);

  // A session that was created but whose message was not accepted is used by the next attempt.
  const createdRef = useRef<{ request: string; session: Session } | null>(null);
  const getOrCreateSession = async (request: Parameters<typeof client.createSession>[0]) => {
    const key = JSON.stringify(request);
    if (createdRef.current?.request !== key) createdRef.current = { request: key, session: await client.createSession(request) };
    return createdRef.current.session;
  };

  const startSession = async (message: string, message_id: string, workflow?: WorkflowRequest) => {
    setProblem(null);
    try {
      const session = await getOrCreateSession({
        agent, ...(level ? { autonomy_level: Number(level) } : {}), ...(preflight ? { preflight } : {}),
      });
      await sendMessage({ session_id: session.session_id, message: message || undefined, message_id, on_busy: "queue", workflow });
      void loadSessions();
      onCreated(session.session_id);
      return true;
    } catch (error) {
      setProblem(toProblem(error));
      return false;
    }
  };

  return (
    <section class="pane new-pane" aria-label="New session">
      <header class="pane-head">{leading}<h2>New session</h2></header>
      <div class="scroller">
        <div class="welcome">
          <span class="brand-mark big" aria-hidden="true" />
          <h2>What do you want to do?</h2>
          <p>{selectedAgent?.description || "Send a message to start a session."}</p>
          {isMarketAgent && (
            <ul class="suggestions">
              {EXAMPLE_PROMPTS.map(([text, hint]) => (
                <li key={text}><button type="button" onClick={() => void startSession(text, crypto.randomUUID())}>
                  <span>{text}</span><small>{hint}</small><Icon name="chevron" size={16} />
                </button></li>
              ))}
            </ul>
          )}
        </div>
      </div>
      <Composer draftKey="new" state="new" problem={problem} onSend={(message, id, _, workflow) => startSession(message, id, workflow)} onCancel={() => undefined}
        options={
          <div class="options">
            {user.agents.length > 1 && (
              <label>Agent <select value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
                {user.agents.map((candidate) => <option key={candidate.name} value={candidate.name}>{candidate.name}</option>)}
              </select></label>
            )}
            <label>Autonomy <select value={level} onChange={(event) => setLevel(event.currentTarget.value)}>
              <option value="">default{ceiling !== null && `: L${ceiling}`}</option>
              {LEVEL_LABELS.map((name, index) => {
                const isAboveCeiling = ceiling !== null && index > ceiling;
                return <option key={name} value={String(index)} disabled={isAboveCeiling}>L{index} {name.toLowerCase()}{isAboveCeiling && " (above limit)"}</option>;
              })}
            </select></label>
            <label class="toggle"><input type="checkbox" checked={preflight} onChange={(event) => setPreflight(event.currentTarget.checked)} /><span>Plan first</span></label>
          </div>
        } />
    </section>
  );
}
