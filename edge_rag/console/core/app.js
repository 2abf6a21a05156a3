/** Starts the console: signs in, shows the view of the address, and what all views have around them. */

import { onUnauthenticated } from './api.js';
import { BASE, h, replace, untrusted } from './dom.js';
import { attempt, errorBox, iconButton, spinner } from './controls.js';
import { current, go, href } from './router.js';
import { can, forget, identity, isSignedIn, signedIn, signOut } from './session.js';
import { t } from './text.js';

const VIEWS = {
  ask: () => import('../ask/view.js'),
  documents: () => import('../documents/view.js'),
  box: () => import('../box/view.js'),
  access: () => import('../access/view.js'),
  'sign-in': () => import('../access/sign_in.js'),
};

const main = document.getElementById('main');
let shown = new AbortController();
let started = false;

async function show() {
  const { view, parts, query } = current();
  if (!VIEWS[view]) return go(href('ask'), { replace: true });
  shown.abort();
  shown = new AbortController();
  const { signal } = shown;
  for (const link of document.querySelectorAll('nav [data-view]')) {
    link.ariaCurrent = link.dataset.view === view ? 'page' : null;
  }
  const container = h(`div.view.view-${view}`, spinner());
  replace(main, container);
  document.body.dataset.view = view;
  try {
    const { show: fill } = await VIEWS[view]();
    if (signal.aborted) return;
    replace(container);
    const title = await fill(container, { parts, query, signal });
    if (signal.aborted) return;
    document.title = title ? `${title} – edge-rag` : 'edge-rag';
    // The first view keeps the focus where the browser put it; later ones begin at their top.
    if (started && !container.contains(document.activeElement)) main.focus({ preventScroll: true });
    started = true;
  } catch (error) {
    if (signal.aborted || error.status === 401) return;
    if (error instanceof TypeError && (await isOutdated())) location.reload();
    else if (!signal.aborted) replace(container, errorBox(error, show));
  }
}

/** Whether the box has another version by now, and this page cannot load its own files any more. */
async function isOutdated() {
  const page = await fetch('/').then((response) => response.text(), () => BASE);
  return !page.includes(BASE);
}

function menu() {
  const name = isSignedIn() ? identity().name : null;
  const out = name && iconButton(t('app.sign_out'), 'close', { on: () => attempt(signOut) });
  replace(document.getElementById('menu'), name && h('span.who.ellipsis', untrusted(name)), out);
  document.querySelector('nav [data-view=access]').closest('li').hidden = !can('admin');
}

function askForCredentials() {
  if (current().view === 'sign-in') return;
  forget();
  sessionStorage.setItem('edge-rag.wanted', location.hash);
  go(href('sign-in'), { replace: true });
}

/** Called by the sign-in view once the box knows the caller. */
export async function enter() {
  await signedIn();
  menu();
  const wanted = sessionStorage.getItem('edge-rag.wanted') || href('ask');
  sessionStorage.removeItem('edge-rag.wanted');
  go(wanted, { replace: true });
}

async function start() {
  onUnauthenticated(askForCredentials);
  addEventListener('hashchange', show);
  try {
    if (current().view !== 'sign-in') await signedIn();
  } catch (error) {
    if (error.status !== 401) replace(main, errorBox(error, () => location.reload()));
    return;
  }
  menu();
  await show();
}

start();
