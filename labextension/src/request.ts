/**
 * Calls of the server extension.
 */
import { URLExt } from '@jupyterlab/coreutils';
import { ServerConnection } from '@jupyterlab/services';

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
export async function request<T>(
  settings: ServerConnection.ISettings,
  path: string[],
  init: RequestInit = {},
  query: Record<string, string> = {}
): Promise<T | null> {
  const url = URLExt.join(settings.baseUrl, 'gpufair', ...path.map(encodeURIComponent)) + URLExt.objectToQueryString(query);
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

/** Ask to be protected for so long from now on. */
export async function extend(settings: ServerConnection.ISettings, kernelId: string, spanS: number): Promise<void> {
  const body = JSON.stringify({ min_runtime_s: spanS });
  await request<unknown>(settings, ['sessions', kernelId, 'extend'], { method: 'POST', body });
}
