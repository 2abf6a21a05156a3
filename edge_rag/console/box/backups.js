/** Backups on the box and the age of the last one; when certificates expire. */

import { get, send } from '../core/api.js';
import { attempt, badge, button, confirmed, empty, icon, notice } from '../core/controls.js';
import { announce, h, replace, untrusted } from '../core/dom.js';
import { ago, bytes, dateTime, t } from '../core/text.js';
import { listing } from './facts.js';

const DAY_MS = 86_400_000;
const OLD_DAYS = 7; // a backup older than this is warned of
const EXPIRY_DAYS = 30; // a certificate with less left is warned of
const PATH = '/api/v1/backups';

/** Shows backups and certificates. */
export async function show(container, signal) {
  const [{ backups, last, most }, { certificates }] = await Promise.all([
    get(PATH, { signal }),
    get('/api/v1/status', { signal }),
  ]);
  const hint = (...text) => h('p.hint', text);
  const make = button(t('box.make_backup'), { kind: 'primary', on: makeBackup });
  const reload = () => show(container, signal);

  async function makeBackup() {
    make.disabled = true;
    replace(make, t('box.making_backup'));
    announce(t('box.making_backup'));
    await attempt(async () => {
      // Not ended with the view: the backup would be, too.
      const { backup } = await send('POST', PATH);
      notice(t('box.backup_made', { size: bytes(backup.size_bytes) }));
      await reload();
    });
    make.disabled = false;
    replace(make, t('box.make_backup'));
  }

  function backupRow({ name, created_at: at, size_bytes: size }) {
    const path = `${PATH}/${encodeURIComponent(name)}`;
    const text = t('box.delete_text', { time: dateTime(at) });
    const remove = () => confirmed(t('box.delete'), text, () => send('DELETE', path).then(reload), t('box.delete_title'));
    const actions = [
      h('a.button', { href: path, download: name }, icon('download'), t('box.download')),
      button(t('box.delete'), { kind: 'danger', icon: 'trash', on: remove }),
    ];
    return [`${dateTime(at)} (${ago(at)})`, bytes(size), h('code', name), h('span.row', actions)];
  }

  const backupTable = () => listing(t('box.backups'), 'box', backups.map(backupRow), ['made', 'size', 'file', 'actions']);
  replace(
    container,
    h('h2', t('box.backups')),
    lastLine(last),
    h('p.row', make, h('span.hint', t('box.kept', { count: most }))),
    backups.length ? backupTable() : empty(t('box.no_backups')),
    hint(t('box.restore_how'), ' ', h('code', 'edge-rag restore FILE --replace')),
    h('h2', t('box.certificates')),
    certificates.length ? [certificateTable(certificates), hint(t('box.renew'))] : hint(t('box.no_certificates')),
  );
}

function lastLine(last) {
  if (last === null) return h('p.alarm', icon('warning'), t('box.never_backed_up'));
  const old = Date.now() - Date.parse(last.at) > OLD_DAYS * DAY_MS;
  const text = t(`box.last_${last.way}`, { ago: ago(last.at), time: dateTime(last.at), size: bytes(last.size_bytes) });
  return h(old ? 'p.alarm' : 'p.last-backup', icon(old ? 'warning' : 'check'), text);
}

function certificateTable(certificates) {
  const rows = certificates.map(({ file, subject, expires_at: until }) => [
    subject ? untrusted(subject) : t('box.unreadable'),
    until && dateTime(until),
    until && daysLeft(until),
    h('code', untrusted(file)),
  ]);
  return listing(t('box.certificates'), 'box', rows, ['subject', 'expires', 'days_left', 'file']);
}

function daysLeft(until) {
  const days = Math.floor((Date.parse(until) - Date.now()) / DAY_MS);
  if (days < 0) return badge(t('box.expired'), 'bad');
  return badge(t('box.days', { count: days }), days < EXPIRY_DAYS ? 'warn' : 'good');
}
