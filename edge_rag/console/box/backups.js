/** Backups on the box and the age of the last one; when certificates expire. */

import { get, send } from '../core/api.js';
import { badge, button, confirm, empty, failure, icon, notice, spinner, table } from '../core/controls.js';
import { announce, h, replace, untrusted } from '../core/dom.js';
import { ago, bytes, dateTime, t } from '../core/text.js';

const DAY_MS = 86_400_000;
const OLD_DAYS = 7; // a backup older than this is warned of
const EXPIRY_DAYS = 30; // a certificate with less left is warned of

const RESTORE = 'sudo systemctl stop edge-rag\nedge-rag restore FILE --replace\nsudo systemctl start edge-rag';

/** Shows backups and certificates. */
export async function backupsPanel(container, signal) {
  const backups = h('section', { class: 'stack' });
  const certificates = h('section', { class: 'stack' });
  const status = get('/api/v1/status', { signal });
  const [{ certificates: found }] = await Promise.all([status, showBackups(backups, signal)]);
  replace(certificates, h('h2', {}, t('box.certificates')), certificateTable(found));
  replace(container, backups, certificates);
}

async function showBackups(section, signal) {
  const { backups, last, most } = await get('/api/v1/backups', { signal });
  const reload = () => showBackups(section, signal);
  const rows = backups.map(({ name, created_at: at, size_bytes: size }) => {
    const path = `/api/v1/backups/${encodeURIComponent(name)}`;
    return [
      h('span', {}, dateTime(at), ' (', ago(at), ')'),
      bytes(size),
      h('code', {}, name),
      h(
        'span',
        { class: 'row' },
        h('a', { class: 'button', href: path, download: name }, icon('download'), h('span', {}, t('box.download'))),
        button(t('box.delete'), { kind: 'danger', icon: 'trash', on: () => remove(path, at, reload) }),
      ),
    ];
  });
  const columns = ['made', 'size', 'file', 'actions'].map((name) => ({ text: t(`box.${name}`) }));
  replace(
    section,
    h('h2', {}, t('box.backups')),
    lastLine(last),
    h('p', { class: 'row' }, makeButton(reload), h('span', { class: 'hint' }, t('box.kept', { count: most }))),
    rows.length ? table({ caption: t('box.backups'), columns, rows, hideCaption: true }) : empty(t('box.no_backups')),
    h(
      'details',
      { class: 'card' },
      h('summary', {}, t('box.restore')),
      h('p', {}, t('box.restore_how')),
      h('pre', {}, h('code', {}, RESTORE)),
    ),
  );
}

function lastLine(last) {
  if (last === null) return h('p', { class: 'alarm' }, icon('warning'), t('box.never_backed_up'));
  const old = Date.now() - Date.parse(last.at) > OLD_DAYS * DAY_MS;
  const text = t(`box.last_${last.way}`, { ago: ago(last.at), time: dateTime(last.at), size: bytes(last.size_bytes) });
  return h('p', { class: old ? 'alarm' : 'last-backup' }, icon(old ? 'warning' : 'check'), text);
}

function makeButton(reload) {
  const make = button(t('box.make_backup'), { kind: 'primary', on: run });
  const waiting = h('span', { hidden: true }, spinner(t('box.making_backup')));
  async function run() {
    make.disabled = true;
    waiting.hidden = false;
    announce(t('box.making_backup'));
    try {
      // Not ended with the view: the backup would be, too.
      const { backup } = await send('POST', '/api/v1/backups');
      notice(t('box.backup_made', { size: bytes(backup.size_bytes) }));
      await reload();
    } catch (error) {
      notice(failure(error), { kind: 'error' });
    }
    make.disabled = false;
    waiting.hidden = true;
  }
  return h('span', { class: 'row' }, make, waiting);
}

async function remove(path, at, reload) {
  const title = t('box.delete_title');
  const text = t('box.delete_text', { time: dateTime(at) });
  if (!(await confirm({ title, text, action: t('box.delete'), danger: true }))) return;
  try {
    await send('DELETE', path);
    await reload();
  } catch (error) {
    notice(failure(error), { kind: 'error' });
  }
}

function certificateTable(found) {
  if (found.length === 0) return h('p', { class: 'hint' }, t('box.no_certificates'));
  const rows = found.map(({ file, subject, expires_at: until }) => [
    subject ? untrusted(subject) : t('box.unreadable'),
    until && dateTime(until),
    until && daysLeft(until),
    h('code', {}, untrusted(file)),
  ]);
  const columns = ['subject', 'expires', 'days_left', 'file'].map((name) => ({ text: t(`box.${name}`) }));
  const shown = table({ caption: t('box.certificates'), columns, rows, hideCaption: true });
  return [shown, h('p', { class: 'hint' }, t('box.renew'))];
}

function daysLeft(until) {
  const days = Math.floor((Date.parse(until) - Date.now()) / DAY_MS);
  if (days < 0) return badge(t('box.expired'), 'bad');
  return badge(t('box.days', { count: days }), days < EXPIRY_DAYS ? 'warn' : 'good');
}
