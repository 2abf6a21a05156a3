/** Pairing of a device: a one-time code, its URL and its QR code. */

import { send } from '../core/api.js';
import { button, copied, dialog } from '../core/controls.js';
import { h, replace, svg } from '../core/dom.js';
import { dateTime, t } from '../core/text.js';
import { askForRights } from './rights.js';

const QUIET = 4; // modules around a QR code that stay light, as ISO/IEC 18004 asks for

/** Asks for what a new device may do, makes a code for it and shows that. */
export async function pairDevice(reload) {
  // Over plain HTTP this page is for this box alone, and no other device would reach it by its address.
  const address = location.protocol === 'https:' ? `${location.origin}/` : '';
  const make = ({ name, days, settings: { expires: _, ...settings } }) =>
    send('POST', '/api/v1/pairing-codes', { name, settings, days, console: address });
  const made = await askForRights(t('access.pair'), t('access.pair'), make);
  if (!made) return;
  const title = t('access.code_title');
  await showOnce(title, [
    made.url && qrCode(made.qr),
    shownOnce(title, t(made.url ? 'access.code_text' : 'access.code_only'), made.code),
    made.url && shownOnce(t('access.code_url'), t('access.code_url_text'), made.url),
    h('p.hint', t('access.code_until', { time: dateTime(made.expires) })),
  ]);
  await reload();
}

/** Shows what is shown only now until the user is done with it. */
export function showOnce(title, content) {
  return dialog({ title, content, actions: [{ text: t('access.done'), kind: 'primary' }] });
}

/** Returns a QR code of its rows, in which 1 is dark. It is dark on light in both themes, as scanners want it. */
function qrCode(rows) {
  const size = rows.length + 2 * QUIET;
  const dark = rows.flatMap((row, y) =>
    [...row.matchAll(/1+/g)].map((run) => `M${run.index + QUIET} ${y + QUIET}h${run[0].length}v1h-${run[0].length}z`));
  const props = { class: 'qr', viewBox: `0 0 ${size} ${size}`, role: 'img', 'aria-label': t('access.code_qr') };
  return svg('svg', props, svg('path', { d: dark.join('') }));
}

/** Returns a secret that is shown once, with a button that copies it. */
export function shownOnce(label, text, secret) {
  const said = h('span', { role: 'status' });
  const copy = async () => replace(said, await copied(secret));
  return [
    h('p', text),
    h('pre.secret', { tabindex: '0', 'aria-label': label }, h('code', secret)),
    h('p.row', button(t('access.copy'), { icon: 'copy', on: copy }), said),
  ];
}
