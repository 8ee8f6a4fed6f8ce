/**
 * What the panels ask of the Jupyter server, however it is reached.
 */
import { trans } from '../trans.js';
import type { IHistory, IRequest, IRequests, ITerms } from './debating.js';
import type {
  IAnnouncements,
  IBudgets,
  ICoaching,
  IDeliveries,
  IExplanation,
  IGpuHistory,
  ILog,
  IMine,
  INode,
  IOverTime,
  IProfile,
  IPyramid,
  IQueue,
  ITour,
  ITrace,
  IWhatIf,
  IWish,
  IWorkload
} from './wire.js';
import { FIELDS } from './wire.js';

/** Calls `gpufair/…` of the server; the answer's JSON, null where there is no such thing (404). */
export type Ask = (path: string[], init?: RequestInit, query?: Record<string, string>) => Promise<unknown>;

export type MyAction = 'checkpoint' | 'park' | 'resume' | 'open' | 'restore' | 'stop';

export class LabReader {
  constructor(private readonly _ask: Ask) {}

  async queue(): Promise<IQueue> {
    return (await this._read('queue', { fields: FIELDS })) as IQueue;
  }

  /** What operators tell everybody, and what maintenance is planned. */
  async announcements(): Promise<IAnnouncements> {
    return (await this._read('announcements')) as IAnnouncements;
  }

  async budgets(): Promise<IBudgets> {
    return (await this._read('budgets')) as IBudgets;
  }

  async nodes(): Promise<INode[]> {
    return ((await this._read('nodes')) as { nodes: INode[] }).nodes;
  }

  /** Where GPU time went since then; without it over the budgets' window. */
  async pyramid(sinceS?: number): Promise<IPyramid> {
    return (await this._read('pyramid', since(sinceS))) as IPyramid;
  }

  /** What each allocation got of what it was owed. */
  async delivered(sinceS?: number): Promise<IDeliveries> {
    return (await this._read('budgets/delivered', since(sinceS))) as IDeliveries;
  }

  /** One allocation's course over the budgets' window. */
  async overTime(allocation: string, bins: number): Promise<IOverTime> {
    return (await this._read('budgets/over-time', { allocation, bins: String(bins) })) as IOverTime;
  }

  /** Who held which GPU in the last hours. */
  async history(hours: number): Promise<IGpuHistory> {
    return (await this._read('history', { hours: String(hours) })) as IGpuHistory;
  }

  /** Those that hold something. */
  async holders(): Promise<IWorkload[]> {
    const answer = (await this._read('workloads', { holding: 'true', fields: FIELDS })) as { workloads: IWorkload[] };
    return answer.workloads.filter(one => one.leases.length > 0);
  }

  async mine(): Promise<IMine[]> {
    return ((await this._read('mine')) as { sessions: IMine[] }).sessions;
  }

  async profiles(): Promise<IProfile[]> {
    return ((await this._read('profiles')) as { profiles: IProfile[] }).profiles;
  }

  /** Leaves of the budget tree where the reader may submit. */
  async allocations(): Promise<string[]> {
    return ((await this._read('allocations')) as { allocations: string[] }).allocations;
  }

  /** What a wish would mean, with each of these protections. */
  async coach(profile: string, wish: IWish, protectionsS: number[]): Promise<ICoaching> {
    const body = JSON.stringify({ profile, ...wish, min_runtimes_s: protectionsS });
    const answer = await this._ask(['lab', 'coach'], { method: 'POST', body });
    if (answer === null) {
      throw new Error(trans.__('This Jupyter server is older than this page: restart it.'));
    }
    return answer as ICoaching;
  }

  /** Play the next hours with other shares. */
  async whatIf(shares: Record<string, number>, hours: number): Promise<IWhatIf> {
    const body = JSON.stringify({ shares, hours });
    return (await this._ask(['lab', 'whatif'], { method: 'POST', body })) as IWhatIf;
  }

