/** Calls to the box: JSON, and streams of events. Nothing else in the console sends requests to its API. */

import { withQuery } from './router.js';

/** A call that failed; `status` is 0 if the box could not be reached, `param` names a refused field. */
export class ApiError extends Error {
  constructor(status, { message, code, param }, headers) {
    super(message);
    Object.assign(this, { status, code, param });
    this.requestId = headers?.get('x-request-id') ?? '';
    const retry = headers?.get('retry-after-ms');
    /** After which a busy box has room again; null if it is not. */
    this.retryAfterMs = retry ? Number(retry) : null;
  }

  get unreachable() {
    return this.status === 0;
  }
}

let refused = () => {};

/** Sets what is called when the box refuses the caller's credentials. */
export function onUnauthenticated(listener) {
  refused = listener;
}

/** Reads JSON. */
export async function get(path, { query = {}, signal } = {}) {
  return (await request('GET', withQuery(path, query), { signal })).json();
}

/** Sends what changes something, as `request` does; resolves to JSON, null if the response has none. */
export async function send(method, path, body, { query = {}, ...options } = {}) {
  const response = await request(method, withQuery(path, query), { body, ...options });
  const json = response.headers.get('content-type')?.startsWith('application/json');
  return json ? response.json() : null;
}

/** Sends a request, an object as JSON, and resolves to its response; throws `ApiError`. */
export async function request(method, path, { body = null, signal, headers } = {}) {
  const json = body !== null && !(body instanceof Blob) && { 'content-type': 'application/json' };
  const sent = { accept: 'application/json', ...json, ...headers };
  const options = { method, body: json ? JSON.stringify(body) : body, signal, headers: sent };
  const response = await fetch(path, options).catch((error) => lost(error, signal));
  if (response.ok) return response;
  const told = await response.json().catch(() => null);
  const failed = new ApiError(response.status, told?.error ?? { message: response.statusText }, response.headers);
  if (failed.status === 401) refused();
  throw failed;
}

/** Sends a file, and resolves to JSON; `onSent` is called with the number of bytes that have left the browser. */
export async function put(path, file, { signal, onSent }) {
  const { promise, resolve, reject } = Promise.withResolvers();
  const sending = new XMLHttpRequest(); // fetch does not report progress
  const fail = () => reject(signal.aborted ? signal.reason : new ApiError(0, { message: path }));
  const end = () => {
    const { status, statusText, response } = sending;
    if (status < 300) return void resolve(response);
    const headers = { get: (name) => sending.getResponseHeader(name) };
    reject(new ApiError(status, response?.error ?? { message: statusText }, headers));
    if (status === 401) refused();
  };
  const abort = () => sending.abort();
  sending.open('PUT', path);
  sending.responseType = 'json';
  sending.setRequestHeader('accept', 'application/json');
  sending.setRequestHeader('content-type', 'application/octet-stream'); // the box looks what it is
  sending.upload.onprogress = ({ loaded }) => onSent(loaded);
  Object.assign(sending, { onload: end, onerror: fail, onabort: fail, ontimeout: fail });
  signal.addEventListener('abort', abort);
  sending.send(file);
  return promise.finally(() => signal.removeEventListener('abort', abort));
}

/**
 * Yields events `{event, data, id}`; throws one named `error`. With `after`, the id of the last event seen or 0, a lost
 * connection is opened again from there until `signal` is aborted.
 */
export async function* events(path, { method = 'GET', body, signal, headers, after } = {}) {
  let last = after;
  let pause = 500;
  for (;;) {
    try {
      const sent = { ...headers, accept: 'text/event-stream', ...(last && { 'last-event-id': last }) };
      const response = await request(method, path, { body, signal, headers: sent });
      for await (const each of parsed(response, signal)) {
        last = each.id || last;
        pause = 500;
        if (each.event === 'error') throw new ApiError(response.status, each.data.error, response.headers);
        yield each;
      }
      return;
    } catch (error) {
      if (after === undefined || !error.unreachable) throw error;
    }
    await wait(pause, signal);
    pause = Math.min(2 * pause, 8000);
  }
}

/** Resolves after so many milliseconds; rejects when the signal is aborted. */
export async function wait(milliseconds, signal) {
  signal?.throwIfAborted();
  const { promise, resolve } = Promise.withResolvers();
  const timer = setTimeout(resolve, milliseconds);
  signal?.addEventListener('abort', resolve);
  await promise;
  clearTimeout(timer);
  signal?.removeEventListener('abort', resolve);
  signal?.throwIfAborted();
}

async function* parsed(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let buffered = '';
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((error) => lost(error, signal));
      if (done) return;
      buffered += value;
      for (let end; (end = buffered.indexOf('\n\n')) >= 0; buffered = buffered.slice(end + 2)) {
        const found = { event: 'message', data: '', id: '' };
        for (const line of buffered.slice(0, end).split('\n')) {
          const at = line.indexOf(': ');
          if (at > 0) found[line.slice(0, at)] = line.slice(at + 2);
        }
        if (found.data) yield { ...found, data: JSON.parse(found.data) };
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

function lost(error, signal) {
  throw signal?.aborted ? signal.reason : new ApiError(0, error);
}
