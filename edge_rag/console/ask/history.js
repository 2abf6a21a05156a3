/** The conversations of this browser: a list to go back to, rename and delete them. */

import { button, confirm, dialog, expander, field, freshId, iconButton } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { href } from '../core/router.js';
import { ago, t } from '../core/text.js';
import { BOUNDS, TITLE_CHARACTERS } from './conversation.js';

/**
 * Returns the list of conversations.
 * @param {object} context
 * @param {import('./conversation.js').Store} context.store
 * @param {() => string} context.shown Id of the conversation that is shown.
 * @param {(id: string, title: string) => void} context.onRename
 * @param {(id: string) => void} context.onDelete
 * @returns {HTMLElement} With a method `update()`.
 */
export function history({ store, shown, onRename, onDelete }) {
  const list = h('ul');
  const kept = h('p', { class: 'hint' }, t('ask.kept_here', { count: BOUNDS.conversations }));
  const folded = h('div', { class: 'folded', id: freshId('conversations') }, list, kept);
  const controls = { kind: 'quiet history-toggle', icon: 'menu', 'aria-controls': folded.id };
  const toggle = expander(button(t('ask.conversations'), controls));
  const fresh = h('a', { class: 'button', href: href('ask', 'new') }, t('ask.new'));
  const head = h('div', { class: 'row spread' }, toggle, fresh);
  const element = h('nav', { class: 'history', 'aria-label': t('ask.conversations') }, head, folded);

  element.update = () => {
    const items = store.list().map((each) => {
      const { id, title: name, updated } = each;
      return h(
        'li',
        {},
        h(
          'a',
          { href: href('ask', id), 'aria-current': id === shown() && 'page' },
          h('span', { class: 'history-title' }, untrusted(name)),
          h('span', { class: 'hint' }, ago(updated)),
        ),
        iconButton(t('ask.rename', { name }), 'edit', { on: () => rename(each) }),
        iconButton(t('ask.delete', { name }), 'trash', { on: () => remove(each) }),
      );
    });
    replace(list, items);
    element.classList.toggle('none', items.length === 0);
  };

  async function rename({ id, title }) {
    const input = h('input', { maxlength: String(TITLE_CHARACTERS), value: title });
    const saved = await dialog({
      title: t('ask.rename', { name: title }),
      content: field(t('ask.name'), input),
      actions: [{ text: t('ask.save'), kind: 'primary', value: true, check: () => input.value.trim() }],
    });
    if (saved) onRename(id, input.value.trim());
  }

  async function remove({ id, title }) {
    const asked = { title: t('ask.delete', { name: title }), text: t('ask.delete_text') };
    if (await confirm({ ...asked, action: t('ask.delete_action'), danger: true })) onDelete(id);
  }

  return element;
}
