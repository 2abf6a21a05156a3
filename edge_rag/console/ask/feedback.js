/** Thumbs and a note on an answer, which the box keeps for its operator. */

import { send } from '../core/api.js';
import { button, checkbox, errorBox, field, freshId, iconButton, notice } from '../core/controls.js';
import { h, replace } from '../core/dom.js';
import { t } from '../core/text.js';

const NOTE_CHARACTERS = 2000;

/**
 * Returns thumbs for a turn. A thumb opens a form that says what will be kept before anything is sent.
 * @param {import('./conversation.js').Turn} turn
 * @param {() => void} changed Called when the turn has been rated.
 */
export function feedback(turn, changed) {
  const panel = h('div', { id: freshId('feedback'), hidden: true });
  const thumbs = [thumb('up', 'thumbs_up', 'ask.helped'), thumb('down', 'thumbs_down', 'ask.did_not_help')];
  const group = h('div', { class: 'row', role: 'group', 'aria-label': t('ask.feedback') }, thumbs);
  const element = h('div', { class: 'feedback' }, group, panel);
  let rating = turn.rating;

  function thumb(value, picture, key) {
    return iconButton(t(key), picture, {
      'aria-pressed': String(turn.rating === value),
      'aria-controls': panel.id,
      on: () => choose(value),
      data: { rating: value },
    });
  }

  function choose(value) {
    const again = rating === value && !panel.hidden;
    rating = again ? turn.rating : value;
    show();
    panel.hidden = again;
    if (!again) replace(panel, form());
  }

  function show() {
    for (const each of thumbs) each.setAttribute('aria-pressed', String(each.dataset.rating === rating));
  }

  function form() {
    const note = h('textarea', { rows: '2', maxlength: String(NOTE_CHARACTERS), dir: 'auto' });
    const told = checkbox(t('ask.feedback_with_text'));
    const kept = h('p', { class: 'hint' }, t('ask.feedback_keeps'));
    const failed = h('div');
    const sending = button(t('ask.feedback_send'), { kind: 'primary', type: 'submit' });
    return h(
      'form',
      {
        class: 'feedback-form',
        on: {
          submit: async (event) => {
            event.preventDefault();
            sending.disabled = true;
            try {
              await send('POST', '/api/v1/feedback', body(note.value.trim(), told.box.checked));
            } catch (error) {
              replace(failed, errorBox(error));
              sending.disabled = false;
              return;
            }
            turn.rating = rating;
            changed();
            panel.hidden = true;
            thumbs.find((each) => each.dataset.rating === rating).focus();
            notice(t('ask.feedback_sent'));
          },
        },
      },
      field(t('ask.note'), note),
      kept,
      told,
      failed,
      h('div', { class: 'row' }, sending, button(t('controls.cancel'), { on: () => choose(rating) })),
    );
  }

  function body(note, withText) {
    const { id, question, answer, collection } = turn;
    return { request_id: id, rating, note, ...(withText ? { question, answer, collection } : {}) };
  }

  return element;
}
