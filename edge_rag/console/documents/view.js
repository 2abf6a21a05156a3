/** Documents: the collections, the documents of one, and tabs for its jobs, test questions and settings. */

import { get, send } from '../core/api.js';
import { badge, button, confirm, dialog, empty, errorBox, failure, field, icon, notice, select, tabs } from '../core/controls.js';
import { announce, h, loadStyle, replace, untrusted, visible } from '../core/dom.js';
import { go, href, rewrite } from '../core/router.js';
import { can, chooseCollection, chosenCollection, collections } from '../core/session.js';
import { ago, bytes, dateTime, number, t } from '../core/text.js';
import { virtualList } from '../core/virtual_list.js';
import { dropArea, picker, uploadList } from './upload_list.js';
import { add, onUploads, pending } from './uploads.js';

const SEARCH_MS = 250;
const RENEWAL_MS = 1000;
const MOST_SELECTED = 500;
const MOST_REQUESTED = 1000; // documents of a page of the API
const NARROW = matchMedia('(max-width: 60rem)');
const ROW = { wide: 56, narrow: 124 }; // height, CSS pixels
const ORDERS = [
  ['name', 'name', false],
  ['name_down', 'name', true],
  ['newest', 'stored', true],
  ['oldest', 'stored', false],
  ['largest', 'size', true],
  ['smallest', 'size', false],
];

/** Fills the view. `parts` are a collection, and a document of it. */
export async function show(container, { parts, query, signal }) {
  const [given, document] = parts;
  const styled = loadStyle('documents/documents.css');
  if (document) {
    const [{ documentView }] = await Promise.all([import('./document.js'), styled]);
    return documentView(container, { collection: given, document, query, signal });
  }
  const [known] = await Promise.all([collections({ fresh: true }), styled]);
  const collection = given ?? (await chosenCollection()) ?? 'default';
  const info = known.find((each) => each.name === collection);
  if (info) chooseCollection(collection);
  const upload = (files) => add(files, collection);
  const chooser = collectionChooser(known, collection);
  replace(
    container,
    h('div', { class: 'row spread documents-head' }, h('h1', {}, t('app.documents')), chooser),
    info && about(info),
    can('writer') && uploadList(signal),
  );
  if (can('writer')) dropArea(container, { text: t('documents.drop', { name: visible(collection) }), on: upload, signal });
  const list = (panel, shown) => listPanel(panel, { collection, info, upload, signal: shown });
  const tests = async (panel, shown) =>
    (await import('./test_questions.js')).testQuestionsPanel(panel, { collection, signal: shown });
  const settings = async (panel, shown) => (await import('./settings.js')).settingsPanel(panel, { collection, signal: shown });
  const items = [
    { id: 'documents', text: t('app.documents'), show: list },
    can('writer') && { id: 'jobs', text: t('documents.jobs'), show: jobs },
    info && { id: 'tests', text: t('tests.list'), show: tests },
    info && can('admin') && { id: 'settings', text: t('documents.settings'), show: settings },
  ].filter(Boolean);
  const on = (id) => rewrite(href('documents', collection, id === 'documents' ? {} : { tab: id }));
  container.append(tabs(items, { label: t('documents.parts'), selected: query.tab, on, signal }));
  return t('app.documents');
}

async function jobs(panel, signal) {
  const { jobsPanel } = await import('./jobs.js');
  return jobsPanel(panel, { signal });
}

function collectionChooser(known, collection) {
  const options = known.map(({ name, settings, documents }) => ({
    value: name,
    text: `${settings.title || name} (${number(documents)})`,
  }));
  if (!known.some((each) => each.name === collection)) options.unshift({ value: collection, text: `${collection} (0)` });
  const chosen = select(options, { value: collection, on: (name) => go(href('documents', name)) });
  const create = can('admin') && button(t('documents.create'), { icon: 'add', on: createCollection });
  const label = h('label', {}, h('span', {}, t('documents.collection')), ' ', chosen);
  return h('div', { class: 'row' }, label, create);
}

function about(info) {
  const facts = [t('documents.count', { count: info.documents }), bytes(info.size_bytes)];
  if (info.ingested_at) facts.push(t('documents.last', { time: ago(info.ingested_at) }));
  const text = info.settings.description;
  return h('p', { class: 'hint documents-about' }, facts.join(' · '), text && [' · ', untrusted(text)]);
}

