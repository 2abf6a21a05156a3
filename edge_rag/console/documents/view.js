/** Documents: the collections, the documents of one, and tabs for its jobs, test questions and settings. */

import { get, send } from '../core/api.js';
import { badge, button, confirmed, dialog, empty, errorBox } from '../core/controls.js';
import { failure, field, icon, notice, select, tabs } from '../core/controls.js';
import { announce, h, loadStyle, replace, successive, untrusted, visible } from '../core/dom.js';
import { go, href, rewrite } from '../core/router.js';
import { can, chooseCollection, chosenCollection, collections } from '../core/session.js';
import { ago, bytes, dateTime, number, t } from '../core/text.js';
import { virtualList } from '../core/virtual_list.js';
import { dropArea, picker, uploadList } from './upload_list.js';
import { add, onUploads } from './uploads.js';

const SEARCH_MS = 250;
const RENEWAL_MS = 1000;
const FIRST_PAGE = 100; // documents
const NARROW = matchMedia('(max-width: 60rem)');
const ROW = { wide: 56, narrow: 124 }; // height, CSS pixels
const ORDERS = {
  name: { order: 'name' },
  newest: { order: 'stored', descending: true },
  oldest: { order: 'stored' },
  largest: { order: 'size', descending: true },
};

/** Fills the view. `parts` are a collection, and a document of it. */
export async function show(container, { parts: [given, document], query, signal }) {
  const styled = loadStyle('documents/documents.css');
  if (document) {
    const { documentView } = await import('./document.js');
    await styled;
    return documentView(container, { collection: given, document, query, signal });
  }
  const known = await collections({ fresh: true });
  await styled;
  const collection = given ?? (await chosenCollection()) ?? 'default';
  const info = known.find((each) => each.name === collection);
  if (info) chooseCollection(collection);
  const upload = (files) => add(files, collection);
  replace(
    container,
    h('div.row.spread.documents-head', h('h1', t('app.documents')), chooser(known, collection)),
    info?.settings.description && h('p.hint', untrusted(info.settings.description)),
    can('writer') && uploadList(signal),
  );
  if (can('writer')) dropArea(container, { text: t('documents.drop', { name: visible(collection) }), on: upload, signal });
  const items = [
    ['documents', 'app.documents', () => (panel, options) => listPanel(panel, { ...options, info, upload })],
    can('writer') && ['jobs', 'documents.jobs', async () => (await import('./jobs.js')).jobsPanel],
    info && ['tests', 'tests.list', async () => (await import('./test_questions.js')).testQuestionsPanel],
    info && can('admin') && ['settings', 'documents.settings', async () => (await import('./settings.js')).settingsPanel],
  ].filter(Boolean).map(([id, key, load]) => ({
    id,
    text: t(key),
    show: async (panel, shown) => (await load())(panel, { collection, signal: shown }),
  }));
  const on = (id) => rewrite(href('documents', collection, id === 'documents' ? {} : { tab: id }));
  container.append(tabs(items, { label: t('documents.parts'), selected: query.tab, on, signal }));
  return t('app.documents');
}

function chooser(known, collection) {
  const all = known.some((each) => each.name === collection) ? known : [{ name: collection, documents: 0 }, ...known];
  const options = all.map(({ name, settings, documents }) =>
    ({ value: name, text: `${settings?.title || name} (${number(documents)})` }));
  const chosen = select(options, { value: collection, on: (name) => go(href('documents', name)) });
  const create = can('admin') && button(t('documents.create'), { icon: 'add', on: createCollection });
  return h('div.row', h('label', t('documents.collection'), ' ', chosen), create);
}

async function createCollection() {
  const name = h('input', { maxlength: '64', autocomplete: 'off' });
  const input = () => {
    const plain = title.value.normalize('NFKD').toLowerCase().replace(/\p{M}/gu, '');
    name.value = plain.replace(/[^a-z0-9_]+/g, '-').replace(/^-+|-+$/g, '');
  };
  const title = h('input', { maxlength: '256', autocomplete: 'off', on: { input } });
  const named = field(t('documents.new_name'), name, { hint: t('documents.new_name_hint') });
  const check = async () => {
    const made = send('POST', '/api/v1/collections', { name: name.value, settings: { title: title.value.trim() } });
    const wrong = await made.then(() => '', failure);
    named.setError(wrong);
    if (wrong) name.focus();
    return !wrong;
  };
  const text = t('documents.create');
  const content = [field(t('documents.new_title'), title), named];
  const actions = [{ text, kind: 'primary', value: true, check }];
  if (await dialog({ title: text, content, actions })) go(href('documents', name.value));
}

