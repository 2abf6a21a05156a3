/** Models: which are installed and which are recommended; adding, verifying, choosing and removing them. */

import { events, get, send } from '../core/api.js';
import { badge, button, checkbox, confirm, empty, errorBox, failure, field, notice, progress, table } from '../core/controls.js';
import { announce, h, replace, untrusted, visible } from '../core/dom.js';
import { ago, bytes, number, t } from '../core/text.js';

const PATH = '/api/v1/models';

/** Shows models and the job that adds or verifies one. */
export async function modelsPanel(container, { signal }) {
  const installed = h('section', { class: 'stack' });
  const running = h('section', { class: 'stack', hidden: true });
  const adding = h('section', { class: 'stack' });
  let job = null;
  replace(container, running, installed, adding);
  const act = async (work) => {
    try {
      await work();
    } catch (error) {
      if (!signal.aborted) notice(failure(error), { kind: 'error' });
    }
  };

  async function reload() {
    const [found, { models }] = await Promise.all([
      get(`${PATH}/installed`, { signal }),
      get(`${PATH}/catalog`, { signal }),
    ]);
    replace(installed, h('h2', {}, t('models.installed')), installedTable(found.installed, { start, choose, remove }));
    replace(adding, h('h2', {}, t('models.add_title')), addForm(start), catalogue(models, start));
    if (found.job && found.job.state === 'running' && job !== found.job.number) follow(found.job);
  }

  /** Starts a job by a request that answers with it. */
  async function start(request) {
    await act(async () => follow((await request()).job));
  }

  async function follow(first) {
    job = first.number;
    const bar = progress(null, t(`models.job_${first.kind}`, { name: visible(first.model) }));
    const step = h('p', {});
    const detail = h('p', { class: 'hint detail' });
    const stop = button(t('controls.cancel'), { icon: 'stop', on: () => act(() => send('POST', `${PATH}/jobs/${job}/cancel`)) });
    replace(running, h('div', { class: 'card' }, h('h2', {}, jobTitle(first)), step, bar, detail, h('p', {}, stop)));
    running.hidden = false;
    let last = first;
    try {
      for await (const { data } of events(`${PATH}/jobs/${job}/events`, { after: 0, signal })) {
        if (data.step !== last.step) announce(data.step);
        last = data;
        replace(step, stepText(data));
        replace(detail, data.detail ? untrusted(data.detail) : null);
        bar.set(data.total_bytes ? Math.min(1, data.done_bytes / data.total_bytes) : null);
      }
    } catch (error) {
      if (!signal.aborted) replace(running, errorBox(error, () => follow(first)));
      return;
    }
    const told = t(`models.${last.kind}_${last.state}`, { name: visible(last.model) });
    running.hidden = last.state !== 'failed';
    if (last.state === 'failed') {
      const problem = h('div', { class: 'error-box', role: 'alert' }, h('p', {}, told, ' ', visible(last.problem)));
      replace(running, problem);
    } else {
      notice(told);
    }
    await act(reload);
  }

  async function choose(model) {
    await act(async () => {
      notice(t('models.choosing', { name: visible(model.name) }));
      const chosen = await send('POST', `${PATH}/installed/${model.name}/choose`);
      const key = chosen.overridden_by ? 'overridden' : chosen.is_in_use ? 'now_in_use' : 'after_restart';
      notice(t(`models.${key}`, { name: visible(model.name), other: visible(chosen.overridden_by ?? '') }));
      if (chosen.problem) notice(visible(chosen.problem), { kind: 'error' });
      await reload();
    });
  }

  async function remove(model) {
    const name = visible(model.name);
    const asked = { title: t('models.remove_title', { name }), text: t('models.remove_text'), action: t('models.remove') };
    if (!(await confirm({ ...asked, danger: true }))) return;
    await act(async () => {
      await send('DELETE', `${PATH}/installed/${model.name}`);
      await reload();
    });
  }

  await reload();
}

function jobTitle({ kind, model, source }) {
  const title = t(`models.job_${kind}`, { name: visible(model) });
  return source ? [title, ' ', h('span', { class: 'hint' }, untrusted(source))] : title;
}

