/** A document as text or as pages, with a range of it marked. */

import { get } from '../core/api.js';
import { button, copied, errorBox, icon, iconButton, notice, spinner } from '../core/controls.js';
import { announce, h, replace, shortcuts, successive, visible } from '../core/dom.js';
import { href } from '../core/router.js';
import { t } from '../core/text.js';
import { pageSource } from './page_source.js';
import { textSource } from './text_source.js';

const KINDS = ['page', 'text'];
let preferred = 'page'; // how documents with pages are shown, as chosen last

/**
 * Shows a document in a container.
 * @param {object} options `document` is its id or name, `start` and `end` are in code points, the range is looked for
 *     from `page` on; with `quote` there are buttons to copy it; `onPlace` is told headings and page of the range.
 */
export function documentReader(container, { collection, document: name, start, end, page, quote, signal, ...more }) {
  const { actions = h('div.source-bar'), keys = container, onPlace = () => {} } = more;
  const range = end > start ? { start, end } : { start: 0, end: 1 };
  const why = h('p.source-why', { hidden: true });
  const content = h('div.source-content', spinner());
  const switches = KINDS.map((kind) => button(t(`source.as_${kind}`), { kind: 'quiet', on: () => choose(kind) }));
  let cited = end > start ? range : null;
  const begin = successive(signal);
  let info = null;
  container.classList.add('source-reader');
  replace(actions);
  replace(container, actions.isConnected ? null : actions, why, content);

  /** Shows the document as text or as pages; a reason says why it is not shown as pages. */
  function show(kind, reason = '') {
    why.hidden = !reason;
    replace(why, icon('warning'), reason);
    if (reason) announce(reason);
    switches.forEach((each, at) => (each.ariaPressed = KINDS[at] === kind));
    const options = { collection, info, cited, signal: begin() };
    const failed = (error) => show('text', t('source.no_pages', { reason: visible(error.message) }));
    // A passage's page is where it begins; that of the range is known when it was found.
    const located = (found) => onPlace(info.headings, (info.page = found));
    const ofPages = { page: page ?? info.page ?? 1, quote, keys, located, failed };
    const view = kind === 'page' ? pageSource({ ...options, ...ofPages }) : textSource(options);
    const focused = content.contains(document.activeElement);
    replace(content, view);
    if (focused) content.querySelector('[tabindex="0"]').focus({ preventScroll: true });
  }

  function choose(kind) {
    preferred = kind;
    show(kind);
  }

  const address = () => href('documents', collection, info.id, { at: range.start, end: range.end });

  async function copy() {
    const where = [info.name, ...info.headings.slice(-1)];
    if (info.page !== null) where.push(t('source.page', { page: info.page }));
    const cite = `“${quote}”\n— ${where.join(', ')}\n${new URL(address(), location.href)}`;
    notice(await copied(cite, t('source.copied')));
  }

  function link(label, picture, address, props) {
    return h('a.button.quiet.icon-only', { href: address, 'aria-label': label, title: label, ...props }, icon(picture));
  }

  async function load() {
    try {
      info = await get(`/documents/${encodeURIComponent(name)}`, { query: { collection, ...range }, signal });
    } catch (error) {
      if (!signal.aborted) replace(content, errorBox(error, load));
      return;
    }
    const { media_type, pages, original_url: original, text } = info;
    const paged = media_type === 'application/pdf' && pages !== null;
    if (paged && original) {
      actions.append(h('div.source-switch', { role: 'group', 'aria-label': t('source.shown_as') }, switches));
      shortcuts(keys, { t: () => choose(switches[0].ariaPressed === 'true' ? 'text' : 'page') }, signal);
    }
    if (quote !== undefined) {
      shortcuts(keys, { c: copy }, signal);
      const { pathname, search } = new URL(original ?? '', location);
      const links = [
        iconButton(t('source.copy'), 'copy', { on: copy }),
        original && link(t('source.download'), 'download', pathname + search, { download: true }),
        link(t('source.open'), 'file', address()),
      ];
      actions.append(h('div.source-links', links));
    }
    onPlace(info.headings, info.page);
    if (quote !== undefined && !text.startsWith(quote)) {
      cited = null; // the text is another one than was cited
      show('text', t('source.changed', { quote: visible(quote) }));
    } else if (paged && !original) show('text', t('source.no_original'));
    else show(paged ? preferred : 'text');
  }
  load();
}
