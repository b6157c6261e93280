/**
 * An approval of kind `elicitation`: input that a running tool requests, as a form or as a URL to
 * open.
 */

import { useState } from "preact/hooks";
import type { Approval } from "../api/types";
import { Icon } from "../components/icon";
import { Button, Dialog } from "../components/ui";
import { EscapedText } from "../components/escaped_text";
import type { AnswerState } from "./use_answer";
import { type FormDraft, asObject, SchemaForm } from "./schema_form";
import { schemaDefaults, isComplete } from "./schema_fields";

/** The controls of an elicitation. */
export function ElicitationApproval({ approval, answerState }: { approval: Approval; answerState: AnswerState }) {
  const declineButton = <Button tone="danger" busy={answerState.busy === "reject"} onClick={() => void answerState.submit("reject", { decision: "reject" })}>Decline</Button>;
  return (
    <>
      <p class="elicitation-source"><code class="tool-name"><EscapedText text={approval.tool ?? ""} /></code>{approval.server && <small> of <EscapedText text={approval.server} /></small>} requests input</p>
      <blockquote class="elicitation-message" dir="auto"><EscapedText text={approval.message ?? ""} /></blockquote>
      {approval.mode === "url" ? <UrlElicitation approval={approval} answerState={answerState} declineButton={declineButton} /> : <ElicitationForm approval={approval} answerState={answerState} declineButton={declineButton} />}
    </>
  );
}

interface ElicitationProps {
  approval: Approval;
  answerState: AnswerState;
  declineButton: preact.ComponentChild;
}

function ElicitationForm({ approval, answerState, declineButton }: ElicitationProps) {
  const schema = asObject(approval.schema);
  const [initial] = useState(() => schemaDefaults(schema));
  const [draft, setDraft] = useState<FormDraft>({ value: initial, isValid: true });
  const isReady = draft.isValid && isComplete(schema, draft.value);
  return (
    <>
      <SchemaForm schema={schema} initial={initial} onChange={setDraft} />
      <footer>
        <p class="hint">Your answer is sent to {approval.server ? <code><EscapedText text={approval.server} /></code> : "the tool"}.</p>
        <div class="button-row">
          {declineButton}
          <Button tone="primary" icon="send" busy={answerState.busy === "answer"} disabled={!isReady}
            onClick={() => void answerState.submit("answer", { decision: "answer", value: draft.value })}>Answer</Button>
        </div>
      </footer>
    </>
  );
}

/**
 * A URL chosen by the tool. It is shown in full and opened only after the user confirms it in a
 * dialog.
 */
function UrlElicitation({ approval, answerState, declineButton }: ElicitationProps) {
  const [isConfirming, setConfirming] = useState(false);
  const [wasOpened, setOpened] = useState(false);
  const text = approval.url ?? "";
  const url = URL.canParse(text) ? new URL(text) : null;
  const isWeb = url?.protocol === "https:" || url?.protocol === "http:";
  const markOpened = () => {
    setConfirming(false);
    setOpened(true);
  };
  return (
    <>
      <div class="url-elicitation">
        <Icon name="link" />
        <p>{url && isWeb ? <Address url={url} /> : <code><EscapedText text={text} /></code>}
          {url?.protocol === "http:" && <small class="error-text">Not encrypted: others can read the connection.</small>}</p>
        <Button disabled={!isWeb} onClick={() => setConfirming(true)}>Open…</Button>
      </div>
      <footer>
        <div class="button-row">
          {declineButton}
          <Button tone="primary" icon="check" busy={answerState.busy === "answer"} disabled={!wasOpened}
            onClick={() => void answerState.submit("answer", { decision: "answer" })}>Confirm completion</Button>
        </div>
      </footer>
      {isConfirming && url && (
        <Dialog title={`Open ${url.host}?`} onClose={() => setConfirming(false)} actions={
          <><Button onClick={() => setConfirming(false)}>Cancel</Button>
            <a class="button primary" href={url.href} target="_blank" rel="noopener noreferrer" onClick={markOpened}>Open {url.host}</a></>
        }>
          <p>The tool <code><EscapedText text={approval.tool ?? ""} /></code> of <strong><EscapedText text={approval.server ?? ""} /></strong> chose this address, not the operator of this server. Open it only if you expect it.</p>
          <p class="full-address"><Address url={url} /></p>
        </Dialog>
      )}
    </>
  );
}

/** A URL with its host emphasised. */
function Address({ url }: { url: URL }) {
  const [before = "", after = ""] = url.href.split(url.host, 2);
  return <code class="address">{before}<strong>{url.host}</strong>{after}{url.href.slice(before.length + url.host.length + after.length)}</code>;
}
