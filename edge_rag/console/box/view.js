/** How the box is: live, its models, requests, usage, backups and certificates. */

import { get } from '../core/api.js';
import { badge, tabs } from '../core/controls.js';
import { h, loadStyle, replace, untrusted } from '../core/dom.js';
import { href, rewrite } from '../core/router.js';
import { can, collections, identity } from '../core/session.js';
import { number, t } from '../core/text.js';

const LIMITS = ['requests_per_minute', 'tokens_per_minute', 'concurrent_requests'];

/** Shows the view. `parts` are the tab and, of requests, the id of one. */
export async function show(container, { parts, signal }) {
  await loadStyle('box/box.css');
  const title = t('app.box');
  if (!can('admin')) {
    replace(container, h('h1', {}, title), await whatOthersSee(signal));
    return title;
  }
  const [selected = 'live', request] = parts;
  let first = request;
  const panel = (id, load) => ({ id, text: t(`box.tab_${id}`), show: load });
  const items = [
    panel('live', async (into, left) => (await import('./live.js')).livePanel(into, left)),
    panel('models', async (into, left) => (await import('./models.js')).modelsPanel(into, { signal: left })),
    panel('requests', async (into, left) => {
      const shown = first;
      first = undefined;
      await (await import('./audit.js')).auditPanel(into, { request: shown, signal: left });
    }),
    panel('usage', async (into, left) => (await import('./usage.js')).usagePanel(into, left)),
    panel('backups', async (into, left) => (await import('./backups.js')).backupsPanel(into, left)),
  ];
  let tabbed = null;
  const inSight = () => tabbed.querySelector('[aria-selected=true]').scrollIntoView({ block: 'nearest' });
  const on = (id) => {
    if (tabbed === null) return;
    rewrite(href('box', id));
    inSight();
  };
  tabbed = tabs(items, { selected, label: title, signal, on });
  replace(container, h('h1', {}, title), tabbed);
  inSight();
  return title;
}

/** What a caller sees who does not run the box: what they may do, and whether it serves. */
async function whatOthersSee(signal) {
  const who = identity();
  const [{ status }, found] = await Promise.all([get('/healthz', { signal }), collections()]);
  const limits = LIMITS.filter((name) => who[name] !== null);
  const each = ({ name, documents }) => h('li', {}, untrusted(name), ': ', t('box.documents', { count: documents }));
  return h(
    'div',
    { class: 'stack' },
    h('p', {}, badge(t(`box.is_${status}`), status === 'serving' ? 'good' : 'warn')),
    h('p', {}, t('box.for_admins')),
    h('section', { class: 'card' }, h('h2', {}, untrusted(who.name)), h('dl', { class: 'facts' }, [
      fact(t('box.roles'), who.roles.map((role) => t(`box.role_${role}`)).join(', ')),
      limits.map((name) => fact(t(`box.${name}`), number(who[name]))),
      fact(
        t('box.collections'),
        h('ul', {}, found.map(each)),
      ),
    ])),
  );
}

/** A term and what it is, in a list of facts. */
function fact(term, value) {
  return [h('dt', {}, term), h('dd', {}, value)];
}
