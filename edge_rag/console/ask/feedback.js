/** Thumbs and a note on an answer, which the box keeps for its operator. */

import { send } from '../core/api.js';
import { attempt, button, checkbox, field, iconButton, notice } from '../core/controls.js';
import { h, replace } from '../core/dom.js';
import { t } from '../core/text.js';

const NOTE_CHARACTERS = 2000;

/** Returns thumbs for a turn, which open a form that says what will be kept; `changed` is called when it is rated. */
export function feedback(turn, changed) {
  const panel = h('div.feedback-panel');
  const thumbs = {
    up: iconButton(t('ask.helped'), 'thumbs_up', { on: () => show('up', form('up')) }),
    down: iconButton(t('ask.did_not_help'), 'thumbs_down', { on: () => show('down', form('down')) }),
  };

  function show(pressed, shown) {
    for (const [rating, thumb] of Object.entries(thumbs)) thumb.ariaPressed = rating === pressed;
    replace(panel, shown);
  }

  function close(rating) {
    show(turn.rating);
    thumbs[rating].focus();
  }

  function form(rating) {
    const note = h('textarea', { rows: '2', maxlength: NOTE_CHARACTERS, dir: 'auto' });
    const withText = checkbox(t('ask.feedback_with_text'));
    const sending = button(t('ask.feedback_send'), { kind: 'primary', type: 'submit' });

    async function submit(event) {
      event.preventDefault();
      sending.disabled = true;
      const { id, question, answer, collection } = turn;
      const text = withText.box.checked && { question, answer, collection };
      const body = { request_id: id, rating, note: note.value.trim(), ...text };
      const done = await attempt(() => send('POST', '/api/v1/feedback', body));
      sending.disabled = false;
      if (!done) return;
      turn.rating = rating;
      changed();
      close(rating);
      notice(t('ask.feedback_sent'));
    }

    const keeps = h('p.hint', t('ask.feedback_keeps'));
    const buttons = h('div.row', sending, button(t('controls.cancel'), { on: () => close(rating) }));
    return h('form.feedback-form', { on: { submit } }, field(t('ask.note'), note), keeps, withText, buttons);
  }

  show(turn.rating);
  const group = h('div.row', { role: 'group', 'aria-label': t('ask.feedback') }, Object.values(thumbs));
  return [group, panel];
}
