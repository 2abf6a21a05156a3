/** A document as text or as pages, with a range of it marked; used by the source pane and by the documents view. */

import { get } from '../core/api.js';
import { button, errorBox, icon, iconButton, notice, spinner } from '../core/controls.js';
import { announce, h, loadStyle, replace, visible } from '../core/dom.js';
import { href } from '../core/router.js';
import { t } from '../core/text.js';
import { pageSource } from './page_source.js';
import { textSource } from './text_source.js';

let preferred = 'page'; // how documents with pages are shown, as chosen last

/**
 * Shows a document in a container.
 * @param {HTMLElement} container Filled by the reader.
 * @param {object} options
 * @param {string} options.collection Name of the collection.
 * @param {string} options.document Id or name of the document.
 * @param {number} [options.start] First character that is marked, in code points; without it the document is shown from
 *     its beginning.
 * @param {number} [options.end] One past the last.
 * @param {number|null} [options.page] Page on which the range is looked for first.
 * @param {string} [options.quote] The cited text, for copying.
 * @param {AbortSignal} options.signal Ends the reader.
 * @param {HTMLElement} [options.actions] Where the buttons go, with those that lead elsewhere; without it, those for the
 *     view are above the document.
 * @param {HTMLElement} [options.keys] Within what keys are heard; the container by default.
 * @param {(headings: string[], page: number|null) => void} [options.onPlace] Told where in the document the range is.
 */
export function documentReader(container, { collection, document: name, start, end, signal, ...more }) {
  const { page = null, quote, keys = container, onPlace = () => {} } = more;
  const ranged = start !== undefined && end !== undefined && end > start;
  const range = { start: ranged ? start : 0, end: ranged ? end : 1 };
  const actions = more.actions ?? h('div', { class: 'source-actions' });
  const why = h('p', { class: 'source-why', hidden: true });
  const content = h('div', { class: 'source-content' }, spinner());
  let shown = new AbortController();
  let view = null;
  let info = null;
  let switches = [];
  let changed = false; // whether the text is another one than was cited
  container.classList.add('source-reader');
  replace(container, more.actions ? null : actions, why, content);
  if (more.actions) replace(actions);

  /** Shows the document as text or as pages; a reason says why it is not shown as pages. */
  function show(kind, reason = '') {
    shown.abort();
    shown = new AbortController();
    const options = {
      collection,
      info,
      cited: ranged && !changed ? range : null,
      signal: AbortSignal.any([signal, shown.signal]),
    };
    why.hidden = !reason;
    replace(why, reason && icon('warning'), reason);
    if (reason) announce(reason);
    for (const each of switches) each.setAttribute('aria-pressed', String(each.dataset.kind === kind));
    if (kind === 'page') {
      const failed = (error) => show('text', t('source.no_pages', { reason: visible(error.message) }));
      // A passage's page is where it begins; that of the range is known when it was found.
      const located = (found) => onPlace(info.headings, (info.page = found));
      view = pageSource({ ...options, page: page ?? info.page ?? 1, quote, located, failed });
    } else {
      view = textSource(options);
    }
    const focused = content.contains(document.activeElement);
    replace(content, view.element);
    if (focused) content.querySelector('[tabindex="0"]').focus({ preventScroll: true });
  }

  function choose(kind) {
    preferred = kind;
    show(kind);
  }

  async function copy() {
    const { name, headings, page: on } = info;
    const where = [name, ...headings.slice(-1), on === null ? '' : t('source.page', { page: on })];
    const address = new URL(href('documents', collection, info.id, { at: range.start, end: range.end }), location.href);
    const text = `“${quote}”\n— ${where.filter(Boolean).join(', ')}\n${address}`;
    if (await copied(text)) notice(t('source.copied'));
    else notice(t('source.not_copied'), { kind: 'error' });
  }

  function fill() {
    const paged = info.media_type === 'application/pdf' && info.pages !== null;
    const kinds = [
      ['page', 'source.as_page'],
      ['text', 'source.as_text'],
    ];
    switches = kinds.map(([kind, label]) =>
      button(t(label), { kind: 'quiet', on: () => choose(kind), 'data-kind': kind, 'aria-keyshortcuts': 't' }),
    );
    const original = info.original_url && new URL(info.original_url);
    const open = href('documents', collection, info.id, { at: range.start, end: range.end });
    const link = (label, picture, props) =>
      h('a', { class: 'button quiet icon-only', 'aria-label': label, title: label, ...props }, icon(picture));
    replace(
      actions,
      paged &&
        info.original_url &&
        h('div', { class: 'source-switch', role: 'group', 'aria-label': t('source.shown_as') }, switches),
      h(
        'div',
        { class: 'source-links' },
        quote !== undefined && iconButton(t('source.copy'), 'copy', { on: copy, 'aria-keyshortcuts': 'c' }),
        more.actions &&
          original &&
          link(t('source.download'), 'download', { href: original.pathname + original.search, download: true }),
        more.actions && link(t('source.open'), 'file', { href: open }),
      ),
    );
    onPlace(info.headings, info.page);
    changed = quote !== undefined && !info.text.startsWith(quote);
    if (changed) show('text', t('source.changed', { quote: visible(quote) }));
    else if (!paged) show('text');
    else if (!info.original_url) show('text', t('source.no_original'));
    else show(preferred);
  }

  async function load() {
    await loadStyle('source/source.css');
    try {
      const query = { collection, ...range };
      info = await get(`/documents/${encodeURIComponent(name)}`, { query, signal });
      fill();
    } catch (error) {
      if (!signal.aborted) replace(content, errorBox(error, load));
    }
  }
  load();

  function onKey(event) {
    if (!info || !isShortcut(event)) return;
    if (event.key === 'c' && quote !== undefined) copy();
    else if (event.key === 't' && switches[0]?.isConnected) {
      choose(switches.find((each) => each.getAttribute('aria-pressed') === 'false').dataset.kind);
    } else if (!view?.onKey?.(event.key)) return;
    event.preventDefault();
  }
  keys.addEventListener('keydown', onKey, { signal });
}

/** Whether a key is pressed alone, and is not typed into a field. */
export function isShortcut(event) {
  const { defaultPrevented, ctrlKey, metaKey, altKey, target } = event;
  return !(defaultPrevented || ctrlKey || metaKey || altKey || target.matches('input, select, textarea'));
}

/** Copies a text, also where browsers give no clipboard: without TLS. Resolves to whether it is copied. */
async function copied(text) {
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(
      () => true,
      () => false,
    );
  }
  const focused = document.activeElement;
  const area = h('textarea', { class: 'sr-only', 'aria-hidden': 'true', tabindex: '-1' });
  area.value = text;
  document.body.append(area);
  area.select();
  const done = document.execCommand('copy');
  area.remove();
  focused?.focus();
  return done;
}
