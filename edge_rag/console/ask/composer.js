/** Where a question is written, with its collection, mode, number of sentences and filter. */

import { button, expander, field, icon, iconButton, select } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { chooseCollection, identity } from '../core/session.js';
import { number, t } from '../core/text.js';
import { conditions } from './filter.js';

const SENTENCES = [0, 1, 2, 3, 5, 8]; // 0: as many as the answer needs
const MARGIN = 24; // above and below the composer, CSS pixels

/** `options` are what `GET /api/v1/ask` tells, `onAsk` is called with settings and `question`. */
export function composer({ options, collections, settings, onAsk, onStop }) {
  let { only } = settings;
  let busy = false;
  // Who signs in next on this device gets no question of another.
  const draft = `edge-rag.draft.${identity().name}`;
  const text = h('textarea.question-text', {
    rows: '1',
    dir: 'auto',
    maxlength: options.question_characters,
    placeholder: t('ask.placeholder'),
    enterkeyhint: 'send',
    on: { input: written, keydown: pressed },
  });
  const question = field(t('ask.question'), text);
  question.classList.add('question-field');
  question.firstElementChild.className = 'sr-only';
  const names = collections.map(({ name, settings: { title } }) => ({ value: name, text: title || name }));
  const collection = select(names, { value: settings.collection, on: chooseCollection });
  const modes = options.modes.map((value) => ({ value, text: t(`ask.mode_${value}`) }));
  const mode = select(modes, { value: settings.mode, on: showMode });
  const counts = SENTENCES.filter((each) => each <= options.max_sentences);
  const numbers = counts.map((each) => ({ value: each, text: each ? number(each) : t('ask.as_needed') }));
  const sentences = select(numbers, { value: settings.sentences });
  const sentencesField = field(t('ask.sentences'), sentences);
  const filter = h('input.filter-text', { spellcheck: 'false', dir: 'ltr', on: { input: showLimits } });
  const filterField = field(t('ask.filter'), filter, { hint: t('ask.filter_hint') });
  const builder = conditions({ collection: () => collection.value, on: limit });
  const more = h('details.more', h('summary', t('ask.filter')), filterField, builder);
  const limits = h('div.row.limits');
  const hints = h('p.hint.hints');
  const action = button('', { type: 'submit' });
  const toggle = expander(iconButton(t('ask.settings'), 'settings', { kind: 'quiet settings-toggle' }));
  const modeField = modes.length > 1 && field(t('ask.mode'), mode);
  const element = h(
    'form.composer.card',
    { on: { submit } },
    limits,
    h('div.question-row', question, action, toggle),
    h('div.row.ask-settings', field(t('ask.collection'), collection), modeField, sentencesField, more),
    hints,
  );

  function submit(event) {
    event.preventDefault();
    if (busy) onStop();
    else send();
  }

  function send() {
    const asked = current();
    if (busy || !asked.question) return text.focus();
    filterField.setError('');
    write('');
    return onAsk(asked);
  }

  function current() {
    return {
      question: text.value.trim(),
      collection: collection.value,
      mode: mode.value,
      filter: filter.value.trim(),
      only,
      sentences: Number(sentences.value),
    };
  }

  function write(next) {
    text.value = next;
    written();
  }

  function written() {
    sessionStorage.setItem(draft, text.value);
    question.setError('');
  }

  function pressed(event) {
    // While an input method composes, Enter is its own.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    send();
  }

  function showMode() {
    sentencesField.hidden = mode.value !== 'quote';
    replace(hints, t(`ask.mode_${mode.value}_hint`), !options.language_model && ` ${t('ask.no_model')}`);
  }

  function limit(condition) {
    filter.value = [filter.value.trim(), condition].filter(Boolean).join(' and ');
    filterField.setError('');
    showLimits();
  }

  function showLimits() {
    const chips = only.map((name) => {
      const others = only.filter((each) => each !== name);
      const without = iconButton(t('ask.not_only', { name }), 'close', { on: () => setOnly(others) });
      return h('span.chip', t('ask.only'), ' ', untrusted(name), without);
    });
    replace(limits, chips);
    more.classList.toggle('in-use', Boolean(filter.value.trim()));
  }

  function setOnly(next) {
    only = next;
    showLimits();
    text.focus();
  }

  function showBusy(is) {
    busy = is;
    action.ariaLabel = t(busy ? 'ask.stop' : 'ask.ask');
    replace(action, icon(busy ? 'stop' : 'send'), h('span', action.ariaLabel));
    action.classList.toggle('primary', !busy);
  }

  // What gets the focus is scrolled to where the composer does not cover it.
  new ResizeObserver(() => {
    const covered = element.offsetHeight && element.offsetHeight + MARGIN;
    document.documentElement.style.scrollPaddingBottom = covered ? `${covered}px` : '';
  }).observe(element);
  text.value = sessionStorage.getItem(draft) ?? '';
  filter.value = settings.filter;
  more.open = Boolean(settings.filter);
  showBusy(false);
  showLimits();
  showMode();

  return {
    element,
    current,
    setOnly,
    showBusy,
    focus: () => text.focus(),
    choose(name) {
      chooseCollection((collection.value = name));
      text.focus();
    },
    showBegun: (is) => element.classList.toggle('begun', is),
    /** Shows a refused field beside it; returns whether there is one. */
    showError(error, asked) {
      const [at, input] = { filter: [filterField, filter], question: [question, text] }[error.param] ?? [];
      if (error.status !== 400 || !at) return false;
      write(asked.question);
      more.open ||= at === filterField;
      at.setError(error.message);
      input.focus();
      return true;
    },
  };
}
