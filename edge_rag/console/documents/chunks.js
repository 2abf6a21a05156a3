/** How a document was cut: its text in chunks, and what the indexes hold of each. */

import { get } from '../core/api.js';
import { badge, errorBox, spinner, table } from '../core/controls.js';
import { h, loadStyle, replace, untrusted } from '../core/dom.js';
import { number, t } from '../core/text.js';
import { pager } from './pages.js';

const PAGE = 50;

/** Shows the chunks of a document, which is given by its name or id. */
export async function chunksPanel(container, { collection, document, signal }) {
  await loadStyle('documents/panels.css');
  const path = `/api/v1/collections/${encodeURIComponent(collection)}/chunks`;
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

  /** Fills an element with what is read, or tells why it cannot be. */
  async function fill(element, tag, read) {
    replace(element, h(tag, {}, spinner()));
    try {
      replace(element, await read());
    } catch (error) {
      if (!signal.aborted) replace(element, h(tag, {}, errorBox(error, () => fill(element, tag, read))));
    }
  }

  const show = () => fill(list, 'li', async () => {
    const after = begins.at(-1);
    const found = await get(path, { query: { document, after, limit: PAGE }, signal });
    const { chunks, document: { chunks: count }, chunk_tokens: size } = found;
    ({ next } = found);
    replace(facts, t('chunks.facts', { count }), size && `, ${t('chunks.size', { size })}`);
    const from = (after ?? -1) + 2;
    pages.set({ from, to: from + chunks.length - 1, count });
    return chunks.map(row);
  });

  function row({ before, headings, position, page, tokens, start, end, language, indexed, text }) {
    const held = h('div', {});
    const caption = t('chunks.held', { position: position + 1 });
    const toggle = () => held.firstChild || fill(held, 'div', () => terms(position, caption));
    const range = `${number(start)}–${number(end)}`;
    const facts = [page && t('chunks.page', { page }), t('chunks.tokens', { count: tokens }), range, language];
    return h(
      'li',
      { class: 'chunk' },
      before.trim() && h('p', { class: 'chunk-between' }, t('chunks.between'), ' ', before.trim()),
      h('div', { class: 'row' },
        h('strong', {}, t('chunks.number', { position: position + 1 })),
        h('span', { class: 'hint' }, facts.filter(Boolean).join(' · ')),
        indexed ? badge(t('chunks.indexed'), 'good') : badge(t('chunks.not_indexed'), 'warn')),
      headings.length > 0 && h('p', { class: 'hint' }, t('chunks.headings'), ' ', untrusted(headings.join(' › '))),
      h('p', { class: 'chunk-text', dir: 'auto', lang: language }, text),
      h('details', { on: { toggle } }, h('summary', {}, caption), held),
    );
  }

  async function terms(position, caption) {
    const found = await get(`${path}/${position}/terms`, { query: { document }, signal });
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
    const count = found.left_out;
    return [table({ caption, columns, rows, hideCaption: true }), count > 0 && t('chunks.left_out', { count })];
  }

  replace(container, facts, list, pages);
  await show();
}
