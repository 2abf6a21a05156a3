/** Who uses the console, what they may do, and the collection that they chose. */

import { get, send } from './api.js';

const ROLES = ['reader', 'writer', 'admin'];
const CHOSEN = 'edge-rag.collection';

let who = null;
let known = null;

/** Learns who the caller is; throws an `ApiError` of status 401 if the box wants credentials. */
export async function signedIn() {
  who = await get('/api/v1/whoami');
  known = null;
}

/** Forgets the caller. */
export function forget() {
  who = known = null;
}

/** The caller as `GET /api/v1/whoami` tells, or null. */
export function identity() {
  return who;
}

/** Whether the caller has signed in; to others an open box gives addresses as names. */
export function isSignedIn() {
  return who !== null && !/^(ipv4|ipv6|unix):/.test(who.name);
}

/** Whether the caller has a role. */
export function can(role) {
  return Boolean(who?.roles.some((each) => ROLES.indexOf(each) >= ROLES.indexOf(role)));
}

/** The caller's collections, read once, or again if they must be `fresh`. */
export async function collections({ fresh = false } = {}) {
  if (fresh || known === null) {
    known = get('/api/v1/collections').then((found) => found.collections);
    known.catch(() => (known = null));
  }
  return known;
}

/** Name of the chosen collection, or of another one; null without any. */
export async function chosenCollection() {
  const names = (await collections()).map((each) => each.name);
  return [localStorage.getItem(CHOSEN), 'default'].find((each) => names.includes(each)) ?? names[0] ?? null;
}

/** Chooses a collection for all views. */
export function chooseCollection(name) {
  localStorage.setItem(CHOSEN, name);
}

/** Ends the session of this browser. */
export async function signOut() {
  await send('DELETE', '/api/v1/session');
  location.hash = '';
  location.reload();
}
