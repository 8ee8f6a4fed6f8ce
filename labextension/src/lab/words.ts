/**
 * The lab in words. Pure: the time comes in.
 */
import { clock, countdown, gpus, localised } from '../text.js';
import { trans } from '../trans.js';
import type { IAllocation, IBudgets, IChoice, IExplanation, IFigures, INode, IWorkload } from './wire.js';

export { gpus, starts as when } from '../text.js';
export { trans } from '../trans.js';

/** GPU time in the unit that a person would choose: two figures, or whole hours. */
export function gpuTime(gpuS: number): string {
  if (gpuS < 60) {
    return trans.__('%1 GPU-s', Math.round(gpuS));
  }
  if (gpuS < 3600) {
    return trans.__('%1 GPU-min', Math.round(gpuS / 60));
  }
  const hours = gpuS / 3600;
  return trans.__('%1 GPU-h', hours < 10 ? hours.toFixed(1) : Math.round(hours));
}

export function nameOf(workload: IWorkload): string {
  return workload.name || workload.notebook.split('/').pop() || workload.id.slice(0, 8);
}

/** How deep an allocation lies, from 0. */
export function depth(path: string): number {
  return path.split('/').length - 1;
}

/** What a workload asks for: `2 × 8 GPUs (H200)`. */
export function asked(workload: IWorkload): string {
  const each = workload.nodes > 1 ? `${workload.nodes} × ${gpus(workload.gpus)}` : gpus(workload.gpus);
  const what = workload.gpus === 0 ? trans.__('CPU') : each;
  return workload.gpu_type ? `${what} (${workload.gpu_type})` : what;
}

/** GPUs to which an allocation is entitled. */
export function entitledGpus(one: IAllocation, budgets: IBudgets): number {
  return budgets.window_s > 0 ? (one.entitlement * budgets.capacity_gpu_s) / budgets.window_s : 0;
}

/** How an allocation stands, for those who do not see the bar. */
export function standing(one: IAllocation, entitled: number): string {
  const share = Math.round(entitled * 10) / 10;
  return one.gpus_queued
    ? trans._n('%2 of %1 GPU, %3 wanted', '%2 of %1 GPUs, %3 wanted', share, one.gpus_held, one.gpus_queued)
    : trans._n('%2 of %1 GPU', '%2 of %1 GPUs', share, one.gpus_held);
}

export function spent(one: IAllocation): string {
  if (one.due_gpu_s <= 0) {
    return one.occupancy_gpu_s > 0
      ? trans.__('%1 used, nothing due', gpuTime(one.occupancy_gpu_s))
      : trans.__('nothing used, nothing due');
  }
  const [used, due] = [gpuTime(one.occupancy_gpu_s), gpuTime(one.due_gpu_s)];
  return one.commitment_gpu_s > 0
    ? trans.__('%1 of %2 used, %3 committed', used, due, gpuTime(one.commitment_gpu_s))
    : trans.__('%1 of %2 used', used, due);
}

/** How an allocation stands in each pool, where there are several: each has a ledger of its own. */
export function inPools(one: IAllocation): string {
  // An older service tells of none.
  const parts = one.pools ?? [];
  if (parts.length < 2) {
    return '';
  }
  const told = (part: IAllocation['pools'][number]) =>
    part.gpus_queued
      ? trans.__('%1: %2 held, %3 wanted', part.pool, part.gpus_held, part.gpus_queued)
      : trans.__('%1: %2 held', part.pool, part.gpus_held);
  return parts.map(told).join(' · ');
}

export function explained(why: IExplanation, nowS: number): string[] {
  const sentence = localised(why.sentence, nowS);
  const lines = [why.pool ? trans.__('In %1: %2', why.pool, sentence) : sentence];
  for (const holder of why.holders.slice(0, 5)) {
    const who = `${gpus(holder.gpus)}: ${holder.user} (${holder.allocation})`;
    if (holder.until_s === null) {
      lines.push(who);
      continue;
    }
    const at = clock(holder.until_s, nowS);
    lines.push(holder.protected ? trans.__('%1, protected until %2', who, at) : trans.__('%1, there until %2', who, at));
  }
  if (why.change?.text) {
    lines.push(trans.__('Smallest change that would start it now: %1', localised(why.change.text, nowS)));
  }
  return lines;
}

