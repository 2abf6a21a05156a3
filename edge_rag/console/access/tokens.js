/** The tokens of the box: listed, made, changed and revoked. */

import { get, send } from '../core/api.js';
import { badge, button, columns, confirm, confirmed, empty, icon, iconButton, notice, table } from '../core/controls.js';
import { h, replace, untrusted, visible } from '../core/dom.js';
import { dateTime, t } from '../core/text.js';
import { pairDevice, showOnce, shownOnce } from './pairing.js';
import { askForRights, limitsText } from './rights.js';

const PATH = '/api/v1/tokens';

/** Shows the tokens, a page at a time. */
export async function show(container, signal, after = null) {
  const { tokens, next, advice } = await get(PATH, { query: { after }, signal });
  const reload = () => show(container, signal);
  const heads = columns(['name', 'roles', 'collections', 'limits', 'expires', 'actions'].map((name) => `access.${name}`));
  const rows = tokens.map((token) => tokenRow(token, reload));
  const shown = { caption: t('access.tab_tokens'), columns: heads, rows, hideCaption: true };
  replace(
    container,
    advice && h('p.advice', icon('warning'), h('span', advice)),
    h('p.row',
      button(t('access.pair'), { kind: 'primary', icon: 'add', on: () => pairDevice(reload) }),
      button(t('access.make'), { icon: 'add', on: () => make(reload) })),
    h('p.hint', t('access.about')),
    rows.length ? table(shown) : empty(t('access.none')),
    next && button(t('access.more'), { icon: 'down', on: () => show(container, signal, next) }),
  );
}

function tokenRow(token, reload) {
  const { key, identity, expires } = token;
  const name = visible(identity.name);
  const path = `${PATH}/${key}`;

  async function change() {
    const save = ({ settings }) => insisting((force) => send('PATCH', path, { settings, force }));
    if (await askForRights(t('access.change_of', { name }), t('access.save'), save, token)) await reload();
  }

  const erase = async () => {
    await insisting((force) => send('DELETE', path, null, { query: { force: force || null } }));
    notice(t('access.revoked', { name }));
    await reload();
  };
  const title = t('access.revoke_of', { name });
  const revoke = () => confirmed(t('access.revoke'), t('access.revoke_text', { name }), erase, title);
  const { collections: own } = identity;
  return [
    h('span.row',
      untrusted(identity.name),
      token.is_own && badge(t('access.own'), 'good'),
      token.is_expired && badge(t('access.expired'), 'bad')),
    identity.roles.map((role) => t(`box.role_${role}`)).join(', '),
    own ? h('ul', own.map((each) => h('li', untrusted(each)))) : t('access.all_collections'),
    limitsText(identity),
    expires ? dateTime(expires) : t('access.never'),
    h('span.row',
      iconButton(t('access.change_of', { name }), 'edit', { on: change }),
      iconButton(title, 'trash', { on: revoke })),
  ];
}

async function make(reload) {
  const create = ({ name, settings }) => send('POST', PATH, { name, settings });
  const made = await askForRights(t('access.make'), t('access.make'), create);
  if (!made) return;
  const title = t('access.secret_title');
  await showOnce(title, shownOnce(title, t('access.secret_text'), made.secret));
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
