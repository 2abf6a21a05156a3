/** Sends files in pieces by tus 1.0.0, and goes on after a lost connection, a restart or a reload. */

import { ApiError, request, wait } from '../core/api.js';

const VERSION = { 'tus-resumable': '1.0.0' };
const PIECE_BYTES = 1 << 20;
const PAUSE_MS = { least: 500, most: 10_000 };
const KEPT = 'edge-rag.uploads';

/** @typedef {{collection: string, name: string, size: number, lastModified: number}} About What is sent. */

/** Returns what was begun here and not ended, as `About`s: their files have to be chosen again after a reload. */
export function unfinished() {
  return Object.keys(kept()).map((key) => JSON.parse(key));
}

/** Forgets where an upload is, and has the box forget it if it knows it. */
export async function discard(about) {
  const url = kept()[JSON.stringify(about)];
  remember(about);
  if (url) await request('DELETE', url, { headers: VERSION });
}

/**
 * Sends a file, or the rest of it if it was begun before, and returns the id of the job that reads it. Waits while the
 * box cannot be reached.
 * @param {{signal: AbortSignal, on: (change: {state: 'sending'|'pausing', sent?: number}) => void}} options `sent` is how
 *     many bytes are on the box's disk.
 */
export async function sendFile(file, about, { signal, on }) {
  let url = kept()[JSON.stringify(about)];
  let at = null; // null while the box has not said how much it has
  let failures = 0;
  const call = (method, address, headers, body) =>
    request(method, address, { signal, headers: { ...VERSION, ...headers }, body });

  for (;;) {
    try {
      let response;
      if (!url) {
        const headers = { 'upload-length': String(file.size), 'upload-metadata': metadata(about) };
        response = await call('POST', '/api/v1/uploads', headers);
        url = new URL(response.headers.get('location'), location.href).pathname;
        remember(about, url);
      } else if (at === null) {
        response = await call('HEAD', url);
      } else {
        const headers = { 'upload-offset': String(at), 'content-type': 'application/offset+octet-stream' };
        response = await call('PATCH', url, headers, file.slice(at, at + PIECE_BYTES));
        failures = 0;
      }
      at = Number(response.headers.get('upload-offset'));
      on({ state: 'sending', sent: at });
      if (at < file.size) continue;
      remember(about);
      return response.headers.get('edge-rag-job');
    } catch (error) {
      if (signal.aborted || !(error instanceof ApiError)) throw error;
      if (url && [404, 410].includes(error.status)) url = null; // the box deletes what gets no byte for a day
      else if (!passes(error)) throw error;
      await readable(file);
      at = null;
      on({ state: 'pausing' });
      await wait(error.retryAfterMs ?? Math.min(PAUSE_MS.least * 2 ** failures, PAUSE_MS.most), signal);
      failures += 1;
    }
  }
}

/** Whether the same request may succeed later. */
function passes({ unreachable, status, code }) {
  return unreachable || code === 'offset_mismatch' || ([429, 502, 503, 504].includes(status) && code !== 'storage_full');
}

/** Rejects if the file was changed or removed, which a request cannot tell from a lost connection. */
async function readable(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch {
    throw new ApiError(0, { message: file.name, code: 'file_changed' });
  }
}

function metadata({ name, collection }) {
  const base64 = (text) => btoa(String.fromCharCode(...new TextEncoder().encode(text)));
  return `filename ${base64(name)},collection ${base64(collection)}`;
}

function kept() {
  return JSON.parse(localStorage.getItem(KEPT) ?? '{}');
}

function remember(about, url) {
  // JSON leaves out what is undefined.
  localStorage.setItem(KEPT, JSON.stringify({ ...kept(), [JSON.stringify(about)]: url }));
}
