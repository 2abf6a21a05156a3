/** The conversations of this browser: a list to go back to, rename and delete them. */

import { button, confirm, dialog, field, freshId, iconButton } from '../core/controls.js';
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
  const list = h('ul', { id: freshId('conversations') });
  const toggle = button(t('ask.conversations'), {
    icon: 'menu',
    class: 'button quiet history-toggle',
    'aria-expanded': 'false',
    'aria-controls': list.id,
    on: () => toggle.setAttribute('aria-expanded', String(element.classList.toggle('open'))),
  });
  const fresh = h('a', { class: 'button', href: href('ask', 'new') }, t('ask.new'));
  const kept = h('p', { class: 'hint' }, t('ask.kept_here', { count: BOUNDS.conversations }));
  const element = h(
    'nav',
    { class: 'history', 'aria-label': t('ask.conversations') },
    h('div', { class: 'row spread' }, toggle, fresh),
    list,
    kept,
  );

  element.update = () => {
    const items = store.list().map((each) => {
      const name = each.title;
      const link = h(
        'a',
        { href: href('ask', each.id), 'aria-current': each.id === shown() ? 'page' : null },
        h('span', { class: 'history-title' }, untrusted(name)),
        h('span', { class: 'hint' }, ago(each.updated)),
      );
      return h(
        'li',
        {},
        link,
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
      actions: [{ text: t('ask.save'), kind: 'primary', value: true, check: () => Boolean(input.value.trim()) }],
    });
    if (saved) onRename(id, input.value.trim());
  }

  async function remove({ id, title }) {
    const asked = { title: t('ask.delete', { name: title }), text: t('ask.delete_text') };
    if (await confirm({ ...asked, action: t('ask.delete_action'), danger: true })) onDelete(id);
  }

  element.update();
  return element;
}
