/** Texts, numbers and dates in the language of the page. */

import { BASE } from './dom.js';

/** The language of the page. */
export const language = document.documentElement.lang;

const sections = await (await fetch(`${BASE}/locales/${language}.json`, { credentials: 'same-origin' })).json();
const plural = new Intl.PluralRules(language);
const formats = new Map(); // making one takes long
const SPANS = Object.entries({ day: 86_400, hour: 3_600, minute: 60, second: 1 });

/** Returns the text `section.key` with `{name}` replaced; plural forms are chosen by `values.count`. */
export function t(key, values = {}) {
  const [section, name] = key.split('.');
  const found = sections[section]?.[name];
  if (found === undefined) throw new Error(`no text ${key}`);
  const form = typeof found === 'string' ? found : (found[plural.select(values.count)] ?? found.other);
  const written = (value) => (typeof value === 'number' ? number(value) : value);
  return form.replace(/\{(\w+)\}/g, (_, each) => written(values[each]));
}

/** Returns a number with at most so many digits after the point. */
export function number(value, digits = 0) {
  return format(Intl.NumberFormat, { maximumFractionDigits: digits }).format(value);
}

/** Returns a share, 0 to 1, in percent. */
export function percent(share, digits = 0) {
  return format(Intl.NumberFormat, { style: 'percent', maximumFractionDigits: digits }).format(share);
}

/** Returns a number of bytes in the binary unit that fits. */
export function bytes(count) {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let at = 0;
  for (; count >= 1024 && at < units.length - 1; at++) count /= 1024;
  return `${number(count, count < 10 && at > 0 ? 1 : 0)} ${units[at]}`;
}

/** Returns so many seconds in at most two units. */
export function duration(seconds) {
  if (seconds < 0.9995) return unit(Math.round(seconds * 1000), 'millisecond');
  if (seconds < 59.95) return unit(seconds < 10 ? Math.round(seconds * 10) / 10 : Math.round(seconds), 'second');
  const whole = Math.round(seconds);
  const [[name, size], [lesser, part]] = SPANS.slice(SPANS.findIndex(([, each]) => whole >= each));
  const rest = Math.floor((whole % size) / part);
  return unit(Math.floor(whole / size), name) + (rest ? ` ${unit(rest, lesser)}` : '');
}

/** Returns date and time of day of ISO 8601 or milliseconds since 1970. */
export function dateTime(when) {
  return format(Intl.DateTimeFormat, { dateStyle: 'medium', timeStyle: 'short' }).format(new Date(when));
}

/** Returns how long ago something was. */
export function ago(when) {
  const seconds = (new Date(when) - Date.now()) / 1000;
  const all = [['year', 31_557_600], ['month', 2_629_800], ...SPANS];
  const [name, size] = all.find(([, each]) => Math.abs(seconds) >= each) ?? SPANS.at(-1);
  return format(Intl.RelativeTimeFormat, { numeric: 'auto' }).format(Math.round(seconds / size), name);
}

function unit(count, name) {
  const unitDisplay = name.endsWith('second') ? 'short' : 'long';
  return format(Intl.NumberFormat, { style: 'unit', unit: name, unitDisplay, maximumFractionDigits: 1 }).format(count);
}

function format(Format, options) {
  const key = Format.name + JSON.stringify(options);
  if (!formats.has(key)) formats.set(key, new Format(language, options));
  return formats.get(key);
}