/** What is given up by the change, for a question before it is made; "" for nothing. */
export function givenUp(why: IExplanation, nowS: number): string {
  return (why.change?.costs ?? []).map(cost => trans.__('But %1.', localised(cost, nowS))).join('\n');
}

/** Whether the reader can make the change at the press of a button. */
export function applicable(why: IExplanation | null): boolean {
  return why?.mine === true && Object.keys(why.change?.amend ?? {}).length > 0;
}

/** A node's state in one word. */
export function nodeState(node: INode): string {
  return { ready: trans.__('ready'), cordoned: trans.__('cordoned'), lost: trans.__('lost') }[node.state] ?? node.state;
}

/** All that is known of a node, a line for each thing. */
export function nodeText(node: INode, here: IWorkload[], nowS: number): string[] {
  const type = node.gpu_type ? ` (${node.gpu_type})` : '';
  const free = trans._n('%2 of %1 GPU%3 free', '%2 of %1 GPUs%3 free', node.gpus, node.free_gpus, type);
  const lines = [`${node.name}: ${free}`];
  if (node.pool !== 'default') {
    lines.push(trans.__('in %1', node.pool));
  }
  if (node.state === 'lost') {
    lines.push(trans.__('does not answer: nothing is put on it'));
  } else if (node.state === 'cordoned') {
    lines.push(trans.__('cordoned: nothing new is put on it'));
  }
  if (node.drain?.deadline_s) {
    lines.push(trans.__('to be empty by %1', clock(node.drain.deadline_s, nowS)));
  }
  if (node.closes_at_s !== null) {
    lines.push(trans.__('closes at %1 for maintenance', clock(node.closes_at_s, nowS)));
  }
  const until = new Map(node.protected.map(one => [one.workload, one.until_s]));
  for (const workload of here) {
    const held = workload.leases.filter(lease => lease.node === node.name).reduce((sum, lease) => sum + lease.gpus, 0);
    const left = (until.get(workload.id) ?? 0) - nowS;
    const end = left > 0 ? trans.__('protected %1', countdown(left)) : trans.__('may be preempted');
    lines.push(`${held ? gpus(held) : trans.__('CPU')}: ${nameOf(workload)}, ${workload.user} (${workload.allocation}), ${end}`);
  }
  for (const landing of node.landings) {
    const by = landing.start_by_s ?? landing.at_s;
    const [count, whom] = [landing.gpus, landing.workload.slice(0, 8)];
    lines.push(
      by === null
        ? trans._n('%1 GPU kept for %2', '%1 GPUs kept for %2', count, whom)
        : trans._n('%1 GPU kept for %2 until %3', '%1 GPUs kept for %2 until %3', count, whom, clock(by, nowS))
    );
  }
  return lines;
}

export function duration(seconds: number): string {
  const minutes = Math.round(seconds / 60);
  if (seconds < 60) {
    return trans.__('%1 s', Math.round(seconds));
  }
  if (minutes < 60) {
    return trans.__('%1 min', minutes);
  }
  const hours = Math.floor(minutes / 60);
  return minutes % 60 ? trans.__('%1 h %2 min', hours, minutes % 60) : trans.__('%1 h', hours);
}

/** When a choice would start. */
export function outlook(choice: IChoice, nowS: number): string {
  const at = choice.at_s === null ? '' : clock(choice.at_s, nowS);
  switch (choice.outlook) {
    case 'now':
      return trans.__('starts now');
    case 'makes room':
      return at ? trans.__('starts about %1: others make room', at) : trans.__('starts soon: others make room');
    case 'start by':
      return trans.__('starts by %1', at);
    case 'estimated':
      return trans.__('starts about %1', at);
    case 'refused':
      return trans.__('refused');
    default:
      return trans.__('nobody can say when it starts');
  }
}

/** What a choice costs of the budget. */
export function cost(choice: IChoice): string {
  if (choice.committed_gpu_s <= 0) {
    return trans.__('free of charge');
  }
  if (choice.of_budget === null) {
    return gpuTime(choice.committed_gpu_s);
  }
  const percent = 100 * choice.of_budget;
  const time = gpuTime(choice.committed_gpu_s);
  return percent < 0.1
    ? trans.__('%1, under 0.1 % of the budget', time)
    : trans.__('%1, %2 % of the budget', time, percent.toFixed(percent < 10 ? 1 : 0));
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
