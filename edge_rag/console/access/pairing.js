/** Pairing of a device: a one-time code, its URL and its QR code. */

import { send } from '../core/api.js';
import { button, dialog, field, select } from '../core/controls.js';
import { h, replace, svg } from '../core/dom.js';
import { collections } from '../core/session.js';
import { dateTime, duration, t } from '../core/text.js';
import { rightsForm } from './rights.js';

const MINUTES = [10, 60, 1440];
const QUIET = 4; // modules around a QR code that stay light, as ISO/IEC 18004 asks for

/** Asks for what a new device may do, makes a code for it and shows that. */
export async function pairDevice(done) {
  const form = rightsForm(await collections({ fresh: true }));
  const minutes = select(MINUTES.map((each) => ({ value: String(each), text: duration(each * 60) })), { value: '10' });
  let made;
  const check = async () => {
    const { expires: _, ...settings } = form.settings();
    // Over plain HTTP this page is for this box alone, and no other device would reach it by its address.
    const address = location.protocol === 'https:' ? `${location.origin}/` : '';
    const body = { name: form.name(), settings, days: form.days(), minutes: Number(minutes.value), console: address };
    try {
      made = await send('POST', '/api/v1/pairing-codes', body);
      return true;
    } catch (error) {
      form.refused(error);
      return false;
    }
  };
  const content = [form.content, field(t('access.code_life'), minutes)];
  const actions = [{ text: t('controls.cancel') }, { text: t('access.pair'), kind: 'primary', value: true, check }];
  if (!(await dialog({ title: t('access.pair'), content, actions }))) return;
  await dialog({
    title: t('access.code_title'),
    content: await shown(made),
    actions: [{ text: t('access.done'), kind: 'primary' }],
  });
  await done();
}

async function shown({ code, url, qr, expires }) {
  const until = h('p', { class: 'hint' }, t('access.code_until', { time: dateTime(expires) }));
  if (!url) return [await shownOnce(t('access.code_title'), t('access.code_only'), code), until];
  return [
    qrCode(qr),
    await shownOnce(t('access.code_title'), t('access.code_text'), code),
    await shownOnce(t('access.code_url'), t('access.code_url_text'), url),
    until,
  ];
}

/** Returns a QR code of its rows, in which 1 is dark. It is dark on light in both themes, as scanners want it. */
export function qrCode(rows) {
  const size = rows.length + 2 * QUIET;
  const dark = rows.flatMap((row, y) =>
    [...row.matchAll(/1+/g)].map((run) => `M${run.index + QUIET} ${y + QUIET}h${run[0].length}v1h-${run[0].length}z`),
  );
  const props = { class: 'qr', viewBox: `0 0 ${size} ${size}`, role: 'img', 'aria-label': t('access.code_qr') };
  return svg('svg', props, svg('path', { d: dark.join('') }));
}

/** Returns a secret that is shown once, with a button that copies it where the browser lets a page do that. */
export async function shownOnce(label, text, secret) {
  const copied = h('span', { role: 'status' });
  const copy = button(t('access.copy'), {
    icon: 'copy',
    on: async () => {
      await navigator.clipboard.writeText(secret);
      replace(copied, t('access.copied'));
    },
  });
  return h(
    'div',
    {},
    h('p', {}, text),
    h('pre', { class: 'secret', tabindex: '0', 'aria-label': label }, h('code', {}, secret)),
    h('p', { class: 'row' }, navigator.clipboard ? copy : null, copied),
  );
}
