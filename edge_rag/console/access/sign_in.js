/** Signing in: with a one-time code, with the link that has one, or with a token. */

import { send } from '../core/api.js';
import { enter } from '../core/app.js';
import { button, failure, field, icon, spinner } from '../core/controls.js';
import { announce, h, replace } from '../core/dom.js';
import { href, rewrite } from '../core/router.js';
import { duration, t } from '../core/text.js';

const MISTAKES = [400, 401]; // statuses of a code or token that is none, or not one of this box

/** Fills the view; with a code in the address, as `#/sign-in/CODE`, it signs in at once. */
export async function show(container, { parts: [code], signal }) {
  const title = t('access.sign_in_title');
  let refused = null;
  if (code) {
    // It is worth nothing once it was used, and until then nobody shall find it in the address bar or the history.
    rewrite(href('sign-in'));
    replace(container, spinner(t('access.sign_in_running')));
    announce(t('access.sign_in_running'));
    try {
      await signIn({ code }, signal);
      return title;
    } catch (error) {
      refused = error;
    }
  }
  const typed = { autocomplete: 'one-time-code', autocapitalize: 'characters', spellcheck: 'false' };
  const codeForm = form('code', typed, signal);
  const tokenForm = form('token', { autocomplete: 'current-password', type: 'password' }, signal);
  replace(
    container,
    h('h1', title),
    h('p', t('access.sign_in_about')),
    h('div.grid', codeForm, tokenForm),
  );
  // A code that was not looked at, because the box is busy or away, can be tried again.
  if (refused) codeForm.tell(refused, MISTAKES.includes(refused.status) ? '' : code);
  codeForm.querySelector('input').focus();
  return title;
}

/** Returns the form of one way, `code` or `token`, to sign in; `tell(error, value)` says why it did not work. */
function form(way, attributes, signal) {
  const input = h('input', { name: way, required: true, ...attributes });
  const labelled = field(t(`access.sign_in_${way}_label`), input, { hint: t(`access.sign_in_${way}_hint`) });
  const action = button(t('access.sign_in_action'), { kind: 'primary', type: 'submit' });
  const wrong = h('p.field-error', { role: 'alert' });
  // Password managers keep a password only with the name of its user.
  const user = way === 'token' && h('input', { autocomplete: 'username', value: location.host, hidden: true });

  async function submit(event) {
    event.preventDefault();
    const value = input.value.trim();
    if (!value || action.disabled) return void input.focus();
    action.disabled = true;
    replace(wrong);
    try {
      await signIn({ [way]: value }, signal);
    } catch (error) {
      if (!signal.aborted) element.tell(error);
    }
    action.disabled = false;
  }

  const heading = h('h2', t(`access.sign_in_${way}_title`));
  const element = h('form.card', { novalidate: true, on: { submit } }, heading, labelled, user, wrong, action);
  element.tell = (error, value = input.value) => {
    input.value = value;
    input.ariaInvalid = MISTAKES.includes(error.status);
    replace(wrong, icon('warning'), sentence(way, error));
    input.focus();
  };
  return element;
}

/** Begins the session and shows what the user wanted. */
async function signIn(credentials, signal) {
  try {
    await send('POST', '/api/v1/session', credentials, { signal });
  } catch (error) {
    if (error.status !== 403) throw error;
    // Without TLS, which is on the box itself, there is no session, because none is needed.
    await enter().catch(() => Promise.reject(error));
    return;
  }
  await enter();
}

function sentence(way, error) {
  if (error.status === 401) return t(`access.sign_in_${way}_wrong`);
  if (error.status === 400) return t(`access.sign_in_${way}_mistyped`);
  if (error.status === 429) return t('access.sign_in_often', { time: duration(Math.ceil(error.retryAfterMs / 1000) || 60) });
  return failure(error);
}
