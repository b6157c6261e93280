/** What a tool asks a person while it runs: a form by its schema, or a page to visit. */

import { useState } from "preact/hooks";
import type { Approval } from "../api/types";
import { Icon } from "../components/icon";
import { Button, Dialog } from "../components/ui";
import { EscapedText } from "../components/escaped_text";
import type { AnswerState } from "./use_answer";
import { type FormDraft, asObject, SchemaForm } from "./schema_form";
import { defaultsOf, isComplete } from "./schema_fields";

export function ElicitationApproval({ question, answering }: { question: Approval; answering: AnswerState }) {
  const decline = <Button tone="danger" busy={answering.busy === "reject"} onClick={() => void answering.answer("reject", { decision: "reject" })}>Decline</Button>;
  return (
    <>
      <p class="asks"><code class="tool-name"><EscapedText text={question.tool ?? ""} /></code>{question.server && <small> of <EscapedText text={question.server} /></small>} asks</p>
      <blockquote class="asked" dir="auto"><EscapedText text={question.message ?? ""} /></blockquote>
      {question.mode === "url" ? <UrlElicitation question={question} answering={answering} decline={decline} /> : <ElicitationForm question={question} answering={answering} decline={decline} />}
    </>
  );
}

interface ElicitationProps {
  question: Approval;
  answering: AnswerState;
  decline: preact.ComponentChild;
}

function ElicitationForm({ question, answering, decline }: ElicitationProps) {
  const schema = asObject(question.schema);
  const [initial] = useState(() => defaultsOf(schema));
  const [draft, setDraft] = useState<FormDraft>({ value: initial, isValid: true });
  const complete = draft.isValid && isComplete(schema, draft.value);
  return (
    <>
      <SchemaForm schema={schema} initial={initial} onChange={setDraft} />
      <footer>
        <p class="hint">Say nothing that {question.server ? <code><EscapedText text={question.server} /></code> : "the tool"} should not know.</p>
        <div class="answers">
          {decline}
          <Button tone="primary" icon="send" busy={answering.busy === "answer"} disabled={!complete}
            onClick={() => void answering.answer("answer", { decision: "answer", value: draft.value })}>Answer</Button>
        </div>
      </footer>
    </>
  );
}

/** The tool chose the address: it is shown whole, and opened only once a person has looked at it. */
function UrlElicitation({ question, answering, decline }: ElicitationProps) {
  const [looks, setLooks] = useState(false);
  const [wasThere, setWasThere] = useState(false);
  const text = question.url ?? "";
  const url = URL.canParse(text) ? new URL(text) : null;
  const isWeb = url?.protocol === "https:" || url?.protocol === "http:";
  const leave = () => {
    setLooks(false);
    setWasThere(true);
  };
  return (
    <>
      <div class="page-to-visit">
        <Icon name="link" />
        <p>{url && isWeb ? <Address url={url} /> : <code><EscapedText text={text} /></code>}
          {url?.protocol === "http:" && <small class="wrong">Not encrypted: others on the way can read along.</small>}</p>
        <Button disabled={!isWeb} onClick={() => setLooks(true)}>Visit…</Button>
      </div>
      <footer>
        <div class="answers">
          {decline}
          <Button tone="primary" icon="check" busy={answering.busy === "answer"} disabled={!wasThere}
            onClick={() => void answering.answer("answer", { decision: "answer" })}>I have been there</Button>
        </div>
      </footer>
      {looks && url && (
        <Dialog title={`Go to ${url.host}?`} onClose={() => setLooks(false)} actions={
          <><Button onClick={() => setLooks(false)}>Stay here</Button>
            <a class="button primary" href={url.href} target="_blank" rel="noopener noreferrer" onClick={leave}>Open {url.host}</a></>
        }>
          <p>The tool <code><EscapedText text={question.tool ?? ""} /></code> of <strong><EscapedText text={question.server ?? ""} /></strong> chose this address, not the people who run this server. Is it where you expect to go?</p>
          <p class="whole-address"><Address url={url} /></p>
        </Dialog>
      )}
    </>
  );
}

/** With the part that says whose it is standing out. */
function Address({ url }: { url: URL }) {
  const [before = "", after = ""] = url.href.split(url.host, 2);
  return <code class="address">{before}<strong>{url.host}</strong>{after}{url.href.slice(before.length + url.host.length + after.length)}</code>;
}
