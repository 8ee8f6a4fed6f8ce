/**
 * The service itself, asked by its own page. The browser has a cookie that opens questions only.
 */
import type { Ask } from '../lab/reader.js';

/** What the page shows of who is logged in. */
export interface IVisitor {
  user: string;
  now_s: number;
  gpus: { total: number; free: number };
}

/** The reader is not logged in, or not any more. */
export class LoggedOut extends Error {}

/** Where the API is, seen from the page: relative, for a proxy may have put both elsewhere. */
const API = '../api/v1/';

export const ask: Ask = async ([, ...path], init = {}, query = {}) => {
  const response = await fetch(`${API}${path.map(encodeURIComponent).join('/')}?${new URLSearchParams(query)}`, {
    ...init,
    cache: 'no-store',
    credentials: 'same-origin'
  });
  if (response.status === 401) {
    throw new LoggedOut();
  }
  if (response.status === 404) {
    return null;
  }
  return answerOf(response);
};

export async function visitor(): Promise<IVisitor> {
  return (await ask(['lab', 'status'])) as IVisitor;
}

/** Log in with a token, or with the code of a link; throws an error that says why not. */
export async function login(shown: { token: string } | { code: string }): Promise<void> {
  const headers = { 'Content-Type': 'application/json' };
  const response = await fetch('login', { method: 'POST', headers, body: JSON.stringify(shown), credentials: 'same-origin' });
  if (response.status === 401) {
    throw new LoggedOut();
  }
  await answerOf(response);
}

export async function logout(): Promise<void> {
  await answerOf(await fetch('logout', { method: 'POST', credentials: 'same-origin' }));
}

/** Call `changed` when something in the lab has; the browser takes a stream up again by itself. Returns how to stop. */
export function listen(changed: () => void): () => void {
  const stream = new EventSource(`${API}events`);
  stream.addEventListener('workload', changed);
  stream.addEventListener('announcements', changed);
  stream.addEventListener('synced', changed);
  return () => stream.close();
}

async function answerOf(response: Response): Promise<unknown> {
  const text = await response.text();
  let answer: unknown = null;
  try {
    answer = text ? JSON.parse(text) : null;
  } catch {
    // A proxy's own page: its status says enough.
  }
  if (!response.ok) {
    throw new Error((answer as { detail?: string } | null)?.detail ?? `${response.status} ${response.statusText}`);
  }
  return answer;
}
