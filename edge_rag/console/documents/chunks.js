/** How a document was cut: its text in chunks, and what the indexes hold of each. */

import { get } from '../core/api.js';
import { badge, errorBox, spinner, table } from '../core/controls.js';
import { h, loadStyle, replace, untrusted } from '../core/dom.js';
import { number, t } from '../core/text.js';
import { pager } from './pages.js';

const PAGE = 50;

/**
 * Shows the chunks of a document.
 * @param {HTMLElement} container
 * @param {{collection: string, document: string|{id: string}, signal: AbortSignal}} options The document or its id.
 */
export async function chunksPanel(container, { collection, document, signal }) {
  await loadStyle('documents/panels.css');
  const place = `/api/v1/collections/${encodeURIComponent(collection)}/chunks`;
  const about = { document: document.id ?? document };
  const begins = [null]; // position before each page up to the one shown
  let next = null;
  const facts = h('p', { class: 'hint' });
  const list = h('ol', { class: 'chunks', tabindex: '-1', 'aria-label': t('chunks.list') });
  const pages = pager(t('chunks.list'), async (step) => {
    if (step < 0) begins.pop();
    else begins.push(next);
    await show();
    list.focus();
  });

  async function show() {
    replace(list, h('li', {}, spinner()));
    try {
      const after = begins.at(-1);
      const { chunks, document: info, chunk_tokens: size, next: last } = await get(place, {
        query: { ...about, after, limit: PAGE },
        signal,
      });
      next = last;
      const count = info.chunks;
      replace(facts, t('chunks.facts', { count }), size && `, ${t('chunks.size', { size })}`);
      replace(list, chunks.map(row));
      const from = (after ?? -1) + 2;
      pages.set({ from, to: from + chunks.length - 1, count }, begins.length > 1, next !== null);
    } catch (error) {
      if (!signal.aborted) replace(list, h('li', {}, errorBox(error, show)));
    }
  }

  function row(chunk) {
    const { before, headings, position } = chunk;
    const held = h('div', {});
    const open = () => more.open && !held.firstChild && hold(held, position);
    const title = h('summary', {}, t('chunks.held', { position: position + 1 }));
    const more = h('details', { on: { toggle: open } }, title, held);
    const facts = [chunk.page && t('chunks.page', { page: chunk.page }), t('chunks.tokens', { count: chunk.tokens }),
      `${number(chunk.start)}–${number(chunk.end)}`, chunk.language];
    return h(
      'li',
      { class: 'chunk' },
      before.trim() && h('p', { class: 'chunk-between' }, t('chunks.between'), ' ', before.trim()),
      h('div', { class: 'row' },
        h('strong', {}, t('chunks.number', { position: position + 1 })),
        h('span', { class: 'hint' }, facts.filter(Boolean).join(' · ')),
        chunk.indexed ? badge(t('chunks.indexed'), 'good') : badge(t('chunks.not_indexed'), 'warn')),
      headings.length > 0 && h('p', { class: 'hint' },
        t('chunks.headings'), ' ', headings.map((each, at) => [at > 0 && ' › ', untrusted(each)])),
      h('p', { class: 'chunk-text', dir: 'auto', lang: chunk.language }, chunk.text),
      more,
    );
  }

  async function hold(element, position) {
    replace(element, spinner());
    try {
      const found = await get(`${place}/${position}/terms`, { query: about, signal });
      const named = ['word', 'term', 'in_text', 'in_headings', 'in_chunks'];
      const columns = named.map((each) => ({ text: t(`chunks.${each}`) }));
      columns[2].kind = columns[4].kind = 'number';
      const rows = found.terms.map((each) => [
        untrusted(each.word),
        each.indexed ? untrusted(each.term) : badge(t('chunks.missing'), 'bad'),
        number(each.occurrences),
        each.in_headings && '✓',
        `${number(each.chunks)} / ${number(found.collection_chunks)}`,
      ]);
      const caption = t('chunks.held', { position: position + 1 });
      const left = found.left_out;
      const more = left > 0 && t('chunks.left_out', { count: left });
      replace(element, table({ caption, columns, rows, hideCaption: true }), more);
    } catch (error) {
      if (!signal.aborted) replace(element, errorBox(error, () => hold(element, position)));
    }
  }

  replace(container, facts, list, pages);
  await show();
}
