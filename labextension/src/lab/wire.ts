/**
 * What the service says of the whole lab, as it says it; only the fields that are shown.
 */
import type { ILost, ISession } from '../wire.js';

/** Fields of a workload of the lab: what is shown, and so all that is asked for. */
const SHOWN: Record<keyof IWorkload, true> = {
  id: true,
  name: true,
  user: true,
  allocation: true,
  gpus: true,
  nodes: true,
  gpu_type: true,
  leases: true,
  position: true,
  estimate_s: true,
  start_by_s: true,
  notebook: true
};
export const FIELDS = Object.keys(SHOWN).join(',');

/** Schema of the events that say that some workload of the lab changed. */
export const LAB_EVENT = 'https://jupyter-gpufair.org/events/lab/v1';

export interface IWorkload {
  id: string;
  name: string;
  user: string;
  allocation: string;
  /** Per node, as is `nodes` the count of them. */
  gpus: number;
  nodes: number;
  gpu_type: string;
  leases: { node: string; gpus: number }[];
  position: number | null;
  estimate_s: number | null;
  start_by_s: number | null;
  notebook: string;
}

export interface IQueue {
  now_s: number;
  workloads: IWorkload[];
}

export interface IAllocation {
  path: string;
  leaf: boolean;
  /** Among its siblings, as its owner wrote it. */
  share: string | number;
  /** A fraction of all GPUs. */
  entitlement: number;
  budget_gpu_s: number;
  occupancy_gpu_s: number;
  commitment_gpu_s: number;
  owed_gpu_s: number;
  due_gpu_s: number;
  /** (charged + committed) / due: the smaller comes first; null where nothing is due. */
  metric: number | null;
  gpus_held: number;
  gpus_queued: number;
}

export interface IBudgets {
  window_s: number;
  capacity_gpu_s: number;
  allocations: IAllocation[];
}

export interface INode {
  name: string;
  pool: string;
  gpus: number;
  gpu_type: string;
  free_gpus: number;
  state: 'ready' | 'cordoned' | 'lost';
  workloads: string[];
  landings: { workload: string; gpus: number; at_s: number | null; start_by_s: number | null }[];
  drain: { deadline_s: number | null; force: boolean } | null;
  protected: { workload: string; until_s: number }[];
  closes_at_s: number | null;
}

export interface IExplanation {
  sentence: string;
  /** `amend`: what is to be different of what it asks for; `costs`: what is given up by that. */
  change: { text: string; amend?: Record<string, unknown>; costs?: string[] } | null;
  /** Whether the reader may make the change. */
  mine?: boolean;
  start: { kind: string; at_s: number | null; because: string } | null;
  holders: { workload: string; user: string; allocation: string; gpus: number; until_s: number | null; protected: boolean }[];
}

/** One workload of the tour. */
export interface ITourStep {
  kind: string;
  title: string;
  /** Only where it is the reader's. */
  name: string;
  label: string;
  allocation: string;
  lines: { at_s: number; text: string }[];
  terms: string[];
}

export interface ITour {
  until_s: number;
  about: string;
  steps: ITourStep[];
  missing: string[];
  terms: Record<string, { means: string; where: string }>;
}

/** A live session or run of the reader's. */
export interface IMine extends ISession {
  name: string;
  kind: string;
  /** Whether this server has its kernel. */
  here: boolean;
  /** Of its notebook, below this server's root; null where it is elsewhere. */
  path: string | null;
}

/** A checkpoint that is still there. */
export interface ITrace {
  id: string;
  at_s: number;
  size_bytes: number;
  duration_s: number;
  lost: ILost[];
}

/** The end of what was written. */
export interface ILog {
  text: string;
  /** Where `text` begins: where that is not what was asked for, it takes the place of all that was had. */
  start: number;
  /** To be asked for the next time. */
  after: number;
  ended: boolean;
}

export interface IProfile {
  name: string;
  display_name: string;
  gpus: number;
  nodes: number;
  gpu_type: string;
  allocation: string;
  min_runtime_s: number | null;
}

/** What a notebook asks for, as its metadata has it under `gpufair_request`; what is missing is the profile's. */
export interface IWish {
  allocation?: string;
  gpus?: number;
  nodes?: number;
  gpu_type?: string;
  min_runtime_s?: number;
}

/** One way to ask, and what would come of it. */
export interface IChoice {
  outlook: 'now' | 'makes room' | 'start by' | 'estimated' | 'unknown' | 'refused';
  gpus: number;
  nodes: number;
  min_runtime_s: number;
  at_s: number | null;
  committed_gpu_s: number;
  /** The committed GPU time as a fraction of the allocation's budget. */
  of_budget: number | null;
  sentence: string;
}

export interface ICoaching {
  now_s: number;
  asked: IChoice;
  choices: IChoice[];
  advice: string;
  warnings: string[];
}

/** How an allocation fares in hours that are played. */
export interface IFigures {
  entitlement: number;
  gpus_held: number;
  delivered_gpu_s: number;
  wait_s: { p50: number | null; p90: number | null; max: number | null };
  preemptions: number;
}

export interface IWhatIf {
  now_s: number;
  until_s: number;
  arrivals: number;
  protected: number;
  protections_kept: number;
  allocations: { path: string; verdict: 'gains' | 'loses' | ''; before: IFigures; after: IFigures | null }[];
}

/** Where a part of a level went. */
export interface ILoss {
  cause: string;
  gpu_s: number;
}

/** Of `of_gpu_s` remained `kept_gpu_s`. A `ratio` of null: unknown, or there was nothing. */
export interface ILevel {
  of_gpu_s: number;
  kept_gpu_s: number;
  ratio: number | null;
  losses: ILoss[];
  /** Of utilization: the part of the held time that was measured. */
  coverage: number | null;
}

export interface IPyramidOfPool {
  pool: string;
  start_s: number;
  end_s: number;
  availability: ILevel;
  occupancy: ILevel;
  impact: ILevel;
  utilization: ILevel;
  held_gpu_s: number;
  unallocated_gpu_s: number;
  switching_gpu_s: number;
}

export interface IPyramid {
  pools: IPyramidOfPool[];
}

export interface IDelivered {
  path: string;
  leaf: boolean;
  owed_gpu_s: number;
  capped_gpu_s: number;
}

export interface IDeliveries {
  pools: { pool: string; allocations: IDelivered[] }[];
}

/** Owed and charged in weighted GPU time, a figure for each bin. */
export interface ICourse {
  path: string;
  entitlement: number;
  owed_gpu_s: number[];
  charged_gpu_s: number[];
}

export interface ICoursesInPool {
  pool: string;
  start_s: number;
  end_s: number;
  bin_s: number;
  allocations: ICourse[];
}

export interface IOverTime {
  pools: ICoursesInPool[];
}

/** One workload on GPUs of one node. */
export interface IStay {
  workload: string;
  user: string;
  allocation: string;
  /** Which of the node's GPUs, from 0. */
  rows: number[];
  from_s: number;
  /** null: it is there still. */
  to_s: number | null;
  protected: [number, number][];
  /** When it was told to make room. */
  preempted_s: number | null;
}

export interface INodeHistory {
  name: string;
  gpus: number;
  stays: IStay[];
}

export interface IGpuHistory {
  now_s: number;
  /** Later than asked for where no more is known. */
  since_s: number;
  nodes: INodeHistory[];
}
