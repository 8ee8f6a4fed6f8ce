/**
 * The Jupyter server behind a page, found as Jupyter's own pages find it.
 */
import type { Ask } from '../lab/reader.js';

/** How to ask the server; null on a page of no Jupyter server (an export, another front end). */
export function serverOf(page: Document): (Ask & { base: string }) | null {
  const told = page.getElementById('jupyter-config-data')?.textContent;
  if (!told) {
    return null;
  }
  const { baseUrl, token } = JSON.parse(told) as { baseUrl?: string; token?: string };
  const base = new URL(baseUrl ?? '/', page.location.href).href;
  const ask: Ask = async (path, init = {}, query = {}) => {
    const headers = new Headers(init.headers);
    const xsrf = /(?:^|; )_xsrf=([^;]*)/.exec(page.cookie)?.[1];
    if (token) {
      headers.set('Authorization', `token ${token}`);
    }
    if (xsrf) {
      headers.set('X-XSRFToken', xsrf);
    }
    const url = `${base}gpufair/${path.map(encodeURIComponent).join('/')}?${new URLSearchParams(query)}`;
    const response = await fetch(url, { ...init, headers, cache: 'no-store', credentials: 'same-origin' });
    const text = await response.text();
    if (response.status === 404) {
      return null;
    }
    const answer: unknown = text ? JSON.parse(text) : null;
    if (!response.ok) {
      throw new Error((answer as { message?: string } | null)?.message ?? response.statusText);
    }
    return answer;
  };
  return Object.assign(ask, { base });
}
