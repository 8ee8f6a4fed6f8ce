/**
 * Figures of a period in words. Pure: the time comes in.
 */
import { trans } from '../trans.js';
import type { IAllocation, IDelivered, ILevel, IPyramidOfPool, IStay } from './wire.js';
import { gpuTime } from './words.js';

export function percent(fraction: number): string {
  return `${(100 * fraction).toFixed(1)} %`;
}

/** What is not known is never 0. */
export function ratio(level: ILevel): string {
  return level.ratio === null ? trans.__('unknown') : percent(level.ratio);
}

export type LevelName = 'availability' | 'occupancy' | 'impact' | 'utilization';
export const LEVELS: LevelName[] = ['availability', 'occupancy', 'impact', 'utilization'];

export function levelName(name: LevelName): string {
  return {
    availability: trans.__('Availability'),
    occupancy: trans.__('Occupancy'),
    impact: trans.__('Impact'),
    utilization: trans.__('Utilization')
  }[name];
}

/** What a level is a part of. */
export function meaning(name: LevelName): string {
  return {
    availability: trans.__('of the GPUs that are installed, on nodes that could be used'),
    occupancy: trans.__('of the GPU time that was available, held by work'),
    impact: trans.__('of the GPU time that was owed, delivered'),
    utilization: trans.__('of the GPU time that was held and measured, in use')
  }[name];
}

function cause(name: string): string {
  const words: Record<string, string> = {
    lost: trans.__('on nodes that did not answer'),
    cordoned: trans.__('on nodes that were cordoned'),
    idle: trans.__('idle'),
    held: trans.__('free, but kept for somebody'),
    'not delivered': trans.__('owed, but not delivered')
  };
  return words[name] ?? name;
}

const MOST_OWED = 8; // allocations that are named

/** Where the rest of a level went, a line for each cause. */
export function causes(name: LevelName, pool: IPyramidOfPool, allocations: IDelivered[]): string[] {
  const level = pool[name];
  if (name === 'utilization') {
    return used(pool);
  }
  const lines = level.losses.filter(loss => loss.gpu_s > 0).map(loss => `${gpuTime(loss.gpu_s)} ${cause(loss.cause)}`);
  if (name === 'occupancy' && pool.held_gpu_s > 0) {
    lines.push(trans.__('of what was held, %1 started, saved or restored', gpuTime(pool.switching_gpu_s)));
    lines.push(trans.__('of what was held, %1 was unallocated', gpuTime(pool.unallocated_gpu_s)));
  }
  if (name === 'impact') {
    const missing = allocations
      .filter(one => one.leaf && one.owed_gpu_s > one.capped_gpu_s)
      .sort((one, other) => other.owed_gpu_s - other.capped_gpu_s - (one.owed_gpu_s - one.capped_gpu_s));
    for (const one of missing.slice(0, MOST_OWED)) {
      lines.push(trans.__('%1: %2 of %3', one.path, gpuTime(one.owed_gpu_s - one.capped_gpu_s), gpuTime(one.owed_gpu_s)));
    }
  }
  return lines.length ? lines : [trans.__('Nothing was lost.')];
}

function used(pool: IPyramidOfPool): string[] {
  const level = pool.utilization;
  if (level.ratio === null) {
    return [trans.__('No node has measured it: it is unknown, not 0.')];
  }
  return [
    trans.__('%1 held, but not in use', gpuTime(level.of_gpu_s - level.kept_gpu_s)),
    trans.__('measured on %1 of what was held', percent(level.coverage ?? 0))
  ];
}

/** How an allocation stands now, beside its course. */
export function stands(one: IAllocation): string {
  const metric =
    one.metric === null
      ? trans.__('no metric: nothing is due')
      : one.metric < 1
        ? trans.__('metric %1: under-served', one.metric.toFixed(3))
        : trans.__('metric %1: over-served', one.metric.toFixed(3));
  return trans.__('%1 · %2 committed', metric, gpuTime(one.commitment_gpu_s));
}

/** From when until when a stay could be preempted: what its protections leave of it. */
export function exposed(stay: IStay, untilS: number): [number, number][] {
  const left: [number, number][] = [];
  let at = stay.from_s;
  for (const [begin, end] of stay.protected) {
    if (begin > at) {
      left.push([at, Math.min(begin, untilS)]);
    }
    at = Math.max(at, end);
  }
  if (at < untilS) {
    left.push([at, untilS]);
  }
  return left.filter(([begin, end]) => end > begin);
}

/** Neighbouring rows together: (first, count). */
export function runs(rows: number[]): [number, number][] {
  const found: [number, number][] = [];
  for (const row of rows) {
    const last = found[found.length - 1];
    if (last && last[0] + last[1] === row) {
      last[1] += 1;
    } else {
      found.push([row, 1]);
    }
  }
  return found;
}
