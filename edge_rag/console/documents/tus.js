/** Sends files in pieces by the tus protocol 1.0.0, and goes on after a lost connection, a restart or a reload. */

import { ApiError, request, wait } from '../core/api.js';

const PATH = '/api/v1/uploads';
const VERSION = { 'tus-resumable': '1.0.0' };
const PIECE = { least: 256 << 10, most: 8 << 20 }; // bytes
const PIECE_MS = { short: 700, long: 4000 }; // a piece that takes less gets larger, one that takes more smaller
const PAUSE_MS = { least: 500, most: 10_000 };
const KEPT = 'edge-rag.uploads';
const KEPT_MS = 24 * 3600 * 1000; // the box deletes an upload that gets no byte for so long
const MOST_KEPT = 500;

/**
 * What is sent.
 * @typedef {{collection: string, name: string, size: number, lastModified: number}} About
 */

/** Returns what was begun here and not ended, as `About`s: their files have to be chosen again after a reload. */
export function unfinished() {
  return Object.keys(kept()).map((key) => {
    const [collection, name, size, lastModified] = JSON.parse(key);
    return { collection, name, size, lastModified };
  });
}

/** Forgets where an upload is, and has the box forget it if it knows it. */
export async function discard(about) {
  const url = kept()[keyOf(about)]?.url;
  remember(about, null);
  if (url) await request('DELETE', url, { headers: VERSION });
}

/**
 * Sends a file, or the rest of it if it was begun before. Waits while the box cannot be reached.
 * @param {File} file
 * @param {About} about
 * @param {{signal: AbortSignal, sent: (bytes: number) => void, pausing: (reason: Error|null) => void}} options `sent` is told
 *     how many bytes are on the box's disk, `pausing` why nothing is sent now, and null when it goes on.
 * @returns {Promise<string>} Id of the job that reads it.
 */
export async function sendFile(file, about, { signal, sent, pausing }) {
  let url = kept()[keyOf(about)]?.url ?? null;
  let at = null; // null while the box has not said how much it has
  let piece = PIECE.least;
  let failures = 0;
  let begun = 0;
  for (;;) {
    try {
      if (url === null) {
        begun += 1;
        const created = await request('POST', PATH, { signal, headers: { ...VERSION, ...described(file, about) } });
        url = new URL(created.headers.get('location'), location.href).pathname;
        at = 0;
        if (file.size === 0) return jobOf(created);
        remember(about, url);
      }
      if (at === null) {
        const found = await request('HEAD', url, { signal, headers: VERSION });
        at = offset(found);
        if (at === file.size) return ended(about, found);
      }
      pausing(null);
      sent(at);
      for (;;) {
        const began = performance.now();
        const headers = { ...VERSION, 'upload-offset': String(at), 'content-type': 'application/offset+octet-stream' };
        const taken = await request('PATCH', url, { signal, headers, body: file.slice(at, at + piece) });
        const took = performance.now() - began;
        at = offset(taken);
        failures = 0;
        sent(at);
        if (at === file.size) return ended(about, taken);
        if (took < PIECE_MS.short) piece = Math.min(2 * piece, PIECE.most);
        if (took > PIECE_MS.long) piece = Math.max(piece / 2, PIECE.least);
      }
    } catch (error) {
      if (signal.aborted || !(error instanceof ApiError)) throw error;
      if ((error.status === 404 || error.status === 410) && url !== null && begun < 3) {
        remember(about, null); // the box deleted it: all of it is sent again
        url = null;
      } else if (!passes(error)) {
        throw error;
      }
      await readable(file);
      at = null;
      pausing(error);
      await wait(error.retryAfterMs ?? Math.min(PAUSE_MS.least * 2 ** failures, PAUSE_MS.most), signal);
      failures += 1;
    }
  }
}

/** Whether the same request may succeed later. */
function passes({ unreachable, status, code }) {
  return unreachable || code === 'offset_mismatch' || ([429, 502, 503, 504].includes(status) && code !== 'storage_full');
}

/** Rejects if the file was changed or removed since it was chosen, which a request cannot tell from a lost connection. */
async function readable(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch {
    throw new ApiError(0, { message: file.name, code: 'file_changed' });
  }
}

function described(file, { collection, name }) {
  const about = { filename: name, collection };
  const pairs = Object.entries(about).map(([key, text]) => `${key} ${base64(text)}`);
  return { 'upload-length': String(file.size), 'upload-metadata': pairs.join(',') };
}

function base64(text) {
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

function offset(response) {
  return Number(response.headers.get('upload-offset'));
}

function ended(about, response) {
  remember(about, null);
  return jobOf(response);
}

function jobOf(response) {
  return response.headers.get('edge-rag-job');
}

function keyOf({ collection, name, size, lastModified }) {
  return JSON.stringify([collection, name, size, lastModified]);
}

function kept() {
  const found = JSON.parse(localStorage.getItem(KEPT) ?? '{}');
  return Object.fromEntries(Object.entries(found).filter(([, { at }]) => Date.now() - at < KEPT_MS));
}

function remember(about, url) {
  const { [keyOf(about)]: old, ...others } = kept();
  const entries = Object.entries(others).slice(-MOST_KEPT + 1);
  if (url !== null) entries.push([keyOf(about), { url, at: Date.now() }]);
  localStorage.setItem(KEPT, JSON.stringify(Object.fromEntries(entries)));
}
