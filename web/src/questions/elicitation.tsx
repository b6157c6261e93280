/** What a tool asks a person while it runs: a form by its schema, or a page to visit. */

import { useState } from "preact/hooks";
import type { Question } from "../api/types";
import { Button } from "../parts/ui";
import type { Answering } from "./answering";
import { type Draft, objectOf, SchemaForm } from "./form";

export function ElicitationQuestion({ question, answering }: { question: Question; answering: Answering }) {
  const schema = objectOf(question.schema);
  const required = Array.isArray(schema.required) ? schema.required.map(String) : [];
  const [draft, setDraft] = useState<Draft>({ value: {}, fits: true });
  const isPage = question.mode === "url";
  const complete = isPage || (draft.fits && required.every((name) => draft.value[name] !== undefined && draft.value[name] !== ""));
  const answer = () => void answering.answer("answer", isPage ? { decision: "answer" } : { decision: "answer", value: draft.value });
  return (
    <>
      <p class="step-says">{question.tool && <code class="tool-name">{question.tool}</code>} {question.message}</p>
      {isPage ? <Page url={question.url ?? ""} /> : <SchemaForm schema={schema} initial={{}} onChange={setDraft} />}
      <footer>
        <div class="answers">
          <Button tone="danger" busy={answering.busy === "reject"} onClick={() => void answering.answer("reject", { decision: "reject" })}>Decline</Button>
          <Button tone="primary" icon={isPage ? "check" : "send"} busy={answering.busy === "answer"} disabled={!complete} onClick={answer}>
            {isPage ? "I have been there" : "Answer"}
          </Button>
        </div>
      </footer>
    </>
  );
}

/** The tool chose the address: it is shown whole, and opened only by a person's click. */
function Page({ url }: { url: string }) {
  const isWeb = /^https?:\/\//i.test(url);
  return <p class="step-says">{isWeb ? <a href={url} target="_blank" rel="noopener noreferrer">{url}</a> : <code>{url}</code>}</p>;
}
