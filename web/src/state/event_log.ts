/**
 * The committed events of all sessions that the page received, in order of arrival, up to a limit.
 */

import { client } from "../api/client";
import type { Frame, Session } from "../api/types";
import { Store } from "./store";

/** The maximum number of events in the log. Older events are dropped. */
export const EVENTS_MAX = 200_000;
/** The number of events dropped at once when the log is full, so that drops are rare. */
const DROP_COUNT = 10_000;
/** The number of sessions, pages per session and events per page loaded when the page is opened. */
const HISTORY = { sessions: 20, pages: 4, page: 500 };

/** A deduplicated, bounded log of events. */
export class EventLog {
  /** The events. The array is changed in place; `version` changes with it. */
  readonly frames: Frame[] = [];
  readonly version = new Store(0);
  readonly loading = new Store(false);
  /** Changes when events were reordered or dropped, and not only appended. */
  generation = 0;
  /** The number of events dropped so far. */
  dropped = 0;
  private readonly seenSeqs = new Map<string, Set<number>>();
  private notifyScheduled = false;

  /** Appends the events that the log does not have. Ignores text deltas and control frames. */
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
      for (const frame of this.frames.splice(0, this.frames.length - EVENTS_MAX + DROP_COUNT)) {
        this.seenSeqs.get(frame.session_id)?.delete(frame.seq ?? -1);
        this.dropped += 1;
      }
      this.generation += 1;
    }
    this.notify();
  }

  /** Loads the events of the newest sessions that were committed before the page was connected. */
  catchUp(sessions: Session[]): Promise<void> {
    return this.loadSessions(sessions.slice(0, HISTORY.sessions));
  }

  /** Returns the highest `seq` in the log of a session; 0 if there is none. */
  head(session_id: string): number {
    let last = 0;
    for (const seq of this.seenSeqs.get(session_id) ?? []) last = Math.max(last, seq);
    return last;
  }

  private async loadSessions(sessions: Session[]): Promise<void> {
    this.loading.set(true);
    const loaded: Frame[] = [];
    for (const { session_id } of sessions) {
      await this.loadSession(session_id, this.head(session_id), loaded).catch(() => undefined);
    }
    this.add(loaded);
    // Events received during the load are newer than the loaded ones.
    this.sort();
    this.loading.set(false);
    this.notify();
  }

  private async loadSession(session_id: string, after: number, target: Frame[]): Promise<void> {
    for (let page = 0; page < HISTORY.pages; page++) {
      const { frames, next } = await client.listEvents(session_id, after, HISTORY.page);
      target.push(...frames);
      if (frames.length < HISTORY.page) return;
      after = next;
    }
  }

  /** Loads every event of one session. */
  async loadAll(session_id: string): Promise<void> {
    let after = 0;
    for (;;) {
      const { frames, next } = await client.listEvents(session_id, after, HISTORY.page);
      this.add(frames);
      if (frames.length < HISTORY.page) break;
      after = next;
    }
    this.sort();
    this.notify();
  }

  private sort(): void {
    this.frames.sort((a, b) => (a.at < b.at ? -1 : a.at > b.at ? 1 : compareSeq(a, b)));
    this.generation += 1;
  }

  private notify(): void {
    if (this.notifyScheduled) return;
    this.notifyScheduled = true;
    setTimeout(() => {
      this.notifyScheduled = false;
      this.version.update((n) => n + 1);
    }, 50);
  }
}

function compareSeq(a: Frame, b: Frame): number {
  return a.session_id === b.session_id ? (a.seq ?? 0) - (b.seq ?? 0) : 0;
}
