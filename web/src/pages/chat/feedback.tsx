/** Feedback: stars for an answer, a rating of a call, each with an optional comment. */

import type { ComponentChildren } from "preact";
import { useId, useRef, useState } from "preact/hooks";
import { client } from "../../api/client";
import { toProblem } from "../../api/http";
import { Icon } from "../../components/icon";
import { RelativeTime } from "../../components/time";
import { Badge, Button, IconButton, SegmentedControl } from "../../components/ui";
import { useRestoreFocus } from "../../components/use_focus";
import { CALL_RATINGS } from "../../components/call_ratings";
import type { Call, Feedback, CallRating } from "../../state/session_view";
import { currentUser } from "../../state/app_state";
import { useStore } from "../../state/store";

const STARS = [1, 2, 3, 4, 5];
const STAR_LABELS = ["bad", "poor", "fair", "good", "great"];

/**
 * Shows the ratings of an answer and a form to rate it. `actions` are shown next to the rating
 * button.
 */
export function Rating({ session_id, message_id, entries, actions }: {
  session_id: string; message_id: string; entries: Feedback<number>[]; actions: ComponentChildren;
}) {
  const userId = useStore(currentUser)?.user_id;
  const ownFeedback = entries.find((entry) => entry.by === userId);
  const [isOpen, setOpen] = useState(false);
  const container = useRef<HTMLDivElement>(null);
  useRestoreFocus(container, "[aria-expanded]", isOpen);
  const send = (rating: number, comment: string) => client.sendFeedback({ session_id, message_id, rating, comment: comment || undefined });
  return (
    <>
      <div ref={container} class={`answer-actions${isOpen ? " shown" : ""}`}>
        {actions}
        <IconButton icon="star" label={ownFeedback ? "Change your rating" : "Rate this answer"} aria-expanded={isOpen} onClick={() => setOpen(!isOpen)} />
      </div>
      {entries.length > 0 && <p class="feedback-list">{entries.map((entry) => <FeedbackEntry key={entry.by} entry={entry} isOwn={entry.by === userId}><Stars count={entry.value} /></FeedbackEntry>)}</p>}
      {isOpen && <FeedbackForm initial={ownFeedback} onSend={send} onClose={() => setOpen(false)} emptyValue={0}>
        {(value, onChange) => <StarField value={value} onChange={onChange} />}
      </FeedbackForm>}
    </>
  );
}

/** Shows the ratings of a call and a form to rate it. */
export function CallFeedback({ session_id, call }: { session_id: string; call: Call }) {
  const userId = useStore(currentUser)?.user_id;
  const ownFeedback = call.verdicts.find((entry) => entry.by === userId);
  const [isOpen, setOpen] = useState(false);
  const container = useRef<HTMLElement>(null);
  useRestoreFocus(container, ".text-button, .segmented button", isOpen);
  const send = (verdict: CallRating, comment: string) => client.sendFeedback({ session_id, call_id: call.call_id, verdict, comment: comment || undefined });
  return (
    <section ref={container} class="call-feedback"><h3>Rating</h3>
      {call.verdicts.map((entry) => <FeedbackEntry key={entry.by} entry={entry} isOwn={entry.by === userId}><Badge tone={CALL_RATINGS[entry.value].tone}>{CALL_RATINGS[entry.value].label}</Badge></FeedbackEntry>)}
      {isOpen
        ? <FeedbackForm<CallRating | null> initial={ownFeedback ?? null} onSend={(value, comment) => send(value!, comment)} onClose={() => setOpen(false)} emptyValue={null}>
            {(value, onChange) => (
              <SegmentedControl small label="Rating" value={value ?? ("" as string)} onChange={(value) => onChange(value as CallRating)}
                options={Object.entries(CALL_RATINGS).map(([value, { label, title }]) => ({ value, label, title }))} />
            )}
          </FeedbackForm>
        : <button type="button" class="text-button" onClick={() => setOpen(true)}>{ownFeedback ? "Change your rating" : "Rate this call"}</button>}
    </section>
  );
}

function FeedbackEntry({ entry, isOwn, children }: { entry: Feedback<unknown>; isOwn: boolean; children: ComponentChildren }) {
  return (
    <span class="feedback-entry">{children}<small>{isOwn ? "you" : entry.by}, <RelativeTime timestamp={entry.at} /></small>{entry.comment && <q>{entry.comment}</q>}</span>
  );
}

/** Shows a rating of 1 to 5 stars. */
export function Stars({ count }: { count: number }) {
  return (
    <span class="stars" role="img" aria-label={`${count} of 5 stars`}>
      {STARS.map((star) => <span key={star} class={star <= count ? "full" : ""}><Icon name="star" size={14} /></span>)}
    </span>
  );
}

/** A form with a value and an optional comment. `emptyValue` means that nothing is selected. */
function FeedbackForm<T>({ initial, emptyValue, onSend, onClose, children }: {
  initial: Feedback<T> | null | undefined; emptyValue: T; onSend: (value: T, comment: string) => Promise<unknown>; onClose: () => void;
  children: (value: T, onChange: (value: T) => void) => ComponentChildren;
}) {
  const [value, onChange] = useState<T>(initial?.value ?? emptyValue);
  const [comment, setComment] = useState(initial?.comment ?? "");
  const [busy, setBusy] = useState(false);
  const [problem, setProblem] = useState<string | null>(null);
  const send = async () => {
    if (value === emptyValue) return;
    setBusy(true);
    try {
      await onSend(value, comment.trim());
      onClose();
    } catch (error) {
      setProblem(toProblem(error).message);
      setBusy(false);
    }
  };
  return (
    <form class="feedback-form" onSubmit={(event) => { event.preventDefault(); void send(); }} onKeyDown={(event) => event.key === "Escape" && onClose()}>
      {children(value, onChange)}
      <input type="text" aria-label="Comment" placeholder="Comment (optional)" value={comment} onInput={(event) => setComment(event.currentTarget.value)} />
      <Button tone="primary" type="submit" busy={busy} disabled={value === emptyValue}>Send</Button>
      {problem && <p class="error-text" role="alert">{problem}</p>}
    </form>
  );
}

function StarField({ value, onChange }: { value: number; onChange: (stars: number) => void }) {
  const name = useId();
  const [hoveredStars, setHoveredStars] = useState(0);
  const shownStars = hoveredStars || value;
  return (
    <fieldset class="star-field" onPointerLeave={() => setHoveredStars(0)}>
      <legend class="sr-only">Stars</legend>
      {STARS.map((star) => (
        <label key={star} class={star <= shownStars ? "full" : ""} title={STAR_LABELS[star - 1]} onPointerEnter={() => setHoveredStars(star)}>
          <input type="radio" class="sr-only" name={name} checked={value === star} onChange={() => onChange(star)} />
          <Icon name="star" size={22} /><span class="sr-only">{star === 1 ? "1 star" : `${star} stars`}, {STAR_LABELS[star - 1]}</span>
        </label>
      ))}
    </fieldset>
  );
}
