/** Where a question is written, with what goes with it: collection, mode, number of sentences, filter. */

import { badge, button, field, iconButton, select } from '../core/controls.js';
import { h, replace, untrusted } from '../core/dom.js';
import { identity } from '../core/session.js';
import { number, t } from '../core/text.js';
import { filterField } from './filter.js';

/** Numbers of sentences that can be chosen, if the box allows them. */
const SENTENCES = [1, 2, 3, 5, 8];
/** CSS pixels above and below the composer. */
const MARGIN = 24;

/**
 * Returns the composer.
 * @param {object} context
 * @param {object} context.options What `GET /api/v1/ask` tells.
 * @param {Array<{name: string, documents: number, settings: {title: string}}>} context.collections
 * @param {object} context.settings Collection, mode, filter, only and sentences at the beginning.
 * @param {AbortSignal} context.signal
 * @param {(settings: object) => void} context.onAsk Called with the settings and `question`.
 * @param {() => void} context.onStop
 * @param {(collection: string) => void} context.onCollection
 * @returns {{element: HTMLElement, set: (settings: object) => void, showBusy: (busy: boolean) => void,
 *     showFollowing: (following: boolean) => void, showError: (error: Error) => boolean, focus: () => void}}
 */
export function composer({ options, collections, settings, signal, onAsk, onStop, onCollection }) {
  let only = settings.only ?? [];
  // Who signs in next on this device gets no question of another.
  const draft = `edge-rag.draft.${identity().name}`;
  const text = h('textarea', {
    class: 'question-text',
    rows: '1',
    dir: 'auto',
    maxlength: String(options.question_characters),
    placeholder: t('ask.placeholder'),
    enterkeyhint: 'send',
  });
  const question = field(t('ask.question'), text);
  question.classList.add('question-field');
  question.firstElementChild.classList.add('sr-only');
  const names = collections.map((each) => ({ value: each.name, text: each.settings.title || each.name }));
  const collection = select(names, { value: settings.collection, on: onCollection });
  const modes = options.modes.map((value) => ({ value, text: t(`ask.mode_${value}`) }));
  const mode = select(modes, { value: settings.mode, on: () => showMode() });
  const counts = SENTENCES.filter((each) => each <= options.max_sentences);
  const sentences = select(
    counts.map((each) => ({ value: String(each), text: number(each) })),
    { value: String(settings.sentences) },
  );
  const hint = h('span');
  const alone = h('span', {}, options.modes.length > 1 ? null : ` ${t('ask.no_model')}`);
  const sentencesField = field(t('ask.sentences'), sentences);
  const filter = filterField({ collection: () => collection.value, signal, on: showLimits });
  filter.value = settings.filter ?? '';
  const more = h('details', { class: 'more' }, h('summary', {}, t('ask.filter')), filter);
  more.open = Boolean(filter.value);
  const limits = h('div', { class: 'row limits' });
  const following = h('span', { hidden: true }, ` ${t('ask.no_memory')}`);
  const askButton = button(t('ask.ask'), { kind: 'primary', icon: 'send', type: 'submit' });
  const stopButton = button(t('ask.stop'), { icon: 'stop', on: onStop, hidden: true });

  const toggle = iconButton(t('ask.settings'), 'settings', {
    'aria-expanded': 'false',
    on: () => toggle.setAttribute('aria-expanded', String(element.classList.toggle('open'))),
  });
  toggle.classList.add('settings-toggle');
  const modeField =
    modes.length > 1
      ? field(t('ask.mode'), mode)
      : h('div', { class: 'field' }, h('span', { class: 'label' }, t('ask.mode')), badge(modes[0].text, 'good'));
  const element = h(
    'form',
    { class: 'composer card', on: { submit } },
    limits,
    h('div', { class: 'question-row' }, question, askButton, stopButton, toggle),
    h('div', { class: 'ask-settings' }, field(t('ask.collection'), collection), modeField, sentencesField, more),
    h('p', { class: 'hint hints' }, hint, alone, following),
  );

  function submit(event) {
    event?.preventDefault();
    if (!stopButton.hidden) return;
    const written = text.value.trim();
    if (!written) {
      text.focus();
      return;
    }
    question.setError('');
    filter.setError('');
    const asked = current(written);
    write('');
    onAsk(asked);
  }

  function current(written) {
    return {
      question: written,
      collection: collection.value,
      mode: mode.value,
      filter: filter.value.trim(),
      only,
      sentences: Number(sentences.value),
    };
  }

  function write(next) {
    text.value = next;
    sessionStorage.setItem(draft, next);
    grow();
  }

  function grow() {
    text.style.height = 'auto';
    text.style.height = `${text.scrollHeight + 2}px`;
  }

  function showMode() {
    replace(hint, t(`ask.mode_${mode.value}_hint`));
    hint.hidden = false;
    sentencesField.hidden = mode.value !== 'quote';
  }

  function showLimits() {
    const chips = only.map((name) => {
      const chip = iconButton(t('ask.not_only', { name }), 'close', { on: () => setOnly(only.filter((each) => each !== name)) });
      return h('span', { class: 'chip' }, t('ask.only'), ' ', untrusted(name), chip);
    });
    replace(limits, chips);
    limits.hidden = chips.length === 0;
    more.classList.toggle('in-use', Boolean(filter.value.trim()));
  }

  function setOnly(next) {
    only = next;
    showLimits();
    text.focus();
  }

  text.addEventListener('input', () => {
    sessionStorage.setItem(draft, text.value);
    question.setError('');
    grow();
  });
  text.addEventListener('keydown', (event) => {
    // While an input method composes, Enter takes its proposal.
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  // What gets the focus is scrolled to where the composer does not cover it.
  const { style } = document.documentElement;
  const covering = new ResizeObserver(() => style.setProperty('scroll-padding-bottom', `${element.offsetHeight + MARGIN}px`));
  covering.observe(element);
  signal.addEventListener('abort', () => {
    covering.disconnect();
    style.removeProperty('scroll-padding-bottom');
  });
  text.value = sessionStorage.getItem(draft) ?? '';
  showMode();
  showLimits();
  requestAnimationFrame(grow);

  return {
    element,
    set({ question: next, only: names, collection: name }) {
      if (name !== undefined) collection.value = name;
      if (next !== undefined) write(next);
      if (names !== undefined) setOnly(names);
    },
    settings: () => current(''),
    showBusy(busy) {
      // Focus stays on what can be pressed: the button that goes takes it along.
      const going = busy ? askButton : stopButton;
      const focused = document.activeElement === going;
      askButton.hidden = busy;
      stopButton.hidden = !busy;
      if (focused) (busy ? stopButton : text).focus();
    },
    showFollowing(is) {
      element.classList.toggle('begun', is);
      following.hidden = !is;
      alone.hidden = hint.hidden = is;
    },
    /** Shows a refused field beside it; returns whether there is one. */
    showError(error, asked) {
      const at = { filter, question }[error.param];
      if (error.status !== 400 || !at) return false;
      write(asked.question);
      if (at === filter) more.open = true;
      at.setError(error.message);
      (at === filter ? filter : text).focus();
      return true;
    },
    focus: () => text.focus(),
  };
}
