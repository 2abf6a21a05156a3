/** The tokens of the box: listed, made, changed and revoked. */

import { get, send } from '../core/api.js';
import { badge, button, confirm, dialog, empty, failure, icon, iconButton, notice, table } from '../core/controls.js';
import { h, replace, untrusted, visible } from '../core/dom.js';
import { collections } from '../core/session.js';
import { dateTime, t } from '../core/text.js';
import { pairDevice, shownOnce } from './pairing.js';
import { limitsText, rightsForm } from './rights.js';

const PATH = '/api/v1/tokens';

/** Shows the tokens, a page at a time. */
export async function show(container, signal, after = null) {
  const { tokens, next, advice } = await get(PATH, { query: { after }, signal });
  const reload = () => show(container, signal);
  const rows = tokens.map((token) => [
    h('span', { class: 'row' }, untrusted(token.identity.name), marks(token)),
    token.identity.roles.map((role) => t(`box.role_${role}`)).join(', '),
    named(token.identity.collections),
    limitsText(token.identity),
    token.expires ? dateTime(token.expires) : t('access.never'),
    h(
      'span',
      { class: 'row' },
      iconButton(t('access.change_of', { name: visible(token.identity.name) }), 'edit', { on: () => change(token, reload) }),
      iconButton(t('access.revoke_of', { name: visible(token.identity.name) }), 'trash', {
        on: () => revoke(token, reload),
      }),
    ),
  ]);
  const columns = ['client', 'roles', 'collections', 'limits', 'expires', 'actions'].map((name) => ({
    text: t(`access.${name}`),
  }));
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
    rows.length ? table({ caption: t('access.tab_tokens'), columns, rows, hideCaption: true }) : empty(t('access.none')),
    next && button(t('access.more'), { icon: 'down', on: () => show(container, signal, next) }),
  );
}

function marks(token) {
  return [
    token.is_own && badge(t('access.own'), 'good'),
    token.is_expired && badge(t('access.expired'), 'bad'),
  ];
}

function named(found) {
  if (found === null) return t('access.all_collections');
  return h('ul', {}, found.map((each) => h('li', {}, untrusted(each))));
}

async function make(reload) {
  const form = rightsForm(await collections({ fresh: true }));
  let made;
  const check = async () => {
    try {
      made = await send('POST', PATH, { name: form.name(), settings: form.settings() });
      return true;
    } catch (error) {
      form.refused(error);
      return false;
    }
  };
  const actions = [{ text: t('controls.cancel') }, { text: t('access.make'), kind: 'primary', value: true, check }];
  if (!(await dialog({ title: t('access.make'), content: form.content, actions }))) return;
  const shown = await shownOnce(t('access.secret_title'), t('access.secret_text'), made.secret);
  await dialog({ title: t('access.secret_title'), content: shown, actions: [{ text: t('access.done'), kind: 'primary' }] });
  await reload();
}

async function change(token, reload) {
  const form = rightsForm(await collections({ fresh: true }), token);
  const check = async () => {
    try {
      await insisting((force) => send('PATCH', `${PATH}/${token.key}`, { settings: form.settings(), force }));
      return true;
    } catch (error) {
      form.refused(error);
      return false;
    }
  };
  const title = t('access.change_of', { name: visible(token.identity.name) });
  const actions = [{ text: t('controls.cancel') }, { text: t('access.save'), kind: 'primary', value: true, check }];
  if (await dialog({ title, content: form.content, actions })) await reload();
}

async function revoke(token, reload) {
  const name = visible(token.identity.name);
  const title = t('access.revoke_of', { name });
  const text = t('access.revoke_text', { name });
  if (!(await confirm({ title, text, action: t('access.revoke'), danger: true }))) return;
  try {
    await insisting((force) => send('DELETE', `${PATH}/${token.key}`, null, { query: { force: force || null } }));
  } catch (error) {
    notice(failure(error), { kind: 'error' });
    return;
  }
  notice(t('access.revoked', { name }));
  await reload();
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
