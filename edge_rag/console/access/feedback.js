/** What people think of answers, the newest first. */

import { get, send } from '../core/api.js';
import { attempt, badge, button, confirm, empty, icon, select } from '../core/controls.js';
import { h, replace, untrusted, visible } from '../core/dom.js';
import { href } from '../core/router.js';
import { ago, dateTime, t } from '../core/text.js';

const PATH = '/api/v1/feedback';
const PAGE = 50;

/** Shows feedback, a page at a time. */
export async function show(container, signal) {
  const list = h('div', { class: 'stack' });
  const choose = () => attempt(() => page(null));
  const choice = select(
    ['', 'down', 'up'].map((value) => ({ value, text: t(`feedback.only_${value || 'all'}`) })),
    { 'aria-label': t('feedback.show'), on: choose },
  );

  async function page(after) {
    const found = await get(PATH, { query: { rating: choice.value, after, limit: PAGE }, signal });
    const reload = () => page(after);
    const { up = 0, down = 0 } = found.counts;
    const items = found.feedback.map((each) => item(each, reload));
    replace(
      list,
      h('p', {}, t('feedback.counts', { up, down })),
      items.length ? h('ul', { class: 'stack' }, items) : empty(t(after ? 'feedback.no_more' : 'feedback.none')),
      h(
        'p',
        { class: 'row' },
        after && button(t('feedback.newest'), { icon: 'up', on: () => turn(null) }),
        found.next && button(t('feedback.older'), { icon: 'down', on: () => turn(found.next) }),
      ),
    );
  }

  async function turn(after) {
    await attempt(() => page(after));
    container.scrollIntoView({ block: 'start' });
    list.querySelector('button')?.focus({ preventScroll: true });
  }

  await page(null);
  replace(container, h('p', {}, choice), list);
}

function item(given, reload) {
  const liked = given.rating === 'up';
  const text = ['question', 'answer'].filter((name) => given[name]).map((name) => [
    h('dt', {}, t(`feedback.${name}`)),
    h('dd', { dir: 'auto' }, lines(given[name])),
  ]);
  return h(
    'li',
    { class: 'card feedback-item' },
    h(
      'div',
      { class: 'row spread' },
      h(
        'span',
        { class: 'row' },
        icon(liked ? 'thumbs_up' : 'thumbs_down'),
        badge(t(`feedback.${given.rating}`), liked ? 'good' : 'bad'),
        untrusted(given.client),
        h('time', { datetime: given.given_at, title: dateTime(given.given_at) }, ago(given.given_at)),
        given.collection && h('span', {}, t('feedback.in'), ' ', untrusted(given.collection)),
      ),
      h(
        'span',
        { class: 'row' },
        h('a', { class: 'button quiet', href: href('box', 'requests', given.request_id) }, t('feedback.trail')),
        button(t('feedback.delete'), { kind: 'quiet', icon: 'trash', on: () => remove(given, reload) }),
      ),
    ),
    given.note && h('blockquote', { dir: 'auto' }, lines(given.note)),
    text.length ? h('dl', {}, text) : h('p', { class: 'hint' }, t('feedback.without_text')),
  );
}

/** Returns a text of several lines in which nothing invisible is left to change what the others look like. */
function lines(text) {
  return text.split('\n').map(visible).join('\n');
}

async function remove(given, reload) {
  const asked = { title: t('feedback.delete_title'), text: t('feedback.delete_text'), action: t('feedback.delete') };
  if (!(await confirm({ ...asked, danger: true }))) return;
  await attempt(async () => {
    await send('DELETE', `${PATH}/${given.id}`);
    await reload();
  });
}
