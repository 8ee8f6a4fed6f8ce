/**
 * Requests for budgets as the service tells them, and in words. Pure: the time comes in.
 */
import type { AllocationThen, BudgetChange, BudgetHistory, BudgetRequest, BudgetRequests } from '../answers.js';
import { clock } from '../text.js';
import { trans } from '../trans.js';
import type { IWhatIf } from './wire.js';
import { change } from './words.js';

export type IRequest = BudgetRequest;
export type IRequests = BudgetRequests;
export type IBudgetChange = BudgetChange;
export type IHistory = BudgetHistory;

/** What is asked for, or decided. Times are Unix seconds; 0: at once, or for good. */
export interface ITerms {
  shares?: Record<string, number>;
  allocation?: string;
  gpus?: number;
  why?: string;
  words?: string;
  from_s?: number;
  until_s?: number;
  preview?: unknown;
}

/** What is seen first: what can still change, then the last ones that are settled. */
export function ranked(requests: readonly IRequest[], settled: number): IRequest[] {
  const live = requests.filter(one => one.state === 'open' || one.state === 'accepted');
  return [...live, ...requests.filter(one => !live.includes(one)).slice(0, settled)];
}

/** `language: 50 → 60`. `now`: shares by path as they are, for those that are not in force yet. */
export function wish(one: IRequest, now: ReadonlyMap<string, string>): string {
  const parts = Object.entries(one.shares).map(([path, share]) => {
    const was = one.before[path] ?? (one.state === 'open' || one.state === 'accepted' ? now.get(path) : undefined);
    return `${path}: ${was === undefined ? share : change(was, share)}`;
  });
  return one.gpus === null ? parts.join(', ') : trans.__('%1 (for %2 GPUs)', parts.join(', '), one.gpus);
}

export function standing(one: IRequest, nowS: number): string {
  const by = one.decision?.by ?? '';
  const until = one.until_s === null ? '' : ` ${trans.__('until %1', clock(one.until_s, nowS))}`;
  switch (one.state) {
    case 'open':
      return trans.__('open');
    case 'accepted':
      return trans.__('accepted by %1, comes into force %2%3', by, clock(one.from_s ?? nowS, nowS), until);
    case 'in_force':
      return trans.__('in force since %1%2, decided by %3', clock(one.in_force_s ?? nowS, nowS), until, by);
    case 'over':
      return trans.__('over since %1', clock(one.over_s ?? nowS, nowS));
    case 'refused':
      return trans.__('refused by %1', by);
    case 'withdrawn':
      return trans.__('withdrawn by %1', by);
    default:
      return trans.__('could not come into force: %1', one.problem);
  }
}

/** When it is wished for; '' for one without times of its own. */
export function times(one: IRequest, nowS: number): string {
  if (one.state !== 'open') {
    return '';
  }
  const parts = [
    one.from_s === null ? '' : trans.__('from %1', clock(one.from_s, nowS)),
    one.until_s === null ? '' : trans.__('until %1', clock(one.until_s, nowS))
  ];
  return parts.filter(Boolean).join(' ');
}

/** A line for each allocation of a change in the history. */
export function changed(one: IBudgetChange, most = 8): string[] {
  const lines = one.allocations.slice(0, most).map(row => {
    const parts: string[] = [];
    if (row.before.share !== row.after.share) {
      const part = (then: AllocationThen) => (then.entitlement === null ? '–' : `${(100 * then.entitlement).toFixed(1)} %`);
      parts.push(`${row.before.share ?? '–'} → ${row.after.share ?? '–'} (${part(row.before)} → ${part(row.after)})`);
    }
    if (row.before.members.join() !== row.after.members.join()) {
      parts.push(trans.__('members: %1', row.after.members.join(', ') || trans.__('all')));
    }
    return `${row.path}: ${parts.join('; ')}`;
  });
  const left = one.count - lines.length;
  return left > 0 ? [...lines, trans._n('and %1 more', 'and %1 more', left)] : lines;
}

/** What somebody attached, if it has the shape of a what-if; anybody may attach anything. */
export function played(found: unknown): IWhatIf | null {
  const whole = found as IWhatIf | null | undefined;
  const figures = (one: unknown): boolean => {
    const it = one as IWhatIf['allocations'][number]['before'] | null | undefined;
    return (
      [it?.entitlement, it?.gpus_held, it?.delivered_gpu_s, it?.preemptions].every(Number.isFinite) &&
      (it?.wait_s?.p50 === null || Number.isFinite(it?.wait_s?.p50))
    );
  };
  const right =
    Array.isArray(whole?.allocations) &&
    whole.allocations.every(
      one =>
        typeof one?.path === 'string' &&
        ['gains', 'loses', ''].includes(one.verdict) &&
        figures(one.before) &&
        (one.after === null || figures(one.after))
    );
  return right ? whole! : null;
}

/** Unix seconds of what a `datetime-local` field holds; undefined for an empty one. */
export function instant(text: string): number | undefined {
  const at = new Date(text).getTime() / 1000;
  return text && Number.isFinite(at) ? at : undefined;
}

/** What such a field holds for a moment, by the reader's clock. */
export function localField(atS: number | null): string {
  if (atS === null) {
    return '';
  }
  const at = new Date(atS * 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
