/** Models, installed and recommended: adding, verifying, choosing and removing them. */

import { events, get, send } from '../core/api.js';
import { attempt, badge, button, checkbox, confirmed, empty, errorBox, field, notice, progress } from '../core/controls.js';
import { announce, h, replace, untrusted, visible } from '../core/dom.js';
import { ago, bytes, t } from '../core/text.js';
import { listing } from './facts.js';

const PATH = '/api/v1/models';
const INSTALLED = ['name', 'role', 'size', 'licence', 'languages', 'state', 'actions'];
const RECOMMENDED = ['name', 'role', 'size', 'licence', 'good_for', 'memory', 'actions'];

/** Shows models and the job that adds or verifies one. */
export async function show(container, signal) {
  const running = h('section.stack', { hidden: true });
  const lists = h('section.stack');
  let job = null;
  replace(container, running, lists);

  async function reload() {
    const read = (part) => get(`${PATH}/${part}`, { signal });
    const [found, { models }] = await Promise.all([read('installed'), read('catalog')]);
    replace(
      lists,
      h('h2', t('models.installed')),
      listing(t('models.installed'), 'models', found.installed.map(installedRow), INSTALLED),
      h('h2', t('models.add_title')),
      addForm(start),
      h('h2', t('models.catalogue', { count: models.length })),
      h('p.hint', t('models.catalogue_caption')),
      models.length
        ? listing(t('models.catalogue_caption'), 'models', models.map(recommendedRow), RECOMMENDED)
        : empty(t('models.no_catalogue')),
    );
    if (found.job?.state === 'running' && job !== found.job.number) follow(found.job);
  }

  /** Starts a job by a request that answers with it. */
  function start(request) {
    return attempt(async () => follow((await request()).job));
  }

  async function follow(first) {
    job = first.number;
    const title = t(`models.job_${first.kind}`, { name: visible(first.model) });
    const bar = progress(null, title);
    const step = h('p');
    const detail = h('p.hint');
    const stop = () => attempt(() => send('POST', `${PATH}/jobs/${job}/cancel`));
    const heading = h('h2', title, ' ', h('span.hint', untrusted(first.source)));
    const end = button(t('controls.cancel'), { icon: 'stop', on: stop });
    replace(running, h('div.card', heading, step, bar, detail, end));
    running.hidden = false;
    let last = first;
    try {
      for await (const { data } of events(`${PATH}/jobs/${job}/events`, { after: 0, signal })) {
        if (data.step !== last.step) announce(data.step);
        last = data;
        const { done_bytes: done, total_bytes: total } = data;
        const counted = total ? t('models.of', { done: bytes(done), total: bytes(total) }) : '';
        replace(step, data.step || t('models.starting'), ' ', h('span.hint', counted));
        replace(detail, untrusted(data.detail));
        bar.set(total ? Math.min(1, done / total) : null);
      }
    } catch (error) {
      if (!signal.aborted) replace(running, errorBox(error, () => follow(first)));
      return;
    }
    const told = t(`models.${last.kind}_${last.state}`, { name: visible(last.model) });
    running.hidden = last.state !== 'failed';
    if (running.hidden) notice(told);
    else replace(running, h('p.error-box', { role: 'alert' }, told, ' ', visible(last.problem)));
    await attempt(reload);
  }

  function installedRow(model) {
    const path = `${PATH}/installed/${model.name}`;
    const name = visible(model.name);
    const isNeeded = model.is_chosen || model.is_in_use;
    const choose = () => attempt(async () => {
      notice(t('models.choosing', { name }));
      const chosen = await send('POST', `${path}/choose`);
      const key = chosen.overridden_by ? 'overridden' : chosen.is_in_use ? 'now_in_use' : 'after_restart';
      notice(t(`models.${key}`, { name, other: visible(chosen.overridden_by) }));
      if (chosen.problem) notice(visible(chosen.problem), { kind: 'error' });
      await reload();
    });
    const erase = () => send('DELETE', path).then(reload);
    const remove = () =>
      confirmed(t('models.remove'), t('models.remove_text'), erase, t('models.remove_title', { name }));
    const actions = [
      !isNeeded && action('use', model, choose),
      action('verify', model, () => start(() => send('POST', `${path}/verify`))),
      !isNeeded && !model.is_builtin && action('remove', model, remove, 'danger'),
    ];
    const role = model.role && t(`models.role_${model.role}`);
    const state = h('span.row', stateOf(model));
    const licence = untrusted(model.licence);
    return [untrusted(model.name), role, size(model), licence, model.languages, state, h('span.row', actions)];
  }

  function recommendedRow(model) {
    return [
      [untrusted(model.name), ' ', model.is_installed && badge(t('models.there'), 'good')],
      t(`models.role_${model.role}`),
      size(model),
      model.licence,
      [model.languages && `${model.languages}; `, model.good_for],
      model.fits ? t('models.fits') : badge(t('models.too_large'), 'warn'),
      !model.is_installed && action('add', model, () => start(() => add({ source: model.name }))),
    ];
  }

  await reload();
}

/** Returns a button whose name tells which model it is for. */
function action(name, model, on, kind = '') {
  const text = t(`models.${name}`);
  return button(text, { kind, on, 'aria-label': `${text}: ${visible(model.name)}` });
}

function size({ disk_bytes: disk, memory_bytes: memory }) {
  return [bytes(disk), memory && h('span.hint', ` / ${bytes(memory)}`)];
}

function stateOf(model) {
  return [
    model.is_in_use && badge(t('models.in_use'), 'good'),
    model.is_chosen && !model.is_in_use && badge(t('models.chosen'), 'warn'),
    model.is_builtin && badge(t('models.builtin')),
    model.problem
      ? [badge(t('models.problem'), 'bad'), untrusted(model.problem)]
      : model.verified_at && badge(t('models.verified', { ago: ago(model.verified_at) }), 'good'),
  ];
}

function addForm(start) {
  const source = h('input', { maxlength: '512', autocomplete: 'off', spellcheck: 'false' });
  const file = h('input', { type: 'file', accept: '.gguf' });
  const loss = checkbox(t('models.accept_loss'));
  const from = field(t('models.source'), source, { hint: t('models.source_hint') });
  function submit(event) {
    event.preventDefault();
    const [chosen] = file.files;
    const named = source.value.trim();
    from.setError(chosen || named ? '' : t('models.source_missing'));
    if (!chosen && !named) return;
    start(async () => {
      const model = chosen ? { file: await sent(chosen) } : { source: named };
      return add({ ...model, accept_loss: loss.box.checked });
    });
  }
  return h('form.card', { on: { submit } },
    h('p', t('models.add_about')),
    from,
    field(t('models.file'), file, { hint: t('models.file_hint') }),
    loss,
    h('p', button(t('models.add'), { kind: 'primary', type: 'submit', icon: 'add' })));
}

const add = (model) => send('POST', `${PATH}/installed`, model);

/** Sends a file to the box; returns its id. */
async function sent(file) {
  notice(t('models.sending', { size: bytes(file.size) }));
  const form = new FormData();
  form.append('purpose', 'assistants');
  form.append('file', file, file.name);
  // The type of a Blob is in lower case, and a boundary is not.
  const packed = new Response(form);
  const headers = { 'content-type': packed.headers.get('content-type') };
  return (await send('POST', '/v1/files', await packed.blob(), { headers })).id;
}