async function createCollection() {
  const title = h('input', { required: true, maxlength: '256', autocomplete: 'off' });
  const name = h('input', { required: true, maxlength: '64', autocomplete: 'off', pattern: '[a-z0-9_\\-]+' });
  const text = h('textarea', { rows: '3', maxlength: '1024' });
  const nameField = field(t('documents.new_name'), name, { hint: t('documents.new_name_hint') });
  title.addEventListener('input', () => {
    const plain = title.value.normalize('NFKD').toLowerCase().replace(/\p{M}/gu, '');
    name.value = plain.replace(/[^a-z0-9_]+/g, '-').replace(/^-+|-+$/g, '');
  });
  const check = async () => {
    const settings = { title: title.value.trim(), description: text.value.trim() };
    try {
      await send('POST', '/api/v1/collections', { name: name.value, settings });
      return true;
    } catch (error) {
      nameField.setError(failure(error));
      name.focus();
      return false;
    }
  };
  const content = [field(t('documents.new_title'), title), nameField, field(t('documents.new_description'), text)];
  const actions = [{ text: t('documents.create'), kind: 'primary', value: true, check }];
  if (await dialog({ title: t('documents.create'), content, actions })) go(href('documents', name.value));
}

/** The list of documents with its tools. */
async function listPanel(panel, { collection, info, upload, signal }) {
  const path = `/api/v1/collections/${encodeURIComponent(collection)}/documents`;
  const state = { search: '', filter: '', order: ORDERS[0] };
  const selected = new Map(); // id -> document
  const pick = can('writer') && [
    picker(t('documents.add_files'), { kind: 'primary', on: upload }),
    picker(t('documents.add_folder'), { folder: true, on: upload }),
  ];
  const hint = t('documents.search_hint');
  const search = h('input', { type: 'search', maxlength: '256', placeholder: hint, 'aria-label': t('documents.search') });
  const filter = h('input', { maxlength: '4096', autocomplete: 'off', spellcheck: 'false' });
  const filterField = field(t('documents.filter'), filter, { hint: t('documents.filter_hint') });
  const orders = ORDERS.map(([id]) => ({ value: id, text: t(`documents.order_${id}`) }));
  const order = select(orders, {
    'aria-label': t('documents.order'),
    on: (id) => reload({ order: ORDERS.find(([each]) => each === id) }),
  });
  const found = h('p', { class: 'hint', role: 'status' });
  const marked = h('div', { class: 'row selection', hidden: true });
  const place = h('div', {});
  const advanced = h('details', { class: 'documents-filter' }, h('summary', {}, t('documents.filter_summary')), filterField);
  const tools = h('div', { class: 'row documents-tools' }, h('div', { class: 'search' }, icon('search'), search), order, pick);
  replace(panel, tools, advanced, marked, found, place);
  if (!info?.documents) {
    tools.replaceChildren(...[pick].flat().filter(Boolean));
    advanced.hidden = true;
  }

  let list = null;
  let asked = 0;
  let timer = 0;

  /** Reads the list anew: with changes of what is asked for from its top, else where it is. */
  async function reload(changes = null) {
    if (!info) return void replace(place, nothing());
    Object.assign(state, changes);
    asked += 1;
    const mine = asked;
    const pages = pager(path, state, signal);
    let first;
    try {
      first = await pages.load(0, 100);
      filterField.setError('');
    } catch (error) {
      if (signal.aborted || mine !== asked) return;
      if (error.param === 'filter') filterField.setError(visible(error.message));
      else if (error.code === 'collection_not_found') replace(place, nothing());
      else replace(place, errorBox(error, () => reload()));
      return;
    }
    if (mine !== asked || signal.aborted) return;
    const { total } = pages;
    const narrowed = Boolean(state.search || state.filter);
    replace(found, narrowed ? t('documents.found', { count: total }) : '');
    if (total === 0) {
      list = null;
      replace(place, narrowed ? empty(t('documents.none_found')) : nothing());
      return;
    }
    let begun = first;
    list = virtualList({
      rowHeight: NARROW.matches ? ROW.narrow : ROW.wide,
      count: total,
      label: t('app.documents'),
      render: row,
      failed: (error) => notice(failure(error), { kind: 'error' }),
      async load(from, to) {
        const ready = from === 0 && begun;
        begun = null;
        return ready || pages.load(from, to);
      },
    });
    const top = changes ? 0 : (place.querySelector('.virtual')?.scrollTop ?? 0);
    replace(place, head(), list.element);
    list.element.scrollTop = top;
  }

  function nothing() {
    if (!can('writer')) return empty(t('documents.empty_reader'));
    const formats = h('p', { class: 'hint' }, t('documents.formats'));
    return h('div', { class: 'empty drop-here' }, icon('upload'), h('p', {}, t('documents.empty')), formats);
  }

  function row(each) {
    const name = each.name.split('/').at(-1);
    const box = h('input', { type: 'checkbox', 'aria-label': t('documents.select', { name: visible(each.name) }) });
    box.checked = selected.has(each.id);
    box.disabled = !can('writer');
    box.addEventListener('change', () => {
      if (box.checked && selected.size < MOST_SELECTED) selected.set(each.id, each.name);
      else selected.delete(each.id);
      box.checked = selected.has(each.id);
      showSelection();
    });
    const coming = pending(collection, each.name);
    return h(
      'div',
      { class: 'document-row' },
      h('span', { class: 'cell-box' }, box),
      h(
        'span',
        { class: 'cell-name' },
        h('a', { href: href('documents', collection, each.id), title: visible(each.name) }, untrusted(each.title || name)),
        (each.title || name !== each.name) && h('span', { class: 'hint' }, untrusted(each.name)),
      ),
      h('span', { class: 'cell-kind' }, badge(formatOf(each))),
      h('span', { class: 'cell-size' }, bytes(each.size_bytes)),
      h('span', { class: 'cell-pages' }, each.pages === null ? '' : t('documents.pages', { count: each.pages })),
      h('time', { class: 'cell-date', datetime: each.ingested_at, title: dateTime(each.ingested_at) }, ago(each.ingested_at)),
      h('span', { class: 'cell-state' }, coming ? badge(t('documents.is_replacing'), 'warn') : stateOf(each)),
    );
  }

  function showSelection() {
    marked.hidden = selected.size === 0;
    const drop = async () => {
      const count = selected.size;
      const text = t('documents.delete_text', { count });
      if (!(await confirm({ title: t('documents.delete'), text, action: t('documents.delete'), danger: true }))) return;
      await deleteAll();
    };
    replace(
      marked,
      h('span', {}, t('documents.selected', { count: selected.size })),
      button(t('documents.delete'), { kind: 'danger', icon: 'trash', on: drop }),
      button(t('documents.select_none'), {
        kind: 'quiet',
        on: () => {
          selected.clear();
          showSelection();
          list?.refresh();
        },
      }),
    );
  }

  async function deleteAll() {
    let done = 0;
    try {
      for (const id of [...selected.keys()]) {
        await send('DELETE', `${path}/${encodeURIComponent(id)}`).catch((error) => {
          if (error.status !== 404) throw error;
        });
        selected.delete(id);
        done += 1;
      }
    } catch (error) {
      notice(failure(error), { kind: 'error' });
    }
    if (done) announce(t('documents.deleted', { count: done }));
    showSelection();
    await reload();
    search.focus();
  }

  search.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(() => reload({ search: search.value.trim() }), SEARCH_MS);
  });
  filter.addEventListener('change', () => reload({ filter: filter.value.trim() }));
  NARROW.addEventListener('change', () => reload(), { signal });
  let renewing = 0;
  onUploads((stored) => {
    if (stored?.about.collection !== collection || renewing) return;
    // Of many that come at once, the list is read again once in a while, and not under somebody's hands.
    renewing = setTimeout(function renew() {
      renewing = signal.aborted || !place.contains(document.activeElement) ? 0 : setTimeout(renew, RENEWAL_MS);
      if (renewing || signal.aborted) return;
      if (!info?.documents) go(href('documents', collection), { replace: true });
      else reload();
    }, RENEWAL_MS);
  }, signal);
  await reload();
}

