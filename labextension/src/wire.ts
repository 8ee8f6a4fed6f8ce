/**
 * What the server extension says of sessions and cells.
 */
import type * as nbformat from '@jupyterlab/nbformat';

import type { Cell, Cells, Execution, Missing, Session } from './answers';

/** Schema of the events that carry a `Session` whenever one changes. */
export const SESSION_EVENT = 'https://jupyter-gpufair.org/events/session/v1';

export type Action = 'checkpoint' | 'park' | 'resume' | 'open' | 'dismiss' | 'restore';

export type ISession = Session;
export type State = Session['state'];
export type ICell = Cell;
export type ICells = Cells;
export type ILost = Missing;

/** One run of one cell; its outputs are those of a notebook. */
export type IExecution = Omit<Execution, 'outputs'> & { outputs: nbformat.IOutput[] };

export interface IOutputs {
  /** In the order in which they were sent. */
  executions: IExecution[];
}
