/** What people think: stars for an answer, a verdict on a call; with words, if they have some. */

import type { ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import { Icon } from "../../components/icon";
import { RelativeTime } from "../../components/time";
import { Badge, Button, IconButton, SegmentedControl } from "../../components/ui";
import { useRestoreFocus } from "../../components/use_focus";
import { CALL_RATINGS } from "../../components/call_ratings";
import type { Call, Opinion, CallRating } from "../../state/session_view";
import { me } from "../../state/app_state";
import { useStore } from "../../state/store";

const STARS = [1, 2, 3, 4, 5];
const MEANING = ["bad", "poor", "fair", "good", "great"];

/** What is said of an answer, and a way to say something. `actions` stand beside it. */
export function Rating({ session_id, message_id, given, actions }: {
  session_id: string; message_id: string; given: Opinion<number>[]; actions: ComponentChildren;
}) {
  const who = useStore(me)?.user_id;
  const own = given.find((one) => one.by === who);
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  useRestoreFocus(box, "[aria-expanded]", open);
  const send = (rating: number, comment: string) => client.feedback({ session_id, message_id, rating, comment: comment || undefined });
  return (
    <>
      <div ref={box} class={`answer-actions${open ? " shown" : ""}`}>
        {actions}
        <IconButton icon="star" label={own ? "Rate this answer anew" : "Rate this answer"} aria-expanded={open} onClick={() => setOpen(!open)} />
      </div>
      {given.length > 0 && <p class="opinions">{given.map((one) => <OpinionText key={one.by} opinion={one} own={one.by === who}><Stars count={one.value} /></OpinionText>)}</p>}
      {open && <FeedbackForm initial={own} onSend={send} onClose={() => setOpen(false)} missing={0}>
        {(said, choose) => <StarField value={said} onChange={choose} />}
      </FeedbackForm>}
    </>
  );
}

/** The same of a call. */
export function CallFeedback({ session_id, call }: { session_id: string; call: Call }) {
  const who = useStore(me)?.user_id;
  const own = call.verdicts.find((one) => one.by === who);
  const [open, setOpen] = useState(false);
  const box = useRef<HTMLElement>(null);
  useRestoreFocus(box, ".text-button, .segmented button", open);
  const send = (verdict: CallRating, comment: string) => client.feedback({ session_id, call_id: call.call_id, verdict, comment: comment || undefined });
  return (
    <section ref={box} class="verdict-of"><h3>Was it the right call?</h3>
      {call.verdicts.map((one) => <OpinionText key={one.by} opinion={one} own={one.by === who}><Badge tone={CALL_RATINGS[one.value].tone}>{CALL_RATINGS[one.value].label}</Badge></OpinionText>)}
      {open
        ? <FeedbackForm<CallRating | null> initial={own ?? null} onSend={(said, comment) => send(said!, comment)} onClose={() => setOpen(false)} missing={null}>
            {(said, choose) => (
              <SegmentedControl small label="Verdict" value={said ?? ("" as string)} onChange={(value) => choose(value as CallRating)}
                options={Object.entries(CALL_RATINGS).map(([value, { label, title }]) => ({ value, label, title }))} />
            )}
          </FeedbackForm>
        : <button type="button" class="text-button" onClick={() => setOpen(true)}>{own ? "Say it anew" : "Give a verdict"}</button>}
    </section>
  );
}

function OpinionText({ opinion, own, children }: { opinion: Opinion<unknown>; own: boolean; children: ComponentChildren }) {
  return (
    <span class="opinion">{children}<small>{own ? "you" : opinion.by}, <RelativeTime at={opinion.at} /></small>{opinion.comment && <q>{opinion.comment}</q>}</span>
  );
}

export function Stars({ count }: { count: number }) {
  return (
    <span class="stars" role="img" aria-label={`${count} of 5 stars`}>
      {STARS.map((star) => <span key={star} class={star <= count ? "full" : ""}><Icon name="star" size={14} /></span>)}
    </span>
  );
}

/** Something is chosen, perhaps with words, and sent. */
function FeedbackForm<T>({ initial, missing, onSend, onClose, children }: {
  initial: Opinion<T> | null | undefined; missing: T; onSend: (said: T, comment: string) => Promise<unknown>; onClose: () => void;
  children: (said: T, choose: (said: T) => void) => ComponentChildren;
}) {
  const [said, choose] = useState<T>(initial?.value ?? missing);
  const [comment, setComment] = useState(initial?.comment ?? "");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const send = async () => {
    if (said === missing) return;
    setBusy(true);
    try {
      await onSend(said, comment.trim());
      onClose();
    } catch (error) {
      setProblem(toProblem(error).message);
      setBusy(false);
    }
  };
  return (
    <form class="say" onSubmit={(event) => { event.preventDefault(); void send(); }} onKeyDown={(event) => event.key === "Escape" && onClose()}>
      {children(said, choose)}
      <input type="text" aria-label="Comment" placeholder="What was good or bad about it?" value={comment} onInput={(event) => setComment(event.currentTarget.value)} />
      <Button tone="primary" type="submit" busy={busy} disabled={said === missing}>Send</Button>
      {problem && <p class="wrong" role="alert">{problem}</p>}
    </form>
  );
}

function StarField({ value, onChange }: { value: number; onChange: (stars: number) => void }) {
  const name = useId();
  const [over, setOver] = useState(0);
  const shown = over || value;
  return (
    <fieldset class="star-field" onPointerLeave={() => setOver(0)}>
      <legend class="sr-only">Stars</legend>
      {STARS.map((star) => (
        <label key={star} class={star <= shown ? "full" : ""} title={MEANING[star - 1]} onPointerEnter={() => setOver(star)}>
          <input type="radio" class="sr-only" name={name} checked={value === star} onChange={() => onChange(star)} />
          <Icon name="star" size={22} /><span class="sr-only">{star === 1 ? "1 star" : `${star} stars`}, {MEANING[star - 1]}</span>
        </label>
      ))}
    </fieldset>
  );
}
