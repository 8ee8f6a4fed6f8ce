/**
 * The parts of which panels are made: the same in JupyterLab's side panel and in a notebook's widgets.
 */
import { trans } from '../trans.js';
import { BudgetsView } from './budgets.js';
import { ClusterView } from './cluster.js';
import { BINS } from './course.js';
import { DebateView } from './debate.js';
import type { IRequest } from './debating.js';
import { HistoryView } from './history.js';
import { type IDoing, MineView } from './mine.js';
import { PyramidView } from './pyramid.js';
import { QueueView } from './queue.js';
import type { LabReader } from './reader.js';
import { Teams, teamOf } from './teams.js';
import { WhatIfView } from './whatif.js';
import type { IBudgets } from './wire.js';

export interface IPart {
  readonly title: string;
  readonly node: HTMLElement;
  /** Ask the server, and draw what it answers. */
  refresh(): Promise<void>;
  /** Draw again what changes with the time alone. */
  tick(): void;
  /** Whether the reader waits for news of it, seen or not. */
  awaits?(): boolean;
}

export type PartName = 'sessions' | 'queue' | 'budgets' | 'requests' | 'cluster' | 'pyramid' | 'whatif';

/**
 * @param doing - what the reader's buttons do; null on a page that is there to be looked at
 * @param now - Unix seconds by the server's clock
 * @param decided - hears of decisions about what the reader has asked for
 */
export function makeParts(
  reader: LabReader,
  doing: IDoing | null,
  now: () => number,
  decided?: (one: IRequest) => void
): Record<PartName, IPart> {
  const teams = new Teams();
  const still = () => undefined;
  let known: IBudgets | undefined;
  /** Colours need the names of all teams, whichever part is seen. */
  const read = async () => {
    const answer = await reader.budgets();
    known = answer;
    teams.know(answer.allocations.map(one => teamOf(one.path)));
    return answer;
  };
  const mine = new MineView(doing, reader, now);
  const queue = new QueueView(teams, id => reader.why(id), doing?.apply);
  const budgets = new BudgetsView(teams, path => reader.overTime(path, BINS));
  const debate = new DebateView(reader, now, decided);
  const cluster = new ClusterView(teams, now);
  const history = new HistoryView(teams, hours => reader.history(hours), now);
  cluster.node.append(history.node);
  const pyramid = new PyramidView(reader, now);
  const whatIf = new WhatIfView(reader);
  return {
    sessions: {
      title: trans.__('My Sessions'),
      node: mine.node,
      refresh: async () => mine.show(await reader.mine()),
      tick: () => mine.tick()
    },
    queue: {
      title: trans.__('Queue'),
      node: queue.node,
      refresh: async () => {
        const [answer] = await Promise.all([reader.queue(), read()]);
        queue.show(answer);
      },
      tick: still
    },
    budgets: { title: trans.__('Budgets'), node: budgets.node, refresh: async () => budgets.show(await read()), tick: still },
    requests: {
      title: trans.__('Budget Requests'),
      node: debate.node,
      refresh: () => debate.refresh(known),
      tick: still,
      awaits: () => debate.awaits
    },
    cluster: {
      title: trans.__('Cluster'),
      node: cluster.node,
      refresh: async () => {
        const [nodes, holders] = await Promise.all([reader.nodes(), reader.holders(), read()]);
        cluster.show(nodes, holders);
        await history.refresh();
      },
      tick: () => cluster.tell()
    },
    pyramid: { title: trans.__('Where GPU Time Went'), node: pyramid.node, refresh: () => pyramid.refresh(), tick: still },
    whatif: { title: trans.__('What If'), node: whatIf.node, refresh: async () => whatIf.show(await read()), tick: still }
  };
}
