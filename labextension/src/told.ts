/**
 * Which news of a session are told, and how loudly. Pure.
 */
import { cut } from './text.js';
import type { ISession } from './wire';

/** Kinds of news, as the settings name them. */
export const KINDS = ['preemption', 'started', 'restored', 'kernelDied', 'unusedGpus'] as const;
export type Kind = (typeof KINDS)[number];

/** `show`: it pops up. `quiet`: it is in the list of notifications only. */
export type Manner = 'show' | 'quiet' | 'never';

/** How each kind is told; what is not set, or not understood, is shown. */
export type Manners = Partial<Record<Kind | 'doNotDisturb', unknown>>;

export function mannerOf(kind: Kind, manners: Manners): Manner {
  const wanted = manners[kind];
  const manner = wanted === 'quiet' || wanted === 'never' ? wanted : 'show';
  return manner === 'show' && manners.doNotDisturb === true ? 'quiet' : manner;
}

const HOLDING = new Set(['running', 'checkpointing', 'stopping']);
const WAITING = new Set(['queued', 'parked']);

export type News = 'leaves' | 'left' | 'started' | 'restored' | 'stayed';

/** What happened between two states of a session, if anything that its owner should hear of. */
export function newsOf(before: ISession, after: ISession): News | null {
  if (after.not_moved && !before.not_moved) {
    return 'stayed';
  }
  if (cut(after) && !cut(before) && after.deadline_s !== null) {
    return 'leaves';
  }
  if (HOLDING.has(before.state) && WAITING.has(after.state)) {
    return 'left';
  }
  if (after.state !== 'running' || before.state === 'running' || HOLDING.has(before.state)) {
    return null;
  }
  return before.state === 'restoring' ? 'restored' : 'started';
}

/** Minutes until a moment, for a person: never 0 while there is time. */
export function minutesUntil(atS: number, nowS: number): number {
  return Math.max(1, Math.ceil((atS - nowS) / 60));
}
