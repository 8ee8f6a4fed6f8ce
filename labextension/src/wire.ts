/**
 * What the server extension says, as it says it: names and units are those of the JSON.
 */
import type * as nbformat from '@jupyterlab/nbformat';

/** Schema of the events that carry a `Session` whenever one changes. */
export const SESSION_EVENT = 'https://jupyter-gpufair.org/events/session/v1';

export type State =
  'queued' | 'starting' | 'restoring' | 'running' | 'checkpointing' | 'stopping' | 'parked' | 'ended';

export type Action = 'checkpoint' | 'park' | 'resume' | 'open' | 'dismiss' | 'restore';

export interface ICheckpoint {
  id: string;
  /** Unix seconds. */
  at_s: number;
  size_bytes: number;
  duration_s: number;
}

/** What the owner of a session may want to do about it. */
export interface ISuggestion {
  /** `move_to_cpu`: it holds GPUs and does not use them. */
  kind: string;
  /** Unix seconds. */
  since_s: number;
  /** A question that can be answered by yes or "not now". */
  text: string;
}

/** A variable that a checkpoint could not hold. */
export interface ILost {
  name: string;
  reason: string;
}

export interface ISession {
  kernel_id: string;
  workload_id: string;
  state: State;
  allocation: string;
  gpus: number;
  gpu_type: string | null;
  node: string | null;
  device_ids: string[];
  /** Unix seconds until which nobody may take the GPUs away. */
  protected_until_s: number | null;
  /** Unix seconds until which it has to have given its GPUs back, while it does. */
  deadline_s: number | null;
  /** Why it gives them back: `park`, `idle` and `shutdown` are no surprise, `rank`, `landing`, `drain` and others are. */
  leaving: string | null;
  /** How busy its GPUs were in the last minute, from 0 to 1; null where nobody measured it. */
  utilization: number | null;
  /** Place in the queue, from 1. */
  position: number | null;
  /** Unix seconds at which the session is expected to start. */
  estimate_s: number | null;
  /** Unix seconds by which the session starts at the latest: a promise, where there is one. */
  start_by_s: number | null;
  /** One sentence: why it waits, or what happened. */
  reason: string;
  /** A few words: what keeps it out of the queue (others that have to end, the pause before its next attempt). */
  withheld: string;
  /** Cells that were sent while no kernel ran, and will run when one does. */
  held_cells: number;
  /** From 0 to 1, how far it has come with what it is doing (restoring). */
  progress: number | null;
  checkpoint: ICheckpoint | null;
  restore_offered: boolean;
  /** Whether its variables can be saved when it has to make room. */
  resumable: boolean;
  /** It has no GPUs, and is open on a CPU node meanwhile. */
  on_cpu: boolean;
  /** It is being moved to a CPU node: saved, and opened there. */
  moving: boolean;
  suggestion: ISuggestion | null;
  /** Why it was not moved, though its owner asked for it. */
  not_moved: string | null;
  lost: ILost[];
}

/** One run of one cell, as the supervisor recorded it. */
export interface IExecution {
  msg_id: string;
  cell_id: string | null;
  execution_count: number | null;
  state: 'done' | 'running';
  status: 'ok' | 'error' | 'interrupted' | null;
  started_s: number;
  ended_s: number | null;
  outputs: nbformat.IOutput[];
}

export interface IOutputs {
  /** In the order in which they were sent. */
  executions: IExecution[];
}

/** A cell that is not answered yet, whoever sent it. */
export interface ICell {
  msg_id: string;
  cell_id: string | null;
  state: 'sent' | 'held';
}

export interface ICells {
  /** In the order in which they run. */
  cells: ICell[];
}