  /** Put other shares into force, at once or at a time; `seen` is what they were when the reader decided. */
  async divide(shares: Record<string, number>, seen: Record<string, string>, terms: ITerms = {}): Promise<IRequest> {
    const body = JSON.stringify({ ...terms, shares, seen });
    return (await this._sent(['divide'], body, 'PUT')) as IRequest;
  }

  /** Requests for budgets, the newest first. */
  async requests(limit: number): Promise<IRequests> {
    return (await this._read('requests', { limit: String(limit) })) as IRequests;
  }

  /** One request, with the preview that was looked at. */
  async request(id: number): Promise<IRequest> {
    return (await this._sent(['requests', String(id)])) as IRequest;
  }

  async ask(terms: ITerms): Promise<IRequest> {
    return (await this._sent(['requests'], JSON.stringify(terms))) as IRequest;
  }

  async decide(id: number, verb: 'accept' | 'refuse' | 'withdraw', terms: ITerms): Promise<IRequest> {
    return (await this._sent(['requests', String(id), verb], JSON.stringify(terms))) as IRequest;
  }

  /** Who changed the budgets when and why, the newest first; `before`: with a smaller number. */
  async budgetHistory(before: number, limit: number): Promise<IHistory> {
    return (await this._read('budget-history', { before: String(before), limit: String(limit) })) as IHistory;
  }

  /** Why a workload waits; null for one that is gone. */
  async why(id: string): Promise<IExplanation | null> {
    return (await this._ask(['lab', 'workloads', id, 'why'])) as IExplanation | null;
  }

  /** Why some workloads of the last week waited, ran and were preempted; the reader's first. */
  async tour(): Promise<ITour> {
    return (await this._read('tour')) as ITour;
  }

  /** Have one of the reader's own that waits ask for something else. */
  async amend(id: string, wish: Record<string, unknown>): Promise<void> {
    await this._ask(['lab', 'mine', id, 'amend'], { method: 'POST', body: JSON.stringify(wish) });
  }

  async act(id: string, action: MyAction, checkpoint?: string): Promise<void> {
    const body = checkpoint === undefined ? {} : { body: JSON.stringify({ checkpoint }) };
    await this._ask(['lab', 'mine', id, action], { method: 'POST', ...body });
  }

  /** Have this server take up a session that another one began, so that its notebook opens on it. */
  async attach(id: string): Promise<void> {
    await this._ask(['lab', 'mine', id, 'attach'], { method: 'POST' });
  }

  async checkpoints(id: string): Promise<ITrace[]> {
    return ((await this._ask(['lab', 'mine', id, 'checkpoints'])) as { checkpoints: ITrace[] } | null)?.checkpoints ?? [];
  }

  /** The end of what it wrote; of one that is gone there is nothing more. */
  async log(id: string, after: number): Promise<ILog> {
    const answer = await this._ask(['lab', 'mine', id, 'log'], {}, { after: String(after) });
    return (answer as ILog | null) ?? { text: '', start: after, after, ended: true };
  }

  private async _sent(path: string[], body?: string, method = 'POST'): Promise<unknown> {
    const answer = await this._ask(['lab', ...path], body === undefined ? {} : { method, body });
    if (answer === null) {
      throw new Error(trans.__('There is no such request or allocation any more, or this Jupyter server is older than this page.'));
    }
    return answer;
  }

  /** There is always an answer, or an error that says why not. */
  private async _read(what: string, query: Record<string, string> = {}): Promise<unknown> {
    const answer = await this._ask(['lab', ...what.split('/')], {}, query);
    if (answer === null) {
      throw new Error(trans.__('This Jupyter server has no GPU scheduler, or is older than this page: restart it.'));
    }
    return answer;
  }
}

function since(atS: number | undefined): Record<string, string> {
  return atS === undefined ? {} : { since_s: atS.toFixed(3) };
}