function stepText({ step, done_bytes: done, total_bytes: total }) {
  const counted = total ? t('models.of', { done: bytes(done), total: bytes(total) }) : '';
  return [step || t('models.starting'), ' ', h('span', { class: 'hint' }, counted)];
}

function installedTable(models, { start, choose, remove }) {
  const rows = models.map((model) => [
    untrusted(model.name),
    model.role && t(`models.role_${model.role}`),
    [bytes(model.disk_bytes), model.memory_bytes && h('span', { class: 'hint' }, ` / ${bytes(model.memory_bytes)}`)],
    untrusted(model.licence),
    model.languages,
    state(model),
    h(
      'span',
      { class: 'row' },
      !(model.is_chosen || model.is_in_use) && action('use', model, () => choose(model)),
      action('verify', model, () => start(() => send('POST', `${PATH}/installed/${model.name}/verify`))),
      !(model.is_builtin || model.is_chosen || model.is_in_use) && action('remove', model, () => remove(model), 'danger'),
    ),
  ]);
  const columns = ['name', 'role', 'size', 'licence', 'languages', 'state', 'actions'].map((name) => ({
    text: t(`models.${name}`),
  }));
  return table({ caption: t('models.installed'), columns, rows, hideCaption: true });
}

/** Returns a button whose name tells which model it is for. */
function action(name, model, on, kind = '') {
  const text = t(`models.${name}`);
  return button(text, { kind, on, 'aria-label': `${text}: ${visible(model.name)}` });
}

function state(model) {
  return h(
    'span',
    { class: 'row' },
    model.is_in_use && badge(t('models.in_use'), 'good'),
    model.is_chosen && !model.is_in_use && badge(t('models.chosen'), 'warn'),
    model.is_builtin && badge(t('models.builtin')),
    model.problem
      ? [badge(t('models.problem'), 'bad'), untrusted(model.problem)]
      : model.verified_at && badge(t('models.verified', { ago: ago(model.verified_at) }), 'good'),
  );
}

function addForm(start) {
  const source = h('input', { type: 'text', maxlength: '512', autocomplete: 'off', spellcheck: 'false' });
  const file = h('input', { type: 'file', accept: '.gguf' });
  const loss = checkbox(t('models.accept_loss'));
  const from = field(t('models.source'), source, { hint: t('models.source_hint') });
  return h(
    'form',
    {
      class: 'card',
      on: {
        submit: async (event) => {
          event.preventDefault();
          const [chosen] = file.files;
          from.setError(chosen || source.value.trim() ? '' : t('models.source_missing'));
          if (!chosen && !source.value.trim()) return;
          const accepted = { accept_loss: loss.box.checked };
          await start(async () => {
            const named = chosen ? { file: await sent(chosen) } : { source: source.value.trim() };
            return send('POST', `${PATH}/installed`, { ...named, ...accepted });
          });
        },
      },
    },
    h('p', {}, t('models.add_about')),
    from,
    field(t('models.file'), file, { hint: t('models.file_hint') }),
    loss,
    h('p', {}, button(t('models.add'), { kind: 'primary', type: 'submit', icon: 'add' })),
  );
}

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

function catalogue(models, start) {
  if (models.length === 0) return empty(t('models.no_catalogue'));
  const rows = models.map((model) => [
    h('span', { class: 'row' }, h('strong', {}, untrusted(model.name)), model.is_installed && badge(t('models.there'), 'good')),
    t(`models.role_${model.role}`),
    [bytes(model.disk_bytes), h('span', { class: 'hint' }, ` / ${bytes(model.memory_bytes)}`)],
    model.licence,
    [model.languages && `${model.languages}; `, model.good_for],
    model.fits ? t('models.fits') : badge(t('models.too_large'), 'warn'),
    model.is_installed || model.is_builtin
      ? null
      : action('add', model, () => start(() => send('POST', `${PATH}/installed`, { source: model.name }))),
  ]);
  const columns = ['name', 'role', 'size', 'licence', 'good_for', 'memory', 'actions'].map((name) => ({
    text: t(`models.${name}`),
  }));
  return h(
    'details',
    { class: 'card', open: true },
    h('summary', {}, t('models.catalogue', { count: number(models.length) })),
    table({ caption: t('models.catalogue_caption'), columns, rows }),
  );
}
