/** The conversations of this browser, to go back to, rename and delete. */

import { button, confirm, dialog, expander, field, freshId, iconButton } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { href } from '../core/router.js';
import { ago, t } from '../core/text.js';
import { BOUNDS, TITLE_CHARACTERS } from './conversation.js';

/** Returns the list of conversations, with a method `update()`; `shown()` is the id of the present one. */
export function history({ store, shown, onRename, onDelete }) {
  const list = h('ul');
  const kept = h('p.hint', t('ask.kept_here', { count: BOUNDS.conversations }));
  const folded = h('div.folded', { id: freshId('conversations') }, list, kept);
  const controls = { kind: 'quiet history-toggle', icon: 'menu', 'aria-controls': folded.id };
  const toggle = expander(button(t('ask.conversations'), controls));
  const fresh = h('a.button', { href: href('ask', 'new') }, t('ask.new'));
  const head = h('div.row.spread', toggle, fresh);
  const element = h('nav.history', { 'aria-label': t('ask.conversations') }, head, folded);

  element.update = () => {
    const items = store.list().map(item);
    replace(list, items);
    element.hidden = items.length === 0;
  };

  function item({ id, title: name, updated }) {
    const title = h('span.ellipsis.history-title', untrusted(name));
    const props = { href: href('ask', id), 'aria-current': id === shown() && 'page' };
    return h(
      'li',
      h('a', props, title, h('span.hint', ago(updated))),
      iconButton(t('ask.rename', { name }), 'edit', { on: () => rename(id, name) }),
      iconButton(t('ask.delete', { name }), 'trash', { on: () => remove(id, name) }),
    );
  }

  async function rename(id, name) {
    const input = h('input', { maxlength: TITLE_CHARACTERS, value: name });
    const check = () => input.value.trim();
    const actions = [{ text: t('ask.save'), kind: 'primary', value: true, check }];
    const content = field(t('ask.name'), input);
    if (await dialog({ title: t('ask.rename', { name }), content, actions })) onRename(id, check());
  }

  async function remove(id, name) {
    const asked = { title: t('ask.delete', { name }), text: t('ask.delete_text'), action: t('ask.delete_action') };
    if (await confirm({ ...asked, danger: true })) onDelete(id);
  }

  return element;
}
