/**
 * Calls of the server extension.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

import type { IBudgets, IExplanation, IMine, INode, IQueue, IWorkload } from './lab/wire';
import type { Action, ICells, IOutputs, ISession } from './wire';

/** Seconds by which the server's clock is ahead of this browser's. */
let skewS = 0;

/** Now by the server's clock, in Unix seconds: deadlines are the server's. */
export function serverNow(): number {
  return Date.now() / 1000 + skewS;
}

function noteClock(response: Response): void {
  const stamp = Date.parse(response.headers.get('Date') ?? '');
  if (!Number.isNaN(stamp)) {
    const ahead = (stamp - Date.now()) / 1000;
    // The header counts whole seconds, and the answer took its time: less than this is no difference.
    skewS = Math.abs(ahead) > 2 ? ahead : 0;
  }
}

/** The answer's JSON; null where there is no such thing (404). */
async function request<T>(
  settings: ServerConnection.ISettings,
  path: string[],
  init: RequestInit = {}
): Promise<T | null> {
  const url = URLExt.join(settings.baseUrl, 'gpufair', ...path.map(encodeURIComponent));
  const response = await ServerConnection.makeRequest(url, { cache: 'no-store', ...init }, settings);
  noteClock(response);
  if (response.status === 404) {
    return null;
  }
  if (!response.ok) {
    throw await ServerConnection.ResponseError.create(response);
  }
  const text = await response.text();
  return text ? (JSON.parse(text) as T) : null;
}

/** The session behind a kernel; null for a kernel that the scheduler does not know. */
export function getSession(settings: ServerConnection.ISettings, kernelId: string): Promise<ISession | null> {
  return request<ISession>(settings, ['sessions', kernelId]);
}

export function getOutputs(settings: ServerConnection.ISettings, kernelId: string): Promise<IOutputs | null> {
  return request<IOutputs>(settings, ['sessions', kernelId, 'outputs']);
}

export function getCells(settings: ServerConnection.ISettings, kernelId: string): Promise<ICells | null> {
  return request<ICells>(settings, ['sessions', kernelId, 'cells']);
}

/** Ask for an action. It has begun, not ended, when this returns; events tell the rest. */
export async function act(settings: ServerConnection.ISettings, kernelId: string, action: Action): Promise<void> {
  await request<unknown>(settings, ['sessions', kernelId, action], { method: 'POST' });
}

/** What the whole lab looks like: there is always an answer, or an error that says why not. */
async function read<T>(settings: ServerConnection.ISettings, path: string[]): Promise<T> {
  const answer = await request<T>(settings, ['lab', ...path]);
  if (answer === null) {
    throw new Error('This Jupyter server is older than this page: restart it.');
  }
  return answer;
}

export function getQueue(settings: ServerConnection.ISettings): Promise<IQueue> {
  return read<IQueue>(settings, ['queue']);
}

export function getBudgets(settings: ServerConnection.ISettings): Promise<IBudgets> {
  return read<IBudgets>(settings, ['budgets']);
}

export async function getNodes(settings: ServerConnection.ISettings): Promise<INode[]> {
  return (await read<{ nodes: INode[] }>(settings, ['nodes'])).nodes;
}

/** Those that hold something. */
export async function getWorkloads(settings: ServerConnection.ISettings): Promise<IWorkload[]> {
  const all = (await read<{ workloads: IWorkload[] }>(settings, ['workloads'])).workloads;
  return all.filter(one => one.leases.length > 0 && one.state !== 'ended');
}

export async function getMine(settings: ServerConnection.ISettings): Promise<IMine[]> {
  return (await read<{ sessions: IMine[] }>(settings, ['mine'])).sessions;
}

/** Why a workload waits; null for one that is gone. */
export function getWhy(settings: ServerConnection.ISettings, id: string): Promise<IExplanation | null> {
  return request<IExplanation>(settings, ['lab', 'workloads', id, 'why']);
}

/** Act on one that another server opened. */
export async function actOnMine(settings: ServerConnection.ISettings, id: string, action: string): Promise<void> {
  await request<unknown>(settings, ['lab', 'mine', id, action], { method: 'POST' });
}