/** The list of documents with its tools. */
async function listPanel(panel, { collection, info, upload, signal }) {
  const pick = can('writer') && [
    picker(t('documents.add_files'), { kind: 'primary', multiple: true, on: upload }),
    picker(t('documents.add_folder'), { webkitdirectory: true, on: upload }),
  ];
  const onStored = (act) => onUploads((stored) => stored?.about.collection === collection && act(), signal);
  if (!info?.documents) {
    replace(panel, h('div.row.documents-tools', pick), nothing());
    onStored(() => go(href('documents', collection), { replace: true }));
    return;
  }
  const path = `/api/v1/collections/${encodeURIComponent(collection)}/documents`;
  const asked = { search: '', filter: '', ...ORDERS.name };
  const selected = new Set(); // ids
  let list = null;
  const begin = successive(signal);
  let typed = 0;
  let renewing = 0;

  const input = () => {
    clearTimeout(typed);
    typed = setTimeout(() => reload({ search: search.value.trim() }), SEARCH_MS);
  };
  const names = { placeholder: t('documents.search_hint'), 'aria-label': t('documents.search') };
  const search = h('input', { type: 'search', maxlength: '256', ...names, on: { input } });
  const change = () => reload({ filter: filter.value.trim() });
  const filter = h('input', { maxlength: '4096', autocomplete: 'off', spellcheck: 'false', on: { change } });
  const filterField = field(t('documents.filter'), filter, { hint: t('documents.filter_hint') });
  const orders = Object.keys(ORDERS).map((value) => ({ value, text: t(`documents.order_${value}`) }));
  const reorder = (id) => reload({ descending: null, ...ORDERS[id] });
  const found = h('p.hint', { role: 'status' });
  const count = h('span');
  const bin = button(t('documents.delete'), { kind: 'danger', icon: 'trash', on: erase });
  const selection = h('div.row.selection', { hidden: true }, count, bin);
  const place = h('div');
  replace(
    panel,
    h('div.row.documents-tools',
      h('div.search', icon('search'), search),
      select(orders, { 'aria-label': t('documents.order'), on: reorder }),
      pick),
    h('details.documents-filter', h('summary', t('documents.filter_summary')), filterField),
    selection,
    found,
    place,
  );

  /** Reads the list anew: with changes of what is asked for from its top, else where it is. */
  async function reload(changes) {
    Object.assign(asked, changes);
    const wanted = begin();
    const load = pager(path, { ...asked }, wanted);
    let first;
    try {
      first = await load(0, FIRST_PAGE);
      filterField.setError('');
    } catch (error) {
      if (wanted.aborted) return;
      if (error.param === 'filter') filterField.setError(visible(error.message));
      else replace(place, errorBox(error, () => reload()));
      return;
    }
    const { total } = first;
    const narrowed = asked.search || asked.filter;
    replace(found, narrowed && t('documents.found', { count: total }));
    if (total === 0) return void replace(place, narrowed ? empty(t('documents.none_found')) : nothing());
    const top = changes ? 0 : (list?.element.scrollTop ?? 0);
    list = virtualList({
      rowHeight: NARROW.matches ? ROW.narrow : ROW.wide,
      count: total,
      label: t('app.documents'),
      render: row,
      failed: (error) => notice(failure(error), { kind: 'error' }),
      load: async (from, to) => (from === 0 ? first : await load(from, to)).documents,
    });
    replace(place, list.element);
    list.element.scrollTop = top;
  }

  function row({ id, name, title, chunks, media_type: type, ingested_at: at, size_bytes: size, pages: count }) {
    const change = () => {
      if (box.checked) selected.add(id);
      else selected.delete(id);
      showSelection();
    };
    const label = t('documents.select', { name: visible(name) });
    const props = { type: 'checkbox', 'aria-label': label, checked: selected.has(id), disabled: !can('writer') };
    const box = h('input', { ...props, on: { change } });
    const short = title || name.split('/').at(-1);
    const kind = /\.([a-z0-9]{1,8})$/i.exec(name)?.[1] ?? type.split('/').at(-1);
    const link = h('a.ellipsis', { href: href('documents', collection, id), title: visible(name) }, untrusted(short));
    const cells = {
      box,
      name: [link, short !== name && h('span.hint.ellipsis', untrusted(name))],
      kind: badge(kind.toUpperCase()),
      size: bytes(size),
      pages: count && t('documents.pages', { count }),
      date: h('time', { datetime: at, title: dateTime(at) }, ago(at)),
      state: chunks > 0 ? badge(t('documents.is_searchable'), 'good') : badge(t('documents.is_silent'), 'warn'),
    };
    const cell = ([part, content]) => h(`span.cell-${part}`, content);
    return h('div.document-row', Object.entries(cells).map(cell));
  }

  function showSelection() {
    selection.hidden = selected.size === 0;
    replace(count, t('documents.selected', { count: selected.size }));
  }

  async function erase() {
    const text = t('documents.delete_text', { count: selected.size });
    let done = 0;
    await confirmed(t('documents.delete'), text, async () => {
      for (const id of selected) {
        await send('DELETE', `${path}/${id}`).catch((error) => {
          if (error.status !== 404) throw error;
        });
        selected.delete(id);
        done += 1;
      }
    });
    if (!done) return;
    announce(t('documents.deleted', { count: done }));
    showSelection();
    await reload();
    search.focus();
  }

  /** Of many that come at once, the list is read again once in a while, and not under somebody's hands. */
  function renew() {
    renewing = 0;
    if (place.contains(document.activeElement)) renewing = setTimeout(renew, RENEWAL_MS);
    else if (!signal.aborted) reload();
  }

  onStored(() => (renewing ||= setTimeout(renew, RENEWAL_MS)));
  NARROW.addEventListener('change', () => reload(), { signal });
  await reload();
}

function nothing() {
  if (!can('writer')) return empty(t('documents.empty_reader'));
  const formats = h('p.hint', t('documents.formats'));
  return empty(t('documents.empty'), formats);
}

/** Returns what reads a list, also from its middle. Pages begin after documents, so that none is lost or repeated. */
function pager(path, query, signal) {
  const cursors = new Map([[0, null]]); // by the position of the page that begins there
  return async (from, to) => {
    const documents = [];
    let total = null;
    // The box ends a page early where documents have much metadata.
    for (let at = from; at < to; ) {
      const known = Math.max(...[...cursors.keys()].filter((each) => each <= at));
      const place = { after: cursors.get(known), skip: at - known, limit: to - at };
      const page = await get(path, { query: { ...query, ...place }, signal });
      total ??= page.total;
      documents.push(...page.documents);
      at += page.documents.length;
      if (page.next === null) break;
      cursors.set(at, page.next);
    }
    return { documents, total };
  };
}
