/** How the box is: live, its models, requests, usage, backups and certificates. */

import { get } from '../core/api.js';
import { tabbedView } from '../core/controls.js';
import { h, loadStyle, replace, untrusted } from '../core/dom.js';
import { can, collections, identity } from '../core/session.js';
import { number, t } from '../core/text.js';
import { facts, stateBadge } from './facts.js';

const LIMITS = ['requests_per_minute', 'tokens_per_minute', 'concurrent_requests'];

/** Shows the view. `parts` are the tab and, of requests, the id of one. */
export async function show(container, { parts, signal }) {
  await loadStyle('box/box.css');
  const title = t('app.box');
  if (can('admin')) {
    tabbedView(container, { view: 'box', title, parts, signal }, [
      { id: 'live', text: t('box.tab_live'), load: () => import('./live.js') },
      { id: 'models', text: t('box.tab_models'), load: () => import('./models.js') },
      { id: 'requests', text: t('box.tab_requests'), load: () => import('./audit.js') },
      { id: 'usage', text: t('box.tab_usage'), load: () => import('./usage.js') },
      { id: 'backups', text: t('box.tab_backups'), load: () => import('./backups.js') },
    ]);
  } else {
    replace(container, h('h1', title), await whatOthersSee(signal));
  }
  return title;
}

/** What a caller sees who does not run the box: what they may do, and whether it serves. */
async function whatOthersSee(signal) {
  const who = identity();
  const [{ status }, found] = await Promise.all([get('/healthz', { signal }), collections()]);
  const limits = LIMITS.filter((name) => who[name] !== null).map((name) => [name, number(who[name])]);
  const each = ({ name, documents }) => h('li', untrusted(name), ': ', t('box.documents', { count: documents }));
  const own = {
    roles: who.roles.map((role) => t(`box.role_${role}`)).join(', '),
    ...Object.fromEntries(limits),
    collections: h('ul', found.map(each)),
  };
  return [
    h('p', stateBadge(status)),
    h('p', t('box.for_admins')),
    h('section.card', h('h2', untrusted(who.name)), facts(own)),
  ];
}
