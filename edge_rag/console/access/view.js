/** Who may do what, and what people think of answers: tokens, pairing of devices, feedback. For administrators. */

import { tabs } from '../core/controls.js';
import { h, loadStyle, replace } from '../core/dom.js';
import { href, rewrite } from '../core/router.js';
import { can } from '../core/session.js';
import { t } from '../core/text.js';

/** Shows the view. `parts` is the tab. */
export async function show(container, { parts, signal }) {
  await loadStyle('access/access.css');
  const title = t('app.access');
  if (!can('admin')) {
    replace(container, h('h1', {}, title), h('p', {}, t('access.for_admins')));
    return title;
  }
  const panel = (id, load) => ({ id, text: t(`access.tab_${id}`), show: load });
  const items = [
    panel('tokens', async (into, left) => (await import('./tokens.js')).tokensPanel(into, left)),
    panel('feedback', async (into, left) => (await import('./feedback.js')).feedbackPanel(into, left)),
  ];
  let started = false;
  const tabbed = tabs(items, {
    selected: parts[0] ?? 'tokens',
    label: title,
    signal,
    on: (id) => {
      if (started) rewrite(href('access', id));
      started = true;
    },
  });
  replace(container, h('h1', {}, title), tabbed);
  return title;
}
