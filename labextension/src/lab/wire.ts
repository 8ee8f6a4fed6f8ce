/**
 * What the service says of the whole lab, in the words of the panels.
 */
import type {
  AllocationView,
  Announcements,
  Budgets,
  BudgetsOverTime,
  Choice,
  Coaching,
  Course,
  CoursesInPool,
  DeliveredView,
  Deliveries,
  Explanation,
  GpuHistory,
  Level,
  Log,
  Loss,
  MySession,
  NodeHistory,
  NodeView,
  PlayedFigures,
  Profile,
  Pyramid,
  PyramidOfPool,
  Stay,
  Tour,
  TourStep,
  Trace,
  WhatIf,
  Workload
} from '../answers.js';

/** Fields of a workload of the lab: what is shown, and so all that is asked for. */
const SHOWN = {
  id: true,
  name: true,
  user: true,
  allocation: true,
  gpus: true,
  nodes: true,
  gpu_type: true,
  pools: true,
  leases: true,
  position: true,
  estimate_s: true,
  start_by_s: true,
  notebook: true
} satisfies Partial<Record<keyof Workload, true>>;
export const FIELDS = Object.keys(SHOWN).join(',');

/** Schema of the events that say that some workload of the lab changed. */
export const LAB_EVENT = 'https://jupyter-gpufair.org/events/lab/v1';

export type IWorkload = Pick<Workload, keyof typeof SHOWN>;

export type IAnnouncements = Announcements;

export interface IQueue {
  now_s: number;
  workloads: IWorkload[];
}

export type IAllocation = AllocationView;
export type IBudgets = Budgets;
export type INode = NodeView;
export type IMine = MySession;
export type IProfile = Profile;
export type IChoice = Choice;
export type ICoaching = Coaching;
export type ITrace = Trace;
export type ILog = Log;
export type IFigures = PlayedFigures;
export type IWhatIf = WhatIf;
export type ILoss = Loss;
export type ILevel = Level;
export type IPyramidOfPool = PyramidOfPool;
export type IPyramid = Pyramid;
export type IDelivered = DeliveredView;
export type IDeliveries = Deliveries;
export type ICourse = Course;
export type ICoursesInPool = CoursesInPool;
export type IOverTime = BudgetsOverTime;
export type IStay = Stay;
export type INodeHistory = NodeHistory;
export type IGpuHistory = GpuHistory;
export type ITourStep = TourStep;
export type ITour = Omit<Tour, 'terms'> & { terms: Record<string, { means: string; where: string }> };

/** The server says in the place of the comparison's side whether the reader may make the change. */
export type IExplanation = Omit<Explanation, 'mine'> & { mine?: boolean };

/** What a notebook asks for, as its metadata has it under `gpufair_request`; what is missing is the profile's. */
export interface IWish {
  allocation?: string;
  gpus?: number;
  nodes?: number;
  gpu_type?: string;
  min_runtime_s?: number;
}
