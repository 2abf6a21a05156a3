/** Sends a file by one request, and sends it again after a lost connection or a restart of the box. */

import { ApiError, get, put, wait } from '../core/api.js';

const PAUSE_MS = { least: 500, most: 10_000 };
const MOST_CUTS = 3;

/** @typedef {{collection: string, name: string, size: number, lastModified: number}} About What is sent. */

/**
 * Sends a file and resolves to the job that reads it. Waits while the box cannot be reached or is busy.
 * @param {{signal: AbortSignal, on: (change: {state: 'sending'|'pausing', sent: number}) => void}} options `sent` is how
 *     many bytes have left the browser.
 */
export async function sendFile(file, { collection, name }, { signal, on }) {
  const path = ['/api/v1/collections', encodeURIComponent(collection), 'queue', encodeURIComponent(name)].join('/');
  let failures = 0;
  let cuts = 0; // of connections to a box that can be reached: it may refuse the file
  for (;;) {
    try {
      return (await put(path, file, { signal, onSent: (sent) => on({ state: 'sending', sent }) })).job;
    } catch (error) {
      if (signal.aborted || !passes(error)) throw error;
      await readable(file);
      on({ state: 'pausing', sent: 0 });
      if (error.unreachable && await isReachable(signal)) cuts += 1;
      if (cuts === MOST_CUTS) throw new ApiError(0, { message: error.message, code: 'cut_off' });
      await wait(error.retryAfterMs ?? Math.min(PAUSE_MS.least * 2 ** failures, PAUSE_MS.most), signal);
      failures += 1;
    }
  }
}

/** Whether the same request may succeed later. */
function passes({ unreachable, status, code }) {
  return unreachable || ([429, 502, 503, 504].includes(status) && code !== 'storage_full');
}

async function isReachable(signal) {
  try {
    await get('/healthz', { signal });
    return true;
  } catch {
    return false;
  }
}

/** Rejects if the file was changed or removed, which a request cannot tell from a lost connection. */
async function readable(file) {
  try {
    await file.slice(0, 1).arrayBuffer();
  } catch {
    throw new ApiError(0, { message: file.name, code: 'file_changed' });
  }
}
