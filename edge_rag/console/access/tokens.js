/** The tokens of the box: listed, made, changed and revoked. */

import { get, send } from '../core/api.js';
import { attempt, badge, button, columns, confirm, empty, icon, iconButton, notice, table } from '../core/controls.js';
import { h, replace, untrusted, visible } from '../core/dom.js';
import { collections } from '../core/session.js';
import { dateTime, t } from '../core/text.js';
import { pairDevice, showOnce, shownOnce } from './pairing.js';
import { askForRights, limitsText } from './rights.js';

const PATH = '/api/v1/tokens';

/** Shows the tokens, a page at a time. */
export async function show(container, signal, after = null) {
  const { tokens, next, advice } = await get(PATH, { query: { after }, signal });
  const reload = () => show(container, signal);
  const rows = tokens.map((token) => {
    const name = visible(token.identity.name);
    return [
      h(
        'span',
        { class: 'row' },
        untrusted(token.identity.name),
        token.is_own && badge(t('access.own'), 'good'),
        token.is_expired && badge(t('access.expired'), 'bad'),
      ),
      token.identity.roles.map((role) => t(`box.role_${role}`)).join(', '),
      named(token.identity.collections),
      limitsText(token.identity),
      token.expires ? dateTime(token.expires) : t('access.never'),
      h(
        'span',
        { class: 'row' },
        iconButton(t('access.change_of', { name }), 'edit', { on: () => change(token, reload) }),
        iconButton(t('access.revoke_of', { name }), 'trash', { on: () => revoke(token, reload) }),
      ),
    ];
  });
  const texts = ['access.name', 'access.roles', 'access.collections', 'access.limits', 'access.expires', 'access.actions'];
  const shown = { caption: t('access.tab_tokens'), columns: columns(texts), rows, hideCaption: true };
  replace(
    container,
    advice && h('p', { class: 'advice' }, icon('warning'), h('span', {}, advice)),
    h(
      'p',
      { class: 'row' },
      button(t('access.pair'), { kind: 'primary', icon: 'add', on: () => pairDevice(reload) }),
      button(t('access.make'), { icon: 'add', on: () => make(reload) }),
    ),
    h('p', { class: 'hint' }, t('access.about')),
    rows.length ? table(shown) : empty(t('access.none')),
    next && button(t('access.more'), { icon: 'down', on: () => show(container, signal, next) }),
  );
}

function named(found) {
  if (found === null) return t('access.all_collections');
  return h('ul', {}, found.map((each) => h('li', {}, untrusted(each))));
}

async function make(reload) {
  const made = await askForRights(t('access.make'), t('access.make'), (form) =>
    send('POST', PATH, { name: form.name(), settings: form.settings() }),
  );
  if (!made) return;
  await showOnce(t('access.secret_title'), shownOnce(t('access.secret_title'), t('access.secret_text'), made.secret));
  await reload();
}

async function change(token, reload) {
  const title = t('access.change_of', { name: visible(token.identity.name) });
  const save = (form) =>
    insisting((force) => send('PATCH', `${PATH}/${token.key}`, { settings: form.settings(), force }));
  if (await askForRights(title, t('access.save'), save, { token })) await reload();
}

async function revoke(token, reload) {
  const name = visible(token.identity.name);
  const title = t('access.revoke_of', { name });
  const text = t('access.revoke_text', { name });
  if (!(await confirm({ title, text, action: t('access.revoke'), danger: true }))) return;
  await attempt(async () => {
    await insisting((force) => send('DELETE', `${PATH}/${token.key}`, null, { query: { force: force || null } }));
    notice(t('access.revoked', { name }));
    await reload();
  });
}

/** Does what may take the caller's own access, once more with `force` if the caller insists. */
async function insisting(act) {
  try {
    return await act(false);
  } catch (error) {
    if (error.code !== 'confirmation_needed') throw error;
    const asked = { title: t('access.own_title'), text: t('access.own_text'), action: t('access.own_action'), danger: true };
    if (!(await confirm(asked))) throw error;
    return act(true);
  }
}