/** Reads a list page by page, also from its middle. Pages begin after documents, so that none is lost or repeated. */
function pager(path, { search, filter, order: [, order, descending] }, signal) {
  const places = new Map([[0, null]]); // position -> the cursor of the page that begins there
  const pages = {
    total: 0,
    async load(from, to) {
      const items = [];
      while (items.length < to - from) {
        const at = from + items.length;
        const known = Math.max(...[...places.keys()].filter((each) => each <= at));
        const limit = Math.min(MOST_REQUESTED, to - at);
        const place = { after: places.get(known), limit, skip: at - known || null };
        const query = { search, filter, order, descending: descending || null, ...place };
        const { documents, next, total } = await get(path, { query, signal });
        if (total !== null) pages.total = total;
        items.push(...documents);
        if (next === null) break;
        places.set(at + documents.length, next);
      }
      return items;
    },
  };
  return pages;
}

function head() {
  const names = ['box', 'name', 'kind', 'size', 'pages', 'date', 'state'];
  const cells = names.map((each) => h('span', { class: `cell-${each}` }, each === 'box' ? '' : t(`documents.column_${each}`)));
  return h('div', { class: 'document-row document-head', 'aria-hidden': 'true' }, cells);
}

/** Returns the format of a document in a word. */
export function formatOf({ name, media_type: type }) {
  const ending = /\.([a-z0-9]{1,8})$/i.exec(name)?.[1];
  return (ending ?? type.split('/').at(-1)).toUpperCase();
}

/** Returns whether a document can be found. */
export function stateOf({ chunks }) {
  return chunks > 0 ? badge(t('documents.is_searchable'), 'good') : badge(t('documents.is_silent'), 'warn');
}
