/**
 * The lab in words. Pure: the time comes in.
 */
import { clock, countdown, localised } from '../text.js';
import type { IAllocation, IBudgets, IChoice, IExplanation, IFigures, INode, IWorkload } from './wire.js';

export function gpus(count: number): string {
  return count === 1 ? '1 GPU' : `${count} GPUs`;
}

/** GPU time in the unit that a person would choose: two figures, or whole hours. */
export function gpuTime(gpuS: number): string {
  const [value, unit] = gpuS < 60 ? [gpuS, 'GPU-s'] : gpuS < 3600 ? [gpuS / 60, 'GPU-min'] : [gpuS / 3600, 'GPU-h'];
  return `${value < 10 && unit === 'GPU-h' ? value.toFixed(1) : Math.round(value)} ${unit}`;
}

export function nameOf(workload: IWorkload): string {
  return workload.name || workload.notebook.split('/').pop() || workload.id.slice(0, 8);
}

/** How deep an allocation lies, from 0. */
export function depth(path: string): number {
  return path.split('/').length - 1;
}

export function when(workload: IWorkload, nowS: number): string {
  if (workload.start_by_s !== null) {
    return `starts by ${clock(workload.start_by_s, nowS)}`;
  }
  return workload.estimate_s === null ? '' : `starts about ${clock(workload.estimate_s, nowS)}`;
}

/** What a workload asks for: `2 × 8 GPUs (H200)`. */
export function asked(workload: IWorkload): string {
  const each = workload.nodes > 1 ? `${workload.nodes} × ${gpus(workload.gpus)}` : gpus(workload.gpus);
  const what = workload.gpus === 0 ? 'CPU' : each;
  return workload.gpu_type ? `${what} (${workload.gpu_type})` : what;
}

/** GPUs to which an allocation is entitled. */
export function entitledGpus(one: IAllocation, budgets: IBudgets): number {
  return budgets.window_s > 0 ? (one.entitlement * budgets.capacity_gpu_s) / budgets.window_s : 0;
}

/** How an allocation stands, for those who do not see the bar. */
export function standing(one: IAllocation, entitled: number): string {
  const share = Math.round(entitled * 10) / 10;
  const queued = one.gpus_queued ? `, ${one.gpus_queued} wanted` : '';
  return `${one.gpus_held} of ${gpus(share)}${queued}`;
}

export function spent(one: IAllocation): string {
  if (one.due_gpu_s <= 0) {
    return one.occupancy_gpu_s > 0 ? `${gpuTime(one.occupancy_gpu_s)} used, nothing due` : 'nothing used, nothing due';
  }
  const committed = one.commitment_gpu_s > 0 ? `, ${gpuTime(one.commitment_gpu_s)} committed` : '';
  return `${gpuTime(one.occupancy_gpu_s)} of ${gpuTime(one.due_gpu_s)} used${committed}`;
}

export function explained(why: IExplanation, nowS: number): string[] {
  const lines = [localised(why.sentence, nowS)];
  for (const holder of why.holders.slice(0, 5)) {
    const until = holder.until_s === null ? '' : `, ${holder.protected ? 'protected' : 'there'} until ${clock(holder.until_s, nowS)}`;
    lines.push(`${gpus(holder.gpus)}: ${holder.user} (${holder.allocation})${until}`);
  }
  if (why.change?.text) {
    lines.push(`Smallest change that would start it now: ${localised(why.change.text, nowS)}`);
  }
  return lines;
}

/** All that is known of a node, a line for each thing. */
export function nodeText(node: INode, here: IWorkload[], nowS: number): string[] {
  const type = node.gpu_type ? ` (${node.gpu_type})` : '';
  const lines = [`${node.name}: ${node.free_gpus} of ${gpus(node.gpus)}${type} free`];
  if (node.state !== 'ready') {
    lines.push(node.state === 'lost' ? 'does not answer: nothing is put on it' : 'cordoned: nothing new is put on it');
  }
  if (node.drain?.deadline_s) {
    lines.push(`to be empty by ${clock(node.drain.deadline_s, nowS)}`);
  }
  if (node.closes_at_s !== null) {
    lines.push(`closes at ${clock(node.closes_at_s, nowS)} for maintenance`);
  }
  const until = new Map(node.protected.map(one => [one.workload, one.until_s]));
  for (const workload of here) {
    const held = workload.leases.filter(lease => lease.node === node.name).reduce((sum, lease) => sum + lease.gpus, 0);
    const left = (until.get(workload.id) ?? 0) - nowS;
    const end = left > 0 ? `protected ${countdown(left)}` : 'may be preempted';
    lines.push(`${held ? gpus(held) : 'CPU'}: ${nameOf(workload)}, ${workload.user} (${workload.allocation}), ${end}`);
  }
  for (const landing of node.landings) {
    const by = landing.start_by_s ?? landing.at_s;
    lines.push(`${gpus(landing.gpus)} kept for ${landing.workload.slice(0, 8)}${by === null ? '' : ` until ${clock(by, nowS)}`}`);
  }
  return lines;
}

export function duration(seconds: number): string {
  const minutes = Math.round(seconds / 60);
  if (seconds < 60) {
    return `${Math.round(seconds)} s`;
  }
  return minutes % 60 ? (minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`) : `${minutes / 60} h`;
}

/** When a choice would start. */
export function outlook(choice: IChoice, nowS: number): string {
  const at = choice.at_s === null ? '' : ` ${clock(choice.at_s, nowS)}`;
  switch (choice.outlook) {
    case 'now':
      return 'starts now';
    case 'makes room':
      return `starts${at ? ` about${at}` : ' soon'}: others make room`;
    case 'start by':
      return `starts by${at}`;
    case 'estimated':
      return `starts about${at}`;
    case 'refused':
      return 'refused';
    default:
      return 'nobody can say when it starts';
  }
}

/** What a choice costs of the budget. */
export function cost(choice: IChoice): string {
  if (choice.committed_gpu_s <= 0) {
    return 'free of charge';
  }
  if (choice.of_budget === null) {
    return gpuTime(choice.committed_gpu_s);
  }
  const percent = 100 * choice.of_budget;
  const part = percent < 0.1 ? 'under 0.1' : percent < 10 ? percent.toFixed(1) : percent.toFixed(0);
  return `${gpuTime(choice.committed_gpu_s)}, ${part} % of the budget`;
}

/** `3.2 → 4.1`, or one figure where both are the same. */
export function change(before: string, after: string): string {
  return before === after ? before : `${before} → ${after}`;
}

/** A line of the table of what would be: entitled, GPUs held on average, delivered, half wait no longer than. */
export function fares(before: IFigures, after: IFigures): string[] {
  const pair = (text: (one: IFigures) => string) => change(text(before), text(after));
  return [
    pair(one => `${(100 * one.entitlement).toFixed(1)} %`),
    pair(one => one.gpus_held.toFixed(1)),
    pair(one => gpuTime(one.delivered_gpu_s)),
    pair(one => (one.wait_s.p50 === null ? '–' : duration(one.wait_s.p50))),
    pair(one => String(one.preemptions))
  ];
}
