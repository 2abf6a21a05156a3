/** Who may do what, and what people think of answers; for administrators. */

import { tabbedView } from '../core/controls.js';
import { h, loadStyle, replace } from '../core/dom.js';
import { can } from '../core/session.js';
import { t } from '../core/text.js';

/** Shows the view. `parts` is the tab. */
export async function show(container, { parts, signal }) {
  await loadStyle('access/access.css');
  const title = t('app.access');
  if (can('admin')) {
    tabbedView(container, { view: 'access', title, parts, signal }, [
      { id: 'tokens', text: t('access.tab_tokens'), load: () => import('./tokens.js') },
      { id: 'feedback', text: t('access.tab_feedback'), load: () => import('./feedback.js') },
    ]);
  } else {
    replace(container, h('h1', title), h('p', t('access.for_admins')));
  }
  return title;
}
