/** Test questions of a collection: written or uploaded, run, and what search finds, and found before. */

import { events, get, send } from '../core/api.js';
import { attempt, badge, button, confirm, confirmed, dialog, empty } from '../core/controls.js';
import { failure, field, iconButton, notice, progress, spinner } from '../core/controls.js';
import { announce, h, loadStyle, replace, untrusted, visible } from '../core/dom.js';
import { href } from '../core/router.js';
import { can } from '../core/session.js';
import { ago, number, percent, t } from '../core/text.js';
import { pager } from './pages.js';

const PAGE = 50;
const LOADED = 250;
const MEASURES = ['recall_at_1', 'recall_at_5', 'recall_at_10', 'mrr'];
const CHANGES = ['worse', 'improved', 'new', 'same'];

/** Shows the test questions of a collection. */
export async function testQuestionsPanel(container, { collection, signal }) {
  await loadStyle('documents/panels.css');
  const path = `/api/v1/collections/${encodeURIComponent(collection)}/test-questions`;
  const questions = new Map(); // by id; the box bounds them to 1,000
  let run = null;
  let previous = null;
  let running = null;
  let page = 0;

  const measures = h('dl.measures');
  const state = h('p.hint');
  const bar = progress(0, t('tests.list'));
  bar.hidden = true;
  const list = h('ol.questions', { tabindex: '-1', 'aria-label': t('tests.list') });
  const start = button(t('tests.run'), { kind: 'primary', icon: 'check', on: () => (running ? running.abort() : ask()) });
  const file = h('input', { type: 'file', accept: '.csv,.tsv,.jsonl', hidden: true, on: { change: upload } });
  const pages = pager(t('tests.list'), (step) => {
    draw(page + step);
    list.focus();
  });

  async function load() {
    questions.clear();
    for (let after = ''; after !== null; ) {
      const found = await get(path, { query: { after, limit: LOADED }, signal });
      found.questions.forEach((each) => questions.set(each.id, each));
      ({ run, previous, next: after } = found);
    }
    draw(0);
  }

  function draw(at) {
    // What was not asked yet comes first, then what became worse, of each what is not found or far behind.
    const place = ({ result }) => (result ? 99 * CHANGES.indexOf(result.change) - (result.rank ?? 50) : -99);
    const ordered = [...questions.values()].sort((one, other) => place(one) - place(other));
    page = at;
    const from = page * PAGE;
    const rows = ordered.slice(from, from + PAGE).map(row);
    replace(list, rows.length ? rows : h('li', empty(t('tests.none'))));
    pages.set({ from: from + 1, to: from + rows.length, count: questions.size });
    start.disabled = !questions.size;
    replace(measures, run && MEASURES.map(measure));
    if (running) return;
    const count = (change) => ordered.filter(({ result }) => result?.change === change).length;
    const changes = { improved: count('improved'), worse: count('worse'), same: count('same') };
    if (!run) return void replace(state, t('tests.never_run'));
    replace(state, t('tests.last_run', { ago: ago(run.finished_at) }), previous && ` ${t('tests.compared', changes)}`);
  }

  function measure(name) {
    const shown = (value) => (name === 'mrr' ? number(value, 2) : percent(value));
    const value = run.summary[name];
    const before = previous?.summary[name];
    const rank = previous && shown(before);
    const moved = value === before ? `= ${rank}` : rank && t(`tests.${value > before ? 'improved' : 'worse'}`, { rank });
    return h('div.card', h('dt', t(`tests.${name}`)), h('dd', shown(value), h('small', moved)));
  }

  function row(each) {
    const { result } = each;
    const was = (rank) => (rank === null ? t('tests.not_found') : t('tests.rank', { rank }));
    const change = { worse: 'bad', improved: 'good' }[result?.change];
    const quality = { null: 'bad', 1: 'good' }[result?.rank] ?? 'warn';
    return h('li.card.question',
      h('p', h('strong', untrusted(each.question))),
      can('writer') && iconButton(t('tests.delete'), 'trash', { on: () => remove(each) }),
      h('div.row',
        result && badge(was(result.rank), quality),
        change && badge(t(`tests.${result.change}`, { rank: was(result.previous_rank) }), change),
        h('span.hint', t('tests.expected'), ' ', untrusted(each.document),
          each.text && [' · “', untrusted(each.text), '”']),
        !each.exists && badge(t('tests.no_document'), 'warn')),
      result?.hits.length > 0 && h('details', h('summary', t('tests.found')), hits(result.hits)));
  }

  function hits(found) {
    return h('ol.hits', found.map((hit, at) => {
      const link = href('documents', collection, hit.document_id, { at: hit.start, end: hit.end });
      const name = hit.document ? h('a', { href: link }, untrusted(hit.document)) : t('tests.deleted');
      const why = [
        opinion(t('tests.meaning'), hit.dense_rank, hit.dense_score),
        opinion(t('tests.words'), hit.lexical_rank, hit.lexical_score),
        t('tests.order', { before: hit.retriever_rank, after: at + 1 }),
        hit.boost !== 1 && t('tests.boost', { factor: number(hit.boost, 2) }),
      ];
      return h(hit.matches ? 'li.expected' : 'li',
        h('p', `${at + 1}. `, name, hit.page && ` · ${t('chunks.page', { page: hit.page })}`,
          hit.matches && [' ', badge(t('tests.is_expected'), 'good')]),
        h('p.hint', why.filter(Boolean).join(' · ')));
    }));
  }

  async function ask() {
    running = new AbortController();
    const stopped = running.signal;
    let end = null;
    replace(start.lastChild, t('tests.stop'));
    bar.hidden = false;
    bar.set(0);
    try {
      const either = AbortSignal.any([signal, stopped]);
      for await (const { event, data } of events(`${path}/run`, { method: 'POST', signal: either })) {
        if (event === 'result') {
          questions.set(data.question.id, data.question);
          bar.set(data.done / data.total);
          replace(state, t('tests.asked', { done: data.done, count: data.total }));
        } else {
          end = data;
        }
      }
      ({ run, previous } = end);
      notice(t(end.kept ? 'tests.done' : 'tests.done_not_kept', { share: percent(run.summary.recall_at_1) }));
    } catch (error) {
      if (signal.aborted) return;
      if (stopped.aborted) announce(t('tests.stopped'));
      else notice(failure(error), { kind: 'error' });
    } finally {
      running = null;
      bar.hidden = true;
      replace(start.lastChild, t('tests.run'));
    }
    // Of a run that did not end nothing is kept: what is shown is again the last one that did.
    if (end) draw(0);
    else await attempt(load);
  }

  const changed = (method, address, body, headers = {}) => attempt(async () => {
    await send(method, address, body, { signal, headers });
    await load();
  });

  async function add() {
    const inputs = { question: h('textarea', { rows: '2' }), document: h('input'), text: h('input') };
    const fields = Object.entries(inputs).map(([name, input]) => field(t(`tests.${name}`), input));
    const check = () => {
      const values = Object.fromEntries(Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]));
      fields[0].setError(values.question ? '' : t('tests.required'));
      fields[1].setError(values.document ? '' : t('tests.required'));
      return values.question !== '' && values.document !== '' && changed('POST', path, values);
    };
    const title = t('tests.add');
    await dialog({ title, content: fields, actions: [{ text: title, kind: 'primary', value: true, check }] });
  }

  async function upload() {
    const [chosen] = file.files;
    file.value = '';
    const name = visible(chosen.name);
    const action = t('tests.replace');
    if (questions.size && !(await confirm({ title: action, text: t('tests.replace_hint', { name }), action }))) return;
    const type = name.endsWith('.jsonl') ? 'application/jsonl' : 'text/csv';
    const done = await changed('PUT', path, chosen, { 'content-type': type });
    if (done) notice(t('tests.uploaded', { count: questions.size }));
  }

  const remove = ({ id, question }) => confirmed(t('tests.delete'), visible(question), async () => {
    await send('DELETE', `${path}/${id}`, null, { signal });
    await load();
    list.focus();
  });

  const editing = can('writer') && [
    button(t('tests.add'), { icon: 'add', on: add }),
    button(t('tests.upload'), { icon: 'upload', on: () => file.click() }),
    file,
  ];
  replace(container, spinner());
  await load();
  const tools = h('div.row', start, editing);
  replace(container, h('p.hint', t('tests.intro')), tools, bar, state, measures, list, pages);
}

/** What a ranking says of a passage. */
function opinion(name, rank, score) {
  return `${name} ${rank ? t('tests.ranked', { rank, score: number(score, 2) }) : t('tests.not_found')}`;
}
