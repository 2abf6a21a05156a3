/** How a document was cut: its text in chunks, and what the indexes hold of each. */

import { get } from '../core/api.js';
import { attempt, badge, columns, errorBox, spinner, table } from '../core/controls.js';
import { h, loadStyle, replace, untrusted } from '../core/dom.js';
import { number, t } from '../core/text.js';
import { pager } from './pages.js';

const PAGE = 50;

/** Shows the chunks of a document, which is given by its name or id. */
export async function chunksPanel(container, { collection, document, signal }) {
  await loadStyle('documents/panels.css');
  const path = `/api/v1/collections/${encodeURIComponent(collection)}/chunks`;
  let begins = []; // position before each page up to the one shown, but for the first
  let next = null;
  const facts = h('p.hint');
  const list = h('ol.chunks', { tabindex: '-1', 'aria-label': t('chunks.list') });
  const pages = pager(t('chunks.list'), (step) => attempt(async () => {
    await show(step < 0 ? begins.slice(0, -1) : [...begins, next]);
    list.focus();
  }));

  async function show(places) {
    const after = places.at(-1) ?? null;
    const found = await get(path, { query: { document, after, limit: PAGE }, signal });
    const { chunks, document: { chunks: count }, chunk_tokens: size } = found;
    ({ next } = found);
    begins = places;
    replace(facts, t('chunks.facts', { count }), size && `, ${t('chunks.size', { size })}`);
    const from = (after ?? -1) + 2;
    pages.set({ from, to: from + chunks.length - 1, count });
    replace(list, chunks.map(row));
  }

  function row({ before, headings, position, page, tokens, start, end, language, indexed, text }) {
    const held = h('div');
    const toggle = async () => {
      if (held.firstChild) return;
      replace(held, spinner());
      replace(held, await terms(position).catch(errorBox));
    };
    const range = `${number(start)}–${number(end)}`;
    const about = [page && t('chunks.page', { page }), t('chunks.tokens', { count: tokens }), range, language];
    return h('li.chunk',
      before.trim() && h('p.chunk-between', t('chunks.between'), ' ', before.trim()),
      h('div.row',
        h('strong', t('chunks.number', { position: position + 1 })),
        h('span.hint', about.filter(Boolean).join(' · ')),
        indexed ? badge(t('chunks.indexed'), 'good') : badge(t('chunks.not_indexed'), 'warn')),
      headings.length > 0 && h('p.hint', t('chunks.headings'), ' ', untrusted(headings.join(' › '))),
      h('p.chunk-text', { dir: 'auto', lang: language }, text),
      h('details', { on: { toggle } }, h('summary', t('chunks.held', { position: position + 1 })), held));
  }

  async function terms(position) {
    const found = await get(`${path}/${position}/terms`, { query: { document }, signal });
    const heads = columns(['chunks.word', 'chunks.term', 'chunks.in_headings'], ['chunks.in_text', 'chunks.in_chunks']);
    const rows = found.terms.map((each) => [
      untrusted(each.word),
      each.indexed ? untrusted(each.term) : badge(t('chunks.missing'), 'bad'),
      each.in_headings && '✓',
      number(each.occurrences),
      `${number(each.chunks)} / ${number(found.collection_chunks)}`,
    ]);
    const caption = t('chunks.held', { position: position + 1 });
    const count = found.left_out;
    return [table({ caption, columns: heads, rows, hideCaption: true }), count > 0 && t('chunks.left_out', { count })];
  }

  replace(container, facts, list, pages);
  await show([]);
}
