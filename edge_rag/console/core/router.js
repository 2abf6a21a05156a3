/** The address after `#`, as `#/VIEW/PART/PART?name=value`. */

/** Returns a path with its query, without values that are null, undefined or empty. */
export function withQuery(path, query) {
  const given = Object.entries(query).filter(([, value]) => (value ?? '') !== '');
  return given.length ? `${path}?${new URLSearchParams(given)}` : path;
}

/** Returns the address of a view: its name, further parts, and last its query, if any. */
export function href(...parts) {
  const query = typeof parts.at(-1) === 'object' ? parts.pop() : {};
  return withQuery(`#/${parts.map(encodeURIComponent).join('/')}`, query);
}

/** Goes to an address; `replace` leaves no trace in the history. */
export function go(address, { replace = false } = {}) {
  if (!replace) {
    location.hash = address;
    return;
  }
  rewrite(address);
  dispatchEvent(new HashChangeEvent('hashchange'));
}

/** Writes an address without showing its view again. */
export function rewrite(address) {
  history.replaceState(null, '', address);
}

/** The present address. */
export function current() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const [view, ...parts] = path.split('/').map(decoded);
  return { view, parts: parts.filter(Boolean), query: Object.fromEntries(new URLSearchParams(query)) };
}

function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
