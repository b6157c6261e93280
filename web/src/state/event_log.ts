/**
 * The events that the page has heard, of all sessions, in the order they came; as many as there is
 * room for. Whoever looks may stop looking: nothing is lost meanwhile.
 */

import { client } from "../api/client";
import type { Frame, Session } from "../api/types";
import { Store } from "./store";

/** Events kept on the page; the oldest leave. */
export const EVENTS_MAX = 200_000;
/** How many are dropped at once when there is no more room, so that dropping is rare. */
const DROP = 10_000;
/** Sessions whose past is read when the page opens, and pages of it. */
const PAST = { sessions: 20, pages: 4, page: 500 };

export class EventLog {
  /** Grows in place; `version` tells that it did. */
  readonly frames: Frame[] = [];
  readonly version = new Store(0);
  readonly loading = new Store(false);
  /** Changes when the order did, and not only the end. */
  generation = 0;
  /** How many have left. */
  dropped = 0;
  private readonly seenSeqs = new Map<string, Set<number>>();
  private scheduled = false;

  add(frames: Frame[]): void {
    let grew = false;
    for (const frame of frames) {
      if (frame.seq === null || frame.type === "text") continue;
      let seqs = this.seenSeqs.get(frame.session_id);
      if (!seqs) this.seenSeqs.set(frame.session_id, (seqs = new Set()));
      if (seqs.has(frame.seq)) continue;
      seqs.add(frame.seq);
      this.frames.push(frame);
      grew = true;
    }
    if (!grew) return;
    if (this.frames.length > EVENTS_MAX) {
      for (const gone of this.frames.splice(0, this.frames.length - EVENTS_MAX + DROP)) {
        this.seenSeqs.get(gone.session_id)?.delete(gone.seq ?? -1);
        this.dropped += 1;
      }
      this.generation += 1;
    }
    this.notify();
  }

  /** Reads what was said before, or while nobody listened. */
  catchUp(sessions: Session[]): Promise<void> {
    return this.read(sessions.slice(0, PAST.sessions));
  }

  /** The last event of the session that was heard; 0 for none. */
  head(session_id: string): number {
    let last = 0;
    for (const seq of this.seenSeqs.get(session_id) ?? []) last = Math.max(last, seq);
    return last;
  }

  private async read(sessions: Session[]): Promise<void> {
    this.loading.set(true);
    const past: Frame[] = [];
    for (const { session_id } of sessions) {
      await this.readOne(session_id, this.head(session_id), past).catch(() => undefined);
    }
    this.add(past);
    // What is older than what was heard meanwhile belongs before it.
    this.sort();
    this.loading.set(false);
    this.notify();
  }

  private async readOne(session_id: string, after: number, into: Frame[]): Promise<void> {
    for (let page = 0; page < PAST.pages; page++) {
      const { frames, next } = await client.events(session_id, after, PAST.page);
      into.push(...frames);
      if (frames.length < PAST.page) return;
      after = next;
    }
  }

  /** All there is of one session. */
  async readAll(session_id: string): Promise<void> {
    let after = 0;
    for (;;) {
      const { frames, next } = await client.events(session_id, after, PAST.page);
      this.add(frames);
      if (frames.length < PAST.page) break;
      after = next;
    }
    this.sort();
    this.notify();
  }

  private sort(): void {
    this.frames.sort((one, other) => (one.at < other.at ? -1 : one.at > other.at ? 1 : order(one, other)));
    this.generation += 1;
  }

  private notify(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    setTimeout(() => {
      this.scheduled = false;
      this.version.update((n) => n + 1);
    }, 50);
  }
}

function order(one: Frame, other: Frame): number {
  return one.session_id === other.session_id ? (one.seq ?? 0) - (other.seq ?? 0) : 0;
}
