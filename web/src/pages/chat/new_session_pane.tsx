/** Where a conversation begins. Its session is made with its first message. */

import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import { client, type WorkflowRequest } from "../../api/client";
import { type Problem, toProblem } from "../../api/http";
import type { Session } from "../../api/types";
import { Icon } from "../../components/icon";
import { LEVEL_LABELS } from "../../components/format";
import { loadSessions, me, sendMessage, sessions } from "../../state/app_state";
import { useStore } from "../../state/store";
import { Composer } from "./composer";
import { useCeiling } from "./use_autonomy_ceiling";

/** What the tour of the README asks, for the agent that ships with it. */
const TOUR = [
  ["What is the current sell price of Tritanium in Jita?", "one look at the market"],
  ["Which ships were destroyed most in Jita last week?", "many look-ups at once"],
  ["Buy 1000 Tritanium at market price", "asks you first"],
  ["Stock up", "several writes in one plan"],
  ["Get production cost for Stabber", "a tool that stumbles and tries again"],
  ["Transfer 100M ISK to character XYZ", "not allowed at this level"],
] as const;

export function NewPane({ onCreated, tools }: { onCreated: (session_id: string) => void; tools: ComponentChildren }) {
  const who = useStore(me)!;
  const [agent, setAgent] = useState(who.default_agent);
  const [level, setLevel] = useState("");
  const ceiling = useCeiling();
  const [preflight, setPreflight] = useState(false);
  const [problem, setProblem] = useState<Problem | null>(null);
  const chosen = who.agents.find((one) => one.name === agent);
  const isTour = useStore(sessions, () => chosen?.description.includes("market") ?? false);

  // Made by an attempt whose message did not get through: the next one needs no other.
  const made = useRef<{ wish: string; session: Session } | null>(null);
  const sessionFor = async (wish: Parameters<typeof client.createSession>[0]) => {
    const key = JSON.stringify(wish);
    if (made.current?.wish !== key) made.current = { wish: key, session: await client.createSession(wish) };
    return made.current.session;
  };

  const begin = async (message: string, message_id: string, workflow?: WorkflowRequest) => {
    setProblem(null);
    try {
      const session = await sessionFor({
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
    <section class="pane new-pane" aria-label="New conversation">
      <header class="pane-head">{tools}<h2>New conversation</h2></header>
      <div class="scroller">
        <div class="welcome">
          <span class="brand-mark big" aria-hidden="true" />
          <h2>What shall we do?</h2>
          <p>{chosen?.description || "Ask, and approve what the agent may do."}</p>
          {isTour && (
            <ul class="suggestions">
              {TOUR.map(([text, why]) => (
                <li key={text}><button type="button" onClick={() => void begin(text, crypto.randomUUID())}>
                  <span>{text}</span><small>{why}</small><Icon name="chevron" size={16} />
                </button></li>
              ))}
            </ul>
          )}
        </div>
      </div>
      <Composer conversation="new" state="new" problem={problem} onSend={(message, id, _, workflow) => begin(message, id, workflow)} onCancel={() => undefined}
        options={
          <div class="options">
            {who.agents.length > 1 && (
              <label>Agent <select value={agent} onChange={(event) => setAgent(event.currentTarget.value)}>
                {who.agents.map((one) => <option key={one.name} value={one.name}>{one.name}</option>)}
              </select></label>
            )}
            <label>May do <select value={level} onChange={(event) => setLevel(event.currentTarget.value)}>
              <option value="">as your settings say{ceiling !== null && `: L${ceiling}`}</option>
              {LEVEL_LABELS.map((name, at) => {
                const isAbove = ceiling !== null && at > ceiling;
                return <option key={name} value={String(at)} disabled={isAbove}>L{at} {name.toLowerCase()}{isAbove && " (above yours)"}</option>;
              })}
            </select></label>
            <label class="toggle"><input type="checkbox" checked={preflight} onChange={(event) => setPreflight(event.currentTarget.checked)} /><span>Plan first</span></label>
          </div>
        } />
    </section>
  );
}
