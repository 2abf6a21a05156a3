/** What people think of answers, the newest first. */

import { get, send } from '../core/api.js';
import { attempt, badge, button, confirmed, empty, icon, select } from '../core/controls.js';
import { h, replace, untrusted, visible } from '../core/dom.js';
import { href } from '../core/router.js';
import { ago, dateTime, t } from '../core/text.js';

const PATH = '/api/v1/feedback';
const PAGE = 50;

/** Shows feedback, a page at a time. */
export async function show(container, signal) {
  const list = h('div.stack');
  const choice = select(
    ['', 'down', 'up'].map((value) => ({ value, text: t(`feedback.only_${value || 'all'}`) })),
    { 'aria-label': t('feedback.show'), on: () => attempt(() => page(null)) },
  );

  async function page(after) {
    const found = await get(PATH, { query: { rating: choice.value, after, limit: PAGE }, signal });
    const { up = 0, down = 0 } = found.counts;
    const items = found.feedback.map((each) => item(each, () => page(after)));
    replace(
      list,
      h('p', t('feedback.counts', { up, down })),
      items.length ? h('ul.stack', items) : empty(t(after ? 'feedback.no_more' : 'feedback.none')),
      found.next && button(t('feedback.older'), { icon: 'down', on: () => attempt(() => turn(found.next)) }),
    );
  }

  async function turn(after) {
    await page(after);
    choice.focus();
  }

  await page(null);
  replace(container, h('p', choice), list);
}

function item(given, reload) {
  const { id, rating, client, collection, note, given_at: at, request_id: request } = given;
  const liked = rating === 'up';
  const text = ['question', 'answer'].filter((name) => given[name]).map((name) => [
    h('dt', t(`feedback.${name}`)),
    h('dd', { dir: 'auto' }, lines(given[name])),
  ]);
  const erase = () => send('DELETE', `${PATH}/${id}`).then(reload);
  const remove = () =>
    confirmed(t('feedback.delete'), t('feedback.delete_text'), erase, t('feedback.delete_title'));
  return h('li.card.feedback-item',
    h('div.row',
      icon(liked ? 'thumbs_up' : 'thumbs_down'),
      badge(t(`feedback.${rating}`), liked ? 'good' : 'bad'),
      untrusted(client),
      h('time', { datetime: at, title: dateTime(at) }, ago(at)),
      collection && h('span', t('feedback.in'), ' ', untrusted(collection)),
      h('a.button.quiet', { href: href('box', 'requests', request) }, t('feedback.trail')),
      button(t('feedback.delete'), { kind: 'quiet', icon: 'trash', on: remove })),
    note && h('blockquote', { dir: 'auto' }, lines(note)),
    text.length ? h('dl', text) : h('p.hint', t('feedback.without_text')));
}

/** Returns a text of several lines in which nothing invisible is left to change what the others look like. */
function lines(text) {
  return text.split('\n').map(visible).join('\n');
}
