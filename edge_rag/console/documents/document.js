/** One document: what is in it, what the box knows about it, and what can be done with it. */

import { get, send } from '../core/api.js';
import { button, confirmed, icon, tabs } from '../core/controls.js';
import { announce, h, loadStyle, replace, untrusted, visible } from '../core/dom.js';
import { go, href, rewrite } from '../core/router.js';
import { can } from '../core/session.js';
import { bytes, dateTime, number, t } from '../core/text.js';
import { picker, uploadList } from './upload_list.js';
import { add, onUploads } from './uploads.js';

/**
 * Shows a document; resolves to the title of the page. In the query, `tab` is what is shown, and `at` and `end` a range of
 * characters that is marked, which is looked for first on the `page`.
 */
export async function documentView(container, { collection, document: id, query, signal }) {
  const path = `/api/v1/collections/${encodeURIComponent(collection)}/documents/${encodeURIComponent(id)}`;
  const { document: info } = await get(path, { query: { start: 0, end: 1 }, signal });
  const all = href('documents', collection);
  const original = `/documents/${encodeURIComponent(info.id)}/original?${new URLSearchParams({ collection })}`;
  const saved = { class: 'button', href: original, download: visible(info.name.split('/').at(-1)) };
  const exchange = ([given]) => given && add([{ file: given.file, name: info.name }], collection);
  const text = t('documents.delete_one', { name: visible(info.name) });
  const erase = () => confirmed(t('documents.delete'), text, async () => {
    await send('DELETE', path);
    announce(t('documents.deleted', { count: 1 }));
    go(all);
  });
  const title = info.title || info.name;
  replace(
    container,
    h('a.row.documents-up', { href: all }, icon('left'), t('documents.back', { name: visible(collection) })),
    h('div.row.spread.documents-head',
      h('h1', untrusted(title)),
      h('div.row',
        info.original && h('a', saved, icon('download'), t('documents.download')),
        can('writer') && picker(t('documents.replace'), { on: exchange }),
        can('writer') && button(t('documents.delete'), { kind: 'danger', icon: 'trash', on: erase }))),
    info.title && h('p.hint', untrusted(info.name)),
    can('writer') && uploadList(signal),
  );
  const options = { collection, document: info.id, signal };
  const items = [
    { id: 'text', text: t('documents.text'), show: (panel, shown) => reader(panel, query, { ...options, signal: shown }) },
    { id: 'chunks', text: t('chunks.list'), show: async (panel, shown) =>
      (await import('./chunks.js')).chunksPanel(panel, { ...options, signal: shown }) },
    { id: 'details', text: t('documents.details'), show: (panel) => replace(panel, details(info)) },
  ];
  const on = (tab) => rewrite(href('documents', collection, id, { ...query, tab: tab === 'text' ? null : tab }));
  container.append(tabs(items, { label: t('documents.parts'), selected: query.tab, on, signal }));
  onUploads((stored) => {
    if (stored?.about.collection !== collection || stored.about.name !== info.name) return;
    go(href('documents', collection, id, query), { replace: true });
  }, signal);
  return visible(title);
}

async function reader(panel, query, options) {
  await loadStyle('source/source.css');
  const { documentReader } = await import('../source/reader.js');
  const [start, end, page] = [query.at, query.end, query.page].map((each) => (each ? Number(each) : undefined));
  documentReader(panel, { ...options, start, end, page });
}

function details(info) {
  const entries = (all) =>
    h('dl.facts', all.map(([term, value]) => value && [h('dt', term), h('dd', value)]));
  const facts = {
    name: untrusted(info.name),
    title: info.title && untrusted(info.title),
    kind: untrusted(info.media_type),
    size: bytes(info.size_bytes),
    pages: info.pages && number(info.pages),
    characters: number(info.characters),
    chunks: number(info.chunks),
    date: dateTime(info.ingested_at),
    original: t(info.original ? 'documents.kept' : 'documents.not_kept'),
    id: h('code', info.id),
    sha256: h('code', info.sha256),
  };
  const metadata = Object.entries(info.metadata).map(([key, value]) => [
    untrusted(key),
    untrusted([value].flat().join(', ')),
  ]);
  return [
    entries(Object.entries(facts).map(([key, value]) => [t(`documents.column_${key}`), value])),
    metadata.length > 0 && [h('h2', t('documents.metadata')), entries(metadata)],
  ];
}
